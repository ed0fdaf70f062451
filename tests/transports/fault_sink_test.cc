#include "tests/transports/fault_sink.h"

#include <catch2/catch.hpp>

#include "tests/transports/fake_transport.h"
#include "tests/transports/test_memory.h"

namespace hixld::testing {
namespace {

CopyPieces TenBytes(MappedMemory& local, MappedMemory& remote) {
  return {{.local = {&local, 0}, .remote = {&remote, 0}, .length = 10}};
}

TEST_CASE("each transfer meets the fault that was planned for it") {
  auto loop = Loop::Start({.name = "faults"});
  REQUIRE(loop.ok());
  FakeTransport fake;
  MappedMemory local(10);
  MappedMemory remote(10);
  FillRandom(remote.bytes(), 10, 1);
  using Action = FaultSink::Action;
  FaultSink sink(&fake, loop->get(), [](uint64_t n, const TransferJob&) -> FaultSink::Fault {
    switch (n) {
      case 0:
        return {.action = Action::kFail, .status = Failed("planned")};
      case 1:
        return {.action = Action::kDelay, .delay_ns = kNanosPerMilli};
      case 2:
      case 3:
        return {.action = Action::kDrop};
      case 4:
        return {.action = Action::kFailAfter, .status = Failed("after")};
      default:
        return {};
    }
  });

  TestTransfer fails(CopyDirection::kRead, TenBytes(local, remote));
  sink.Submit(fails.job());
  CHECK(fails.Wait().message() == "planned");
  CHECK(memcmp(local.bytes(), remote.bytes(), 10) != 0);

  TestTransfer delayed(CopyDirection::kRead, TenBytes(local, remote));
  sink.Submit(delayed.job());
  CHECK(delayed.Wait().ok());
  CHECK(memcmp(local.bytes(), remote.bytes(), 10) == 0);

  TestTransfer dropped(CopyDirection::kRead, TenBytes(local, remote));
  sink.Submit(dropped.job());
  sink.Cancel(dropped.job(), Failed("cancelled"));
  CHECK(dropped.Wait().message() == "cancelled");

  TestTransfer late(CopyDirection::kRead, TenBytes(local, remote));
  late.job()->deadline_ns = MonotonicNanos() + kNanosPerMilli;
  sink.Submit(late.job());
  CHECK(ApiCodeOf(late.Wait()) == ApiCode::kTimeout);

  TestTransfer copied(CopyDirection::kRead, TenBytes(local, remote));
  sink.Submit(copied.job());
  CHECK(copied.Wait().message() == "after");

  fake.Hold();
  TestTransfer passes(CopyDirection::kRead, TenBytes(local, remote));
  sink.Submit(passes.job());
  CHECK(fake.waiting() == 1);
  sink.Cancel(passes.job(), Failed("through"));
  CHECK(passes.Wait().message() == "through");
  CHECK(sink.submitted() == 6);
}

}  // namespace
}  // namespace hixld::testing
