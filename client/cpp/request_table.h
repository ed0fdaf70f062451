// Outstanding asynchronous transfers of one engine (contract 1.9).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/transfer_log.h"

namespace hixld::client {

enum class RequestState { kWaiting, kCompleted, kFailed };

struct Request {
  std::string peer;
  uint64_t transfer_id = 0;  // the daemon's
  uint64_t session = 0;      // number of the session that it was submitted in
  const void* user_data = nullptr;
  // A terminal state that the daemon has told, and therefore forgotten, but the program has not
  // asked for yet.
  RequestState state = RequestState::kWaiting;
  std::string message;
  TransferTrace trace;
};

// Not thread-safe: its owner locks. Ids rise, so iteration is in order of submission.
class RequestTable {
 public:
  // Returns the request's id, unique in this process and never 0.
  uint64_t Add(Request request);
  Request* Get(uint64_t id);
  void Remove(uint64_t id) { requests_.erase(id); }
  // Forgets all requests to a peer, or all there are, and returns them.
  std::vector<Request> DropPeer(const std::string& peer);
  std::vector<Request> DropAll();
  std::map<uint64_t, Request>& requests() { return requests_; }

 private:
  std::map<uint64_t, Request> requests_;
};

}  // namespace hixld::client
