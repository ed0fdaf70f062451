#include "client/bench/options.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"
#include "client/bench/sweep.h"
#include "client/bench/text.h"

namespace hixld::bench {
namespace {

absl::StatusOr<CommandLine> Parse(const std::string& line) {
  return ParseCommandLine(absl::StrSplit(line, ' ', absl::SkipEmpty()));
}

InitiatorOptions Initiator(const std::string& line) {
  auto parsed = Parse(line);
  INFO(line << ": " << ErrorText(parsed.status()));
  REQUIRE(parsed.ok());
  REQUIRE(parsed->role == CommandLine::Role::kInitiator);
  return parsed->initiator;
}

std::string Refusal(const std::string& line) {
  const auto parsed = Parse(line);
  INFO(line);
  REQUIRE(!parsed.ok());
  return ErrorText(parsed.status());
}

TEST_CASE("the roles are told apart") {
  CHECK(Parse("target")->role == CommandLine::Role::kTarget);
  CHECK(Parse("initiator --target 127.0.0.1:1")->role == CommandLine::Role::kInitiator);
  CHECK(Parse("--self")->role == CommandLine::Role::kInitiator);
  CHECK(Parse("")->role == CommandLine::Role::kShown);
  CHECK(Parse("--help")->text.find("--baseline") != std::string::npos);
  CHECK(Parse("target --help")->text.find("--serve") != std::string::npos);
  CHECK(Parse("--version")->text.find("hixl-bench ") == 0);
  CHECK(Refusal("client").find("target | initiator | --self") != std::string::npos);
}

TEST_CASE("paths are measured one after the other, and none is told without the option") {
  const auto plain = MakeSweep(Initiator("--self --block 4K --memory pool,memfd"));
  REQUIRE(plain->size() == 2);
  CHECK_FALSE(plain->front().path.has_value());
  const auto groups =
      MakeSweep(Initiator("--self --block 4K --memory pool,memfd --path direct,ring"));
  REQUIRE(groups->size() == 4);
  CHECK((*groups)[0].path == Path::kDirect);
  CHECK((*groups)[1].path == Path::kDirect);
  CHECK((*groups)[2].path == Path::kRing);
  CHECK((*groups)[3].cases.front().path == Path::kRing);
  CHECK(Refusal("--self --path fast").find("--path: \"fast\" is not allowed") == 0);
}

TEST_CASE("a label is a word that JSON can hold") {
  std::vector<std::string> arguments = {"--self", "--label", "a\xff"};
  const auto line = ParseCommandLine(arguments);
  REQUIRE(!line.ok());
  CHECK(std::string(line.status().message()).find("--label") == 0);
}

TEST_CASE("a sweep takes lists") {
  const InitiatorOptions options = Initiator(
      "--self --block 4K,1MiB --batch 1,32 --threads 1..4 --op mix --async --depth 4,8 "
      "--memory pool,plain --target-memory memfd --layout shuffled --check --batch-as arrays "
      "--baseline grpc,memcpy");
  CHECK(options.blocks == std::vector<uint64_t>{4096, 1 << 20});
  CHECK(options.batches == std::vector<uint64_t>{1, 32});
  CHECK(options.threads == std::vector<uint64_t>{1, 2, 4});
  CHECK(options.depths == std::vector<uint64_t>{4, 8});
  CHECK(options.memory == std::vector<MemoryKind>{MemoryKind::kPool, MemoryKind::kPlain});
  CHECK(options.baselines == std::vector<Baseline>{Baseline::kGrpc, Baseline::kMemcpy});
  CHECK(options.check);
  CHECK(options.form == BatchForm::kArrays);
  const auto groups = MakeSweep(options);
  REQUIRE(groups.ok());
  REQUIRE(groups->size() == 2);
  CHECK((*groups)[0].cases.size() == 2 * 3 * 2 * 2);
  CHECK((*groups)[1].memory == MemoryKind::kPlain);
  CHECK((*groups)[1].target_memory == MemoryKind::kMemfd);
}

TEST_CASE("without --target-memory both sides have one kind") {
  const auto groups = MakeSweep(Initiator("--self --memory pool,plain"));
  REQUIRE(groups->size() == 2);
  for (const MemoryGroup& group : *groups) CHECK(group.memory == group.target_memory);
}

TEST_CASE("sync is the default, async has a default depth") {
  CHECK(Initiator("--self").depths == std::vector<uint64_t>{0});
  CHECK(Initiator("--self --async").depths == std::vector<uint64_t>{16});
}

TEST_CASE("wrong values name the option and what is allowed") {
  CHECK(Refusal("--self --block 0").find("--block: \"0\"") == 0);
  CHECK(Refusal("--self --memory hbm").find("pool | memfd | plain | device") != std::string::npos);
  CHECK(Refusal("--self --op erase").find("read | write | mix") != std::string::npos);
  CHECK(Refusal("--self --baseline iperf").find("memcpy | socket | grpc | wake") !=
        std::string::npos);
  CHECK(Refusal("--self --layout tiled").find("contiguous | scattered") != std::string::npos);
  CHECK(Refusal("--self --threads 0").find("1..256") != std::string::npos);
  CHECK(Refusal("--self --duration 5").find("--duration") == 0);
  CHECK(Refusal("--self --engine localhost").find("--engine") == 0);
  CHECK(Refusal("initiator --target 10.0.0.1").find("no port") != std::string::npos);
  CHECK(Refusal("target --listen here:1").find("--listen") == 0);
  CHECK(Refusal("--self --setting X").find("KEY=VALUE") != std::string::npos);
  CHECK(Refusal("--self --colour red").find("--colour") != std::string::npos);
  CHECK(Refusal("target --block 4K").find("--block") != std::string::npos);
}

TEST_CASE("options that contradict each other are refused") {
  CHECK(Refusal("initiator").find("--target: is missing") == 0);
  CHECK(Refusal("--self --target 127.0.0.1:1").find("--target") == 0);
  CHECK(Refusal("initiator --target 127.0.0.1:1 --one-process").find("--one-process") == 0);
  CHECK(Refusal("initiator --one-process").find("--one-process: needs --self") == 0);
  CHECK(Refusal("initiator --target-socket /a").find("--target-socket: needs --self") == 0);
  CHECK(Refusal("initiator --target 127.0.0.1:99999").find("PORT from 1 to 65535") !=
        std::string::npos);
  CHECK(Refusal("initiator --target 127.0.0.1").find("has no port") != std::string::npos);
  CHECK(Refusal("--self --depth 4").find("--depth: needs --async") == 0);
  CHECK(Refusal("--self --async --pause 1ms").find("--pause") == 0);
  CHECK(Refusal("--self --sync --async").find("--sync") == 0);
  CHECK(Refusal("--self --iterations 5 --duration 1s").find("--iterations") == 0);
  CHECK(Refusal("--self --tokens 5").find("--tokens: needs --model") == 0);
  CHECK(Refusal("--self --model qwen3-8b --block 4K").find("--block") == 0);
  CHECK(Refusal("--self --model qwen3-8b --layers 4").find("--model") == 0);
  CHECK(Refusal("--self --layers 4 --heads 2").find("--head-size: is missing") == 0);
  CHECK(Refusal("--self --target-socket /a --one-process").find("--target-socket") == 0);
}

TEST_CASE("a model gives block size, batch and layout") {
  const InitiatorOptions options = Initiator("--self --model Llama-3-8B --tokens 4096");
  CHECK(options.blocks == std::vector<uint64_t>{32768});
  CHECK(options.batches == std::vector<uint64_t>{64 * 256});
  CHECK(options.layouts == std::vector<Layout>{Layout::kScattered});
  const auto groups = MakeSweep(options);
  REQUIRE(groups.ok());
  const Plan& plan = groups->front().cases.front().plan;
  CHECK(plan.tensors == 64);
  CHECK(plan.blocks_per_tensor == 256);
  CHECK(plan.transfers_per_thread() == 1);
  CHECK(Parse("--self --model list")->text.find("deepseek-v3") != std::string::npos);
}

TEST_CASE("a geometry of one's own is as good as a model") {
  const InitiatorOptions options =
      Initiator("--self --layers 2 --heads 4 --head-size 64 --dtype-bytes 1 --tokens 17 --batch 3");
  CHECK(options.kv.tensors == 4);
  CHECK(options.kv.blocks_per_tensor == 2);
  CHECK(options.kv.block_bytes == 16 * 4 * 64);
  CHECK(options.batches == std::vector<uint64_t>{3});
}

TEST_CASE("mix needs two transfers") {
  const auto groups = MakeSweep(Initiator("--self --model qwen3-8b --op mix"));
  REQUIRE(!groups.ok());
  CHECK(ErrorText(groups.status()).find("--op mix") == 0);
  CHECK(MakeSweep(Initiator("--self --model qwen3-8b --op mix --batch 64")).ok());
  CHECK(
      MakeSweep(Initiator("--self --op mix"))->front().cases.front().plan.transfers_per_thread() ==
      2);
}

TEST_CASE("the working set makes a pass longer") {
  const auto groups = MakeSweep(Initiator("--self --block 64K --batch 4 --working-set 16M"));
  CHECK(groups->front().cases.front().plan.transfers_per_thread() == 64);
}

TEST_CASE("the target's options") {
  const auto parsed = Parse(
      "target --engine 10.0.0.1:5000 --listen 10.0.0.1 --serve --max-memory 2G --setting A=b=c "
      "--setting B= --device 1 --socket /run/x");
  REQUIRE(parsed.ok());
  CHECK(parsed->target.engine.engine == "10.0.0.1:5000");
  CHECK(parsed->target.serve);
  CHECK(parsed->target.max_memory == uint64_t{2} << 30);
  CHECK(parsed->target.engine.settings.at("A") == "b=c");
  CHECK(parsed->target.engine.settings.at("B").empty());
  CHECK(parsed->target.engine.device == 1);
}

}  // namespace
}  // namespace hixld::bench
