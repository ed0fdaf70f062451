#include "client/bench/target.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/bench/parse.h"
#include "client/bench/pattern.h"
#include "client/bench/pump.h"
#include "client/bench/text.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixld::bench {
namespace {

// How long a target that was started for one initiator waits for it.
constexpr int kOwnInitiatorTimeoutMs = 30'000;

absl::StatusOr<std::vector<uint64_t>> Numbers(absl::string_view text, size_t count) {
  std::vector<uint64_t> numbers;
  for (const absl::string_view field : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(field, &number)) return ParamInvalid(absl::StrCat("no number: ", field));
    numbers.push_back(number);
  }
  if (numbers.size() != count) return ParamInvalid(absl::StrCat(count, " numbers are needed"));
  return numbers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> Target::Create(const TargetOptions& options) {
  std::unique_ptr<Target> target(new Target(options));
  if (options.listen_fd >= 0) {
    target->listener_ = UniqueFd(options.listen_fd);
  } else {
    const bool as_engine = options.listen.empty();
    HIXLD_ASSIGN_OR_RETURN(const Endpoint address,
                           ParseEndpoint(as_engine ? options.engine.engine : options.listen));
    HIXLD_ASSIGN_OR_RETURN(target->listener_, Listen(as_engine ? address.WithPort(0) : address));
  }
  HIXLD_ASSIGN_OR_RETURN(const Endpoint bound, LocalAddress(target->listener_.get()));
  target->address_ = bound.ToString();
  HIXLD_ASSIGN_OR_RETURN(target->engine_, Engine::Create(options.engine, true));
  return target;
}

absl::Status Target::Serve() {
  while (true) {
    const absl::Status status = ServeOne();
    memory_.reset();
    if (!options_.serve) return status;
    if (!status.ok()) std::fprintf(stderr, "hixl-bench target: %s\n", ErrorText(status).c_str());
  }
}

absl::Status Target::ServeOne() {
  const int timeout = options_.listen_fd >= 0 ? kOwnInitiatorTimeoutMs : -1;
  HIXLD_ASSIGN_OR_RETURN(UniqueFd accepted, Accept(listener_.get(), timeout));
  LineSocket initiator(std::move(accepted));
  bool ended = false;
  while (!ended) {
    auto line = initiator.Receive(-1);
    if (!line.ok()) return Failed("the initiator has gone without an end");
    const auto answer = Obey(initiator, *line, ended);
    const std::string text = answer.ok() ? absl::StrCat("ok ", *answer)
                                         : absl::StrCat("error ", ErrorText(answer.status()));
    HIXLD_RETURN_IF_ERROR(initiator.Send(
        absl::StripTrailingAsciiWhitespace(absl::StrReplaceAll(text, {{"\n", " "}}))));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Target::Obey(LineSocket& initiator, const std::string& line,
                                         bool& ended) {
  absl::string_view rest = line;
  if (absl::ConsumePrefix(&rest, "hello ")) return Hello(rest);
  if (absl::ConsumePrefix(&rest, "memory ")) return TakeMemory(rest);
  if (absl::ConsumePrefix(&rest, "fill ")) return Fill(rest);
  if (absl::ConsumePrefix(&rest, "verify ")) return Verify(rest);
  if (absl::ConsumePrefix(&rest, "plan ")) {
    HIXLD_ASSIGN_OR_RETURN(const Plan plan, Plan::FromText(rest));
    if (memory_ == nullptr || plan.RegionBytes() > memory_->size()) {
      return ParamInvalid("the plan needs more memory than there is");
    }
    plan_ = plan;
    return std::string();
  }
  if (absl::ConsumePrefix(&rest, "pump ")) {
    HIXLD_ASSIGN_OR_RETURN(const PumpOrder order, PumpOrder::FromText(rest));
    HIXLD_RETURN_IF_ERROR(ServePump(initiator, order));
    return std::string();
  }
  if (line == "free") {
    memory_.reset();
    return std::string();
  }
  if (line == "end") {
    ended = true;
    return std::string();
  }
  return ParamInvalid(absl::StrCat("unknown line \"", line, "\""));
}

absl::StatusOr<std::string> Target::Hello(absl::string_view version) {
  if (version != kVersion) {
    return Unsupported(absl::StrCat("this is hixl-bench ", kVersion, ", the initiator is ", version,
                                    "; both sides need one release"));
  }
  return engine_->id();
}

absl::StatusOr<std::string> Target::TakeMemory(absl::string_view fields) {
  std::string kind_name;
  uint64_t bytes = 0;
  for (absl::string_view field : absl::StrSplit(fields, ' ', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&field, "kind=")) kind_name = std::string(field);
    if (absl::ConsumePrefix(&field, "bytes=") && !absl::SimpleAtoi(field, &bytes)) bytes = 0;
  }
  HIXLD_ASSIGN_OR_RETURN(const size_t kind, ParseChoice("kind", kind_name, MemoryNames()));
  if (bytes == 0 || bytes > options_.max_memory) {
    return ResourceExhausted(
        absl::StrCat(bytes, " bytes are more than this target gives"),
        {.limit = absl::StrCat(options_.max_memory, " bytes"), .option = "--max-memory"});
  }
  memory_.reset();
  plan_ = {};
  HIXLD_ASSIGN_OR_RETURN(memory_, Memory::Create(*engine_, static_cast<MemoryKind>(kind), bytes));
  HIXLD_RETURN_IF_ERROR(memory_->Register());
  return absl::StrCat(memory_->address());
}

absl::Status Target::CheckUsable() const {
  if (memory_ == nullptr || plan_.RegionBytes() > memory_->size()) {
    return Failed("there is no memory for a plan yet");
  }
  if (memory_->data() == nullptr) return Unsupported("the host cannot touch this memory");
  return absl::OkStatus();
}

absl::StatusOr<std::string> Target::Fill(absl::string_view fields) {
  HIXLD_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, Numbers(fields, 1));
  HIXLD_RETURN_IF_ERROR(CheckUsable());
  FillPattern(numbers[0], memory_->data(), plan_.RegionBytes());
  return std::string();
}

absl::StatusOr<std::string> Target::Verify(absl::string_view fields) {
  HIXLD_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, Numbers(fields, 2));
  HIXLD_RETURN_IF_ERROR(CheckUsable());
  HIXLD_RETURN_IF_ERROR(
      VerifyRegion(plan_, Side::kRemote, numbers[0], numbers[1], memory_->data()));
  return std::string();
}

}  // namespace hixld::bench
