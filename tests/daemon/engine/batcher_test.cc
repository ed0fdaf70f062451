#include "daemon/engine/batcher.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

// A window that only ends when the test has seen what it wanted to see before.
constexpr int64_t kLongWindow = 3600 * kNanosPerSecond;

struct Fixture {
  explicit Fixture(BatchingOptions options) {
    auto started = Loop::Start({.name = "batcher-test"});
    REQUIRE(started.ok());
    loop = std::move(*started);
    sink.Hold();
    batcher = std::make_shared<Batcher>(options, std::make_shared<LocalRoute>(&sink), loop.get(),
                                        &next_id, &log);
  }
  FakeSink sink;
  TransferLog log;
  std::atomic<uint64_t> next_id{1000};
  std::unique_ptr<Loop> loop;
  std::shared_ptr<Batcher> batcher;
};

// One transfer of a single piece; how it ended.
class Small {
 public:
  explicit Small(uint64_t offset, uint64_t length = 100,
                 CopyDirection direction = CopyDirection::kWrite)
      : memory_(std::make_shared<TestMemory>(1 << 20)), job_(std::make_shared<TransferJob>()) {
    job_->id = offset + 1;
    job_->direction = direction;
    job_->bytes = length;
    job_->pieces = {
        {.local = {memory_.get(), offset}, .remote_address = 5000 + offset, .length = length}};
    job_->done = [this](absl::Status status) { ended_.set_value(std::move(status)); };
  }
  const std::shared_ptr<TransferJob>& job() { return job_; }
  TransferJob* operator->() { return job_.get(); }
  absl::Status Wait() { return future_.get(); }
  bool ended() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // As if both lay in one memory.
  void ShareMemory(Small& other) { job_->pieces[0].local.access = other.memory_.get(); }

 private:
  std::shared_ptr<TestMemory> memory_;
  std::shared_ptr<TransferJob> job_;
  std::promise<absl::Status> ended_;
  std::future<absl::Status> future_ = ended_.get_future();
};

TEST_CASE("without a window nothing waits") {
  Fixture f({});
  Small a(0);
  f.batcher->Submit(a.job());
  CHECK(f.sink.front() == a.job());
  f.sink.EndOne(absl::OkStatus());
  CHECK(a.Wait().ok());
  CHECK(f.log.Totals().merges == 0);
}

TEST_CASE("as many as are allowed go as one, with neighbours joined, and each one ends") {
  Fixture f({.window_ns = kLongWindow, .max_requests = 3});
  Small a(0);
  Small b(100);
  Small c(700);
  b.ShareMemory(a);
  c.ShareMemory(a);
  for (Small* small : {&a, &b, &c}) f.batcher->Submit(small->job());
  REQUIRE(f.sink.held() == 1);
  const auto merged = f.sink.front();
  CHECK(merged->bytes == 300);
  REQUIRE(merged->pieces.size() == 2);
  CHECK(merged->pieces[0].length == 200);
  CHECK(merged->pieces[1].remote_address == 5700);
  CHECK_FALSE(a.ended());
  f.sink.EndOne(absl::OkStatus());
  for (Small* small : {&a, &b, &c}) {
    CHECK(small->Wait().ok());
    CHECK((*small)->bytes_done == 100);
  }
  CHECK(f.log.Totals().merges == 1);
  CHECK(f.log.Totals().merged_transfers == 3);
}

TEST_CASE("the window's end sends what waits; one alone goes under its own name") {
  Fixture f({.window_ns = kNanosPerMilli});
  Small a(0);
  f.batcher->Submit(a.job());
  f.sink.WaitForJobs(1);
  CHECK(f.sink.front() == a.job());
  f.sink.EndOne(absl::OkStatus());
  CHECK(a.Wait().ok());
}

TEST_CASE("large ones do not wait, directions do not mix, and bytes are bounded") {
  Fixture f({.window_ns = kLongWindow, .max_requests = 100, .max_bytes = 8192});
  Small large(0, 4097);
  Small read(0, 100, CopyDirection::kRead);
  Small a(0, 4096);
  Small b(5000, 4096);
  Small c(10'000, 1);
  f.batcher->Submit(large.job());
  CHECK(f.sink.front() == large.job());
  f.sink.EndOne(absl::OkStatus());
  f.batcher->Submit(read.job());
  f.batcher->Submit(a.job());
  f.batcher->Submit(b.job());
  CHECK(f.sink.held() == 0);
  f.batcher->Submit(c.job());  // does not fit any more
  REQUIRE(f.sink.held() == 1);
  CHECK(f.sink.front()->bytes == 8192);
  f.sink.EndOne(absl::OkStatus());
  CHECK((large.Wait().ok() && a.Wait().ok() && b.Wait().ok()));
  CHECK_FALSE((read.ended() || c.ended()));
  f.batcher->Cancel(read.job(), Failed("over"));
  f.batcher->Cancel(c.job(), Failed("over"));
  CHECK(read.Wait().message() == "over");
  CHECK(c.Wait().message() == "over");
}

TEST_CASE("a transfer that is cancelled while it waits ends alone") {
  Fixture f({.window_ns = kLongWindow, .max_requests = 3});
  Small a(0);
  Small b(100);
  Small c(200);
  Small d(300);
  f.batcher->Submit(a.job());
  f.batcher->Submit(b.job());
  f.batcher->Cancel(b.job(), Failed("not needed"));
  CHECK(b.Wait().message() == "not needed");
  f.batcher->Submit(c.job());
  f.batcher->Submit(d.job());
  REQUIRE(f.sink.held() == 1);
  CHECK(f.sink.front()->bytes == 300);
  f.sink.EndOne(absl::OkStatus());
  CHECK((a.Wait().ok() && c.Wait().ok() && d.Wait().ok()));
}

TEST_CASE("a cancellation under way ends the one and repeats the others") {
  Fixture f({.window_ns = kLongWindow, .max_requests = 2});
  Small a(0);
  Small b(100);
  f.batcher->Submit(a.job());
  f.batcher->Submit(b.job());
  REQUIRE(f.sink.held() == 1);
  f.batcher->Cancel(a.job(), Failed("not needed"));
  CHECK(a.Wait().message() == "not needed");
  f.sink.WaitForJobs(1);
  CHECK(f.sink.front() == b.job());
  // Alone now, it is cancelled like any other.
  f.batcher->Cancel(b.job(), Failed("nor this"));
  CHECK(b.Wait().message() == "nor this");
}

TEST_CASE("a failure is found out part by part") {
  Fixture f({.window_ns = kLongWindow, .max_requests = 3});
  Small good(0);
  Small bad(100);
  Small late(200);
  late->deadline_ns = 1;
  for (Small* small : {&good, &bad, &late}) f.batcher->Submit(small->job());
  CHECK(f.sink.front()->deadline_ns == 1);
  f.sink.EndOne(Timeout("a part ran out of time"));
  CHECK(ApiCodeOf(late.Wait()) == ApiCode::kTimeout);
  f.sink.WaitForJobs(2);
  CHECK(f.sink.front() == good.job());
  f.sink.EndOne(absl::OkStatus());
  f.sink.EndOne(ParamInvalid("range 5100+100 is not registered"));
  CHECK(good.Wait().ok());
  CHECK(ApiCodeOf(bad.Wait()) == ApiCode::kParamInvalid);
}

}  // namespace
}  // namespace hixld
