#include "daemon/ring/ring_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// Batches taken from one ring before others get their turn.
constexpr int kBatchesPerPoll = 32;

ring::SlotState SlotStateOf(const absl::Status& status) {
  if (status.ok()) return ring::kCompleted;
  return ApiCodeOf(status) == ApiCode::kTimeout ? ring::kTimedOut : ring::kFailed;
}

}  // namespace

// One session's rings. Everything but Publish runs on its worker.
class RingServer::Ring : public Loop::Poller, public std::enable_shared_from_this<Ring> {
 public:
  Ring(Loop* loop, RingHandler* handler, const Options& options, uint64_t session_id,
       std::unique_ptr<ring::Consumer> consumer, absl::AnyInvocable<void(absl::Status)> on_nonsense)
      : loop_(loop),
        handler_(handler),
        options_(options),
        session_id_(session_id),
        consumer_(std::move(consumer)),
        on_nonsense_(std::move(on_nonsense)) {
    for (uint32_t slot = 0; slot < consumer_->slots(); ++slot) {
      places_.push_back({consumer_.get(), slot});
    }
  }

  const ring::Consumer& consumer() const { return *consumer_; }
  void SayRegionsGone() { consumer_->SayRegionsGone(); }

  // A fresh ring sleeps: its layout starts with the announcement made.
  void Start() {
    loop_->Post([self = shared_from_this()] {
      const absl::Status status = self->loop_->AddFd(
          self->consumer_->wake_fd(), EPOLLIN, [ring = self.get()](uint32_t) { ring->OnWake(); });
      if (!status.ok()) self->End(status);
    });
  }

  void Stop() {
    loop_->Post([self = shared_from_this()] { self->End(absl::OkStatus()); });
  }

  bool Poll() override {
    bool worked = false;
    for (int i = 0; i < kBatchesPerPoll && !ended_; ++i) {
      ring::Consumer::Batch batch;
      const absl::StatusOr<bool> got = consumer_->Next(options_.max_descriptors, &batch);
      if (!got.ok()) {
        End(got.status());
        return true;
      }
      if (!*got) break;
      worked = true;
      Run(std::move(batch));
    }
    if (!ended_) NoteActivity(worked);
    return worked;
  }

  // The loop sleeps soon: announce it, so that the next submission writes the eventfd.
  bool TrySleep() override { return consumer_->TrySleep(); }
  void Wake() override { consumer_->StayAwake(); }

 private:
  // A slot of this ring, to publish in.
  struct Place {
    ring::Consumer* consumer;
    uint32_t slot;
    void Publish(const TransferEnd& end) const {
      consumer->Publish(slot, SlotStateOf(end.status), static_cast<uint32_t>(ApiCodeOf(end.status)),
                        end.bytes, end.id, end.status.message());
    }
  };

  void Run(ring::Consumer::Batch batch) {
    const uint32_t slot = batch.slot;
    RingHandler::Accepted accepted;
    if (batch.verdict) {
      accepted = [self = shared_from_this(), slot](absl::Span<const ring::Extent> local,
                                                   absl::Span<const ring::Extent> remote) {
        self->consumer_->SayRunning(slot, local, remote);
      };
    }
    // Small enough to need no memory of its own.
    std::shared_ptr<Place> place(shared_from_this(), &places_[slot]);
    handler_->Run(session_id_, std::move(batch), std::move(accepted),
                  [place = std::move(place)](const TransferEnd& end) { place->Publish(end); });
  }

  // A ring that has been quiet for a while leaves the pollers, so that thousands of idle sessions
  // cost a busy worker nothing.
  void NoteActivity(bool worked) {
    if (worked) {
      quiet_since_ns_ = 0;
      return;
    }
    const int64_t now = MonotonicNanos();
    if (quiet_since_ns_ == 0) {
      quiet_since_ns_ = now;
    } else if (now - quiet_since_ns_ >= options_.linger_ns && consumer_->TrySleep()) {
      loop_->RemovePoller(this);
      polled_ = false;
    }
  }

  void OnWake() {
    uint64_t count;
    // Nobody else reads it; nothing there is fine too.
    [[maybe_unused]] const ssize_t got = read(consumer_->wake_fd(), &count, sizeof(count));
    if (ended_ || polled_) return;
    consumer_->StayAwake();
    quiet_since_ns_ = 0;
    polled_ = true;
    loop_->AddPoller(this);
    Poll();
  }

  void End(const absl::Status& why) {
    if (ended_) return;
    ended_ = true;
    loop_->RemoveFd(consumer_->wake_fd());
    if (polled_) loop_->RemovePoller(this);
    polled_ = false;
    if (!why.ok()) std::exchange(on_nonsense_, nullptr)(why);
    on_nonsense_ = nullptr;
    // The loop may still be inside Poll.
    loop_->Post([self = shared_from_this()] {});
  }

  Loop* const loop_;
  RingHandler* const handler_;
  const Options options_;
  const uint64_t session_id_;
  const std::unique_ptr<ring::Consumer> consumer_;
  std::vector<Place> places_;  // by slot
  absl::AnyInvocable<void(absl::Status)> on_nonsense_;
  bool polled_ = false;
  bool ended_ = false;
  int64_t quiet_since_ns_ = 0;
};

RingServer::RingServer(WorkerSet* workers, RingHandler* handler, Options options)
    : workers_(workers), handler_(handler), options_(std::move(options)) {}

RingServer::~RingServer() {
  MutexLock lock(&mutex_);
  for (auto& [id, ring] : rings_) ring->Stop();
}

absl::StatusOr<RingServer::Grant> RingServer::Open(
    uint64_t session_id, absl::AnyInvocable<void(absl::Status)> on_nonsense) {
  HIXLD_ASSIGN_OR_RETURN(auto consumer, ring::Consumer::Create(options_.geometry));
  auto ring = std::make_shared<Ring>(&workers_->at(workers_->Next()), handler_, options_,
                                     session_id, std::move(consumer), std::move(on_nonsense));
  const Grant grant{.memory_fd = ring->consumer().memory_fd(),
                    .wake_fd = ring->consumer().wake_fd(),
                    .size = ring->consumer().size()};
  {
    MutexLock lock(&mutex_);
    if (!rings_.emplace(session_id, ring).second) {
      return ParamInvalid(absl::StrCat("session ", session_id, " has its rings already"),
                          {.object = absl::StrCat("session ", session_id),
                           .allowed = "one SetupRings per session"});
    }
  }
  ring->Start();
  return grant;
}

void RingServer::Close(uint64_t session_id) {
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(&mutex_);
    const auto found = rings_.find(session_id);
    if (found == rings_.end()) return;
    ring = std::move(found->second);
    rings_.erase(found);
  }
  ring->Stop();
}

void RingServer::RegionsGone() {
  MutexLock lock(&mutex_);
  for (const auto& [id, ring] : rings_) ring->SayRegionsGone();
}

size_t RingServer::size() const {
  MutexLock lock(&mutex_);
  return rings_.size();
}

}  // namespace hixld
