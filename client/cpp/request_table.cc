#include "client/cpp/request_table.h"

#include <atomic>
#include <utility>

namespace hixld::client {
namespace {

std::atomic<uint64_t> g_next_request{1};

}  // namespace

uint64_t RequestTable::Add(Request request) {
  const uint64_t id = g_next_request.fetch_add(1, std::memory_order_relaxed);
  requests_.emplace(id, std::move(request));
  return id;
}

Request* RequestTable::Get(uint64_t id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

std::vector<Request> RequestTable::DropPeer(const std::string& peer) {
  std::vector<Request> dropped;
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.peer != peer) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = requests_.erase(it);
  }
  return dropped;
}

std::vector<Request> RequestTable::DropAll() {
  std::vector<Request> dropped;
  for (auto& [id, request] : requests_) dropped.push_back(std::move(request));
  requests_.clear();
  return dropped;
}

}  // namespace hixld::client
