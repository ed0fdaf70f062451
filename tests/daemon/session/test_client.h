// A client of the fd channel for tests: what it says is up to the test.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/fd.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/fdchannel/channel.h"

namespace hixld::testing {

using hixl::fdchannel::v1::FdMessage;

// An answer that is an Error, as the status that it stands for.
inline absl::Status ErrorOf(const FdMessage& message) {
  return StatusFromErrorDetail(message.error().message(), message.error().detail(),
                               absl::StatusCode::kUnknown);
}

class TestClient {
 public:
  struct Options {
    bool probe = true;
    bool serves_copy_commands = false;
    uint32_t version = kFdChannelVersion;
    std::string name = "test";
  };

  // Connects without a hello.
  static absl::StatusOr<TestClient> Connect(const std::string& socket_path) {
    HIXLD_ASSIGN_OR_RETURN(UniqueFd socket, ConnectFdSocket(socket_path + ".fd"));
    return TestClient(std::move(socket));
  }

  // Connects and says hello.
  static absl::StatusOr<TestClient> Open(const std::string& socket_path, Options options) {
    HIXLD_ASSIGN_OR_RETURN(TestClient client, Connect(socket_path));
    HIXLD_RETURN_IF_ERROR(client.Hello(options));
    return client;
  }

  absl::Status Hello(const Options& options) {
    FdMessage message;
    message.set_request_id(1);
    auto* hello = message.mutable_hello();
    hello->set_protocol_version(options.version);
    hello->set_client_name(options.name);
    hello->set_serves_copy_commands(options.serves_copy_commands);
    if (options.probe) {
      hello->set_probe_address(reinterpret_cast<uint64_t>(kProbe));
      hello->set_probe_value(kProbe, 16);
    }
    HIXLD_ASSIGN_OR_RETURN(const FdPacket answer, Ask(message));
    if (!answer.message.has_welcome()) return absl::InternalError("no welcome");
    welcome_ = answer.message.welcome();
    return absl::OkStatus();
  }

  absl::Status Send(const FdMessage& message, const std::vector<int>& fds = {}) {
    return SendFdPacket(socket_.get(), message, fds);
  }
  absl::StatusOr<FdPacket> Receive() {
    if (commands_.empty()) return ReceiveFdPacket(socket_.get());
    FdPacket packet = std::move(commands_.front());
    commands_.pop_front();
    return packet;
  }

  // Sends and waits for the answer; an Error becomes a status. Commands that come in between are
  // received later.
  absl::StatusOr<FdPacket> Ask(const FdMessage& message, const std::vector<int>& fds = {}) {
    HIXLD_RETURN_IF_ERROR(Send(message, fds));
    while (true) {
      HIXLD_ASSIGN_OR_RETURN(FdPacket answer, ReceiveFdPacket(socket_.get()));
      if (answer.message.has_error()) return ErrorOf(answer.message);
      if (!answer.message.has_copy_command()) return answer;
      commands_.push_back(std::move(answer));
    }
  }

  absl::StatusOr<uint64_t> PutMemory(int fd, uint64_t size) {
    FdMessage message;
    message.set_request_id(2);
    message.mutable_put_memory()->set_size(size);
    HIXLD_ASSIGN_OR_RETURN(const FdPacket answer, Ask(message, {fd}));
    return answer.message.memory_handle().handle();
  }

  absl::StatusOr<Mapping> MapArena(uint64_t arena_id) {
    FdMessage message;
    message.set_request_id(3);
    message.mutable_get_arena()->set_arena_id(arena_id);
    HIXLD_ASSIGN_OR_RETURN(const FdPacket answer, Ask(message));
    if (answer.fds.size() != 1) return absl::InternalError("no descriptor");
    return MapShared(answer.fds[0].get(), 0, answer.message.arena().size());
  }

  const hixl::fdchannel::v1::Welcome& welcome() const { return welcome_; }
  const std::string& token() const { return welcome_.session_token(); }
  int socket() const { return socket_.get(); }
  void Close() { socket_.reset(); }

 private:
  explicit TestClient(UniqueFd socket) : socket_(std::move(socket)) {}

  static constexpr char kProbe[] = "0123456789abcdef";
  UniqueFd socket_;
  std::deque<FdPacket> commands_;
  hixl::fdchannel::v1::Welcome welcome_;
};

}  // namespace hixld::testing
