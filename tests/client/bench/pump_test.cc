#include "client/bench/pump.h"

#include <catch2/catch.hpp>

#include "client/bench/text.h"
#include "client/bench/threads.h"
#include "proto/base/clock.h"

namespace hixld::bench {
namespace {

struct Pair {
  LineSocket initiator{UniqueFd()};
  LineSocket target{UniqueFd()};
};

Pair Connected() {
  auto listener = Listen(*ParseEndpoint("127.0.0.1"));
  REQUIRE(listener.ok());
  auto connected = ConnectTo(*LocalAddress(listener->get()));
  REQUIRE(connected.ok());
  auto accepted = Accept(listener->get(), 10'000);
  REQUIRE(accepted.ok());
  return {LineSocket(std::move(*connected)), LineSocket(std::move(*accepted))};
}

TEST_CASE("lines go both ways, also several at once") {
  Pair pair = Connected();
  REQUIRE(pair.initiator.Send("one\ntwo").ok());
  CHECK(*pair.target.Receive(1000) == "one");
  CHECK(*pair.target.Receive(1000) == "two");
  CHECK(!pair.target.Receive(1).ok());
}

TEST_CASE("answers: ok with and without text, an error, and nonsense") {
  Pair pair = Connected();
  REQUIRE(pair.target.Send("ok\nok 17\nerror no memory\nhm").ok());
  CHECK(*pair.initiator.Answer() == "");
  CHECK(*pair.initiator.Answer() == "17");
  CHECK(ErrorText(pair.initiator.Answer().status()) == "target: no memory");
  CHECK(!pair.initiator.Answer().ok());
}

TEST_CASE("the other side's end is noticed") {
  Pair pair = Connected();
  CHECK(!pair.initiator.PeerGone(0));
  pair.target = LineSocket(UniqueFd());
  CHECK(pair.initiator.PeerGone(10'000));
  CHECK(ErrorText(pair.initiator.Ask("hello").status()).find("side channel") == 0);
}

TEST_CASE("bytes are pumped both ways, with and without copying") {
  for (const bool towards_initiator : {false, true}) {
    for (const bool zero_copy : {false, true}) {
      Pair pair = Connected();
      const PumpOrder order = {2, towards_initiator, zero_copy, 5 * kNanosPerMilli};
      Threads threads;
      absl::Status served;
      threads.Start([&] {
        const auto line = pair.target.Receive(10'000);
        const auto parsed = PumpOrder::FromText(*line);
        served = ServePump(pair.target, *parsed);
        if (!pair.target.Send("ok").ok()) served = absl::InternalError("answer");
      });
      const auto rate = RunPump(pair.initiator, order);
      threads.Join();
      CHECK(ErrorText(served) == "");
      INFO(ErrorText(rate.status()));
      REQUIRE(rate.ok());
      CHECK(*rate > 0);
    }
  }
}

TEST_CASE("a pump's order survives its text, a bad one is refused") {
  const PumpOrder order = {3, true, true, 12345};
  CHECK(PumpOrder::FromText(order.ToText())->ToText() == order.ToText());
  for (const char* text :
       {"streams=0", "streams=65", "streams=x", "speed=1", "duration=9999999999999999"}) {
    INFO(text);
    CHECK(!PumpOrder::FromText(text).ok());
  }
}

}  // namespace
}  // namespace hixld::bench
