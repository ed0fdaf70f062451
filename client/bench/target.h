// The target's role: an engine whose memory the initiator reads and writes, steered by the
// initiator over the side channel.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/bench/engine.h"
#include "client/bench/options.h"
#include "client/bench/plan.h"
#include "client/bench/side_channel.h"
#include "proto/base/fd.h"

namespace hixld::bench {

class Target {
 public:
  static absl::StatusOr<std::unique_ptr<Target>> Create(const TargetOptions& options);

  // "ip:port" of the side channel.
  const std::string& address() const { return address_; }
  const std::string& engine_id() const { return engine_->id(); }

  // Serves until an initiator says "end"; with options.serve, one after the other for ever.
  // FAILED when an initiator goes without a word.
  absl::Status Serve();

 private:
  explicit Target(const TargetOptions& options) : options_(options) {}
  absl::Status ServeOne();
  // The answer to one line; `ended` becomes true for "end".
  absl::StatusOr<std::string> Obey(LineSocket& initiator, const std::string& line, bool& ended);
  absl::StatusOr<std::string> Hello(absl::string_view version);
  absl::StatusOr<std::string> TakeMemory(absl::string_view fields);
  // Whether the host can fill and read what the plan needs.
  absl::Status CheckUsable() const;
  absl::StatusOr<std::string> Fill(absl::string_view fields);
  absl::StatusOr<std::string> Verify(absl::string_view fields);

  const TargetOptions options_;
  std::unique_ptr<Engine> engine_;
  UniqueFd listener_;
  std::string address_;
  std::unique_ptr<Memory> memory_;
  Plan plan_;
};

}  // namespace hixld::bench
