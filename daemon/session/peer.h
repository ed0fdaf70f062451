// One client's fd channel: the hello, and every packet after it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/direct/direct_granter.h"
#include "daemon/memory/process_memory.h"
#include "daemon/session/client_session.h"
#include "daemon/session/fd_connection.h"
#include "daemon/session/session_options.h"

namespace hixld {

class Peer;

// What a peer needs from the server. Called on the loop's thread.
class PeerHost {
 public:
  virtual ~PeerHost() = default;
  virtual const SessionServerOptions& options() const = 0;
  virtual const SessionResources& resources() const = 0;
  // Whether plain memory of this user's processes may be read. Not while a copy hangs in one.
  virtual bool MayReadProcess(uid_t uid) const = 0;
  // Makes the session known; returns its token.
  virtual std::string OpenSession(Peer* peer) = 0;
  // The channel is closed, for whatever reason. The peer may be destroyed.
  virtual void OnPeerClosed(Peer* peer, const std::string& reason) = 0;
};

// Lives on the loop's thread, except for what is marked. What may block goes to the executors,
// and comes back as a posted task.
class Peer : public std::enable_shared_from_this<Peer> {
 public:
  // `seat` is kept for as long as anything works for this client.
  Peer(PeerHost* host, uint64_t id, PeerCredentials credentials, std::shared_ptr<const void> seat);

  // Takes the connected socket and waits for the Hello. `pidfd` may be empty.
  absl::Status Start(UniqueFd socket, UniqueFd pidfd);
  // Says goodbye with `reason` and closes.
  void Close(const std::string& reason);

  uint64_t id() const { return id_; }
  const PeerCredentials& credentials() const { return credentials_; }
  const std::shared_ptr<const void>& seat() const { return seat_; }
  // Null before the hello has ended.
  const std::shared_ptr<ClientSession>& session() const { return session_; }

 private:
  using FdMessage = hixl::fdchannel::v1::FdMessage;
  enum class State : uint8_t { kHello, kProbe, kOpen, kClosed };

  void OnPacket(FdPacket packet);
  void OnRefused(absl::Status error, std::vector<UniqueFd> fds);
  void OnHello(const FdMessage& message);
  absl::Status CheckHello(const FdMessage& message) const;
  void Probe(uint64_t request_id, hixl::fdchannel::v1::Hello hello);
  void Welcome(uint64_t request_id, const hixl::fdchannel::v1::Hello& hello, absl::Status readable);
  void OnRequest(FdPacket packet);
  void OnPutMemory(FdPacket packet);
  void OnGetArena(const FdMessage& message);
  void OnSetupRings(const FdMessage& message);
  absl::StatusOr<RingServer::Grant> OpenRings(uint32_t layout_version);
  void OnCopyAnswer(const FdMessage& message);
  void OnGetDirectGrant(const FdMessage& message);
  absl::Status MakeCopier(uint32_t layout_version);
  void AnswerDirectGrant(uint64_t request_id, absl::StatusOr<DirectGrant> grant);
  void OnGetDirectFile(const FdMessage& message);

  void SendError(uint64_t request_id, const absl::Status& error);
  // Counts a packet that no honest client sends; too many close the channel.
  void CountBad(const absl::Status& error);
  void SendCommand(uint64_t request_id, hixl::fdchannel::v1::CopyCommand command);
  void WatchCommands();
  void CloseFds(std::vector<UniqueFd> fds);
  void Shut(const std::string& reason);

  PeerHost* const host_;
  Loop* const loop_;
  const uint64_t id_;
  const PeerCredentials credentials_;
  const std::shared_ptr<const void> seat_;
  State state_ = State::kHello;
  std::shared_ptr<FdConnection> connection_;
  std::shared_ptr<const ProcessTarget> target_;
  std::shared_ptr<ClientSession> session_;
  // Once the client has asked for a grant.
  std::shared_ptr<DirectCopier> copier_;
  uint32_t bad_packets_ = 0;
  Loop::TimerId hello_timer_ = 0;
  bool watching_commands_ = false;
};

}  // namespace hixld
