// A subcommand: what it asks the daemon and how it shows the answer. One file per subcommand.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/hixlctl/admin_client.h"

namespace CLI {
class App;
}

namespace hixld::hixlctl {

using Words = std::vector<std::pair<std::string, std::string>>;

// An answer, ready for people and for programs.
struct Output {
  // For people; lines end with a newline.
  std::string text;
  // For programs: `words` and the fields of `message` (under `json_name`, unless that is empty).
  Words words;
  std::shared_ptr<const google::protobuf::Message> message;
  std::string json_name;
  int exit_code = 0;
  // A list of objects, unless the name is empty.
  std::string rows_name = {};
  std::vector<Words> rows = {};
};

using Action = std::function<absl::StatusOr<Output>(AdminClient&)>;

struct Command {
  const char* name;
  const char* help;
  // --watch makes sense.
  bool watchable;
  // Adds the subcommand's own options to `app` and returns what to do after parsing.
  Action (*prepare)(CLI::App& app);
};

Action PrepareStatus(CLI::App& app);
Action PrepareSessions(CLI::App& app);
Action PrepareEngines(CLI::App& app);
Action PrepareRegions(CLI::App& app);
Action PrepareLinks(CLI::App& app);
Action PrepareTransfers(CLI::App& app);
Action PrepareDevices(CLI::App& app);
Action PreparePools(CLI::App& app);
Action PrepareHealth(CLI::App& app);
Action PrepareDoctor(CLI::App& app);
Action PrepareVersion(CLI::App& app);
Action PrepareCompletion(CLI::App& app);

// The output for one answer of the daemon.
template <typename Response>
Output AnswerOutput(std::string text, Response response, std::string json_name = "") {
  return {.text = std::move(text),
          .words = {},
          .message = std::make_shared<const Response>(std::move(response)),
          .json_name = std::move(json_name)};
}

}  // namespace hixld::hixlctl
