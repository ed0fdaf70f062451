// A relayed transfer in rounds of what its buffers hold.
#include "daemon/engine/relay_rounds.h"

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <vector>

#include "proto/base/status.h"
#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

struct Fixture {
  Fixture() {
    auto started = Loop::Start({.name = "rounds-test"});
    REQUIRE(started.ok());
    loop = std::move(*started);
    sink.Hold();
    rounds = std::make_shared<RelayRounds>(std::make_shared<LocalRoute>(&sink), /*round_bytes=*/100,
                                           loop.get(), &next_id);
    job->id = 7;
    job->direction = CopyDirection::kRead;
    job->deadline_ns = 12345;
    // 250 bytes in three pieces: rounds of 100, 100 and 50.
    uint64_t offset = 0;
    for (const uint64_t length : {uint64_t{30}, uint64_t{200}, uint64_t{20}}) {
      job->pieces.push_back(
          {.local = {&memory, offset}, .remote_address = 5000 + offset, .length = length});
      offset += length;
      job->bytes += length;
    }
    job->done = [this](absl::Status status) { ended.set_value(std::move(status)); };
  }
  // The round that is under way; the sink ends it with `status`.
  CopyPieces Next(const absl::Status& status = absl::OkStatus()) {
    sink.WaitForJobs(1);
    const auto round = sink.front();
    const CopyPieces pieces = round->pieces;
    CHECK(round->id > 1000);
    CHECK(round->deadline_ns == 12345);
    CHECK(round->direction == CopyDirection::kRead);
    sink.EndOne(status);
    return pieces;
  }

  TestMemory memory{1000};
  FakeSink sink;
  std::atomic<uint64_t> next_id{1001};
  std::unique_ptr<Loop> loop;
  std::shared_ptr<RelayRounds> rounds;
  std::shared_ptr<TransferJob> job = std::make_shared<TransferJob>();
  std::promise<absl::Status> ended;
};

TEST_CASE("pieces are packed and split, one round after the other") {
  Fixture f;
  f.rounds->Submit(f.job);
  auto round = f.Next();
  REQUIRE(round.size() == 2);
  CHECK(round[0].length == 30);
  CHECK(round[1].length == 70);
  CHECK(round[1].local.offset == 30);
  round = f.Next();
  REQUIRE(round.size() == 1);
  CHECK(round[0].local.offset == 100);
  CHECK(round[0].remote_address == 5100);
  CHECK(round[0].length == 100);
  round = f.Next();
  REQUIRE(round.size() == 2);
  CHECK(round[0].length == 30);
  CHECK(round[1].local.offset == 230);
  CHECK(round[1].length == 20);
  CHECK(f.ended.get_future().get().ok());
  CHECK(f.job->bytes_done == 250);
}

TEST_CASE("a round that fails is the last one; what moved before is told") {
  Fixture f;
  f.rounds->Submit(f.job);
  const bool first = GENERATE(true, false);
  if (!first) f.Next();
  f.Next(ParamInvalid("not registered"));
  CHECK(ApiCodeOf(f.ended.get_future().get()) == ApiCode::kParamInvalid);
  CHECK(f.job->moved == !first);
  CHECK(f.sink.held() == 0);
}

TEST_CASE("a cancelled transfer ends when its round has ended") {
  Fixture f;
  f.rounds->Submit(f.job);
  f.sink.WaitForJobs(1);
  f.rounds->Cancel(std::make_shared<TransferJob>(), Failed("somebody else"));
  f.rounds->Cancel(f.job, Failed("enough"));
  const absl::Status status = f.ended.get_future().get();
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK(std::string(status.message()) == "enough");
}

}  // namespace
}  // namespace hixld
