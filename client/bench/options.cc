#include "client/bench/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/bench/parse.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixld::bench {
namespace {

constexpr uint64_t kMinute = 60 * kNanosPerSecond;
constexpr Bounds kBlockBounds = {1, uint64_t{64} << 30};
constexpr Bounds kBatchBounds = {1, 1 << 20};
constexpr Bounds kThreadBounds = {1, 256};
constexpr Bounds kDepthBounds = {1, 4096};
constexpr Bounds kMemoryBounds = {1 << 20, uint64_t{16} << 40};

constexpr char kAbout[] =
    "Measures what hixld moves per second and how long one transfer takes.\n"
    "  hixl-bench --self ...                     both sides on this machine\n"
    "  hixl-bench target [--engine ip:port]      one side; prints the other side's command\n"
    "  hixl-bench initiator --target ip:port ... the other side, which measures";
constexpr char kFooter[] =
    "Lists: values separated by commas; 4K..1M stands for every doubling.\n"
    "Exit codes: 0 good, 1 a transfer, a check or the other side failed, 2 wrong usage.\n"
    "See docs/performance.md.";

// Collects options whose text is checked by our own parsers; the first error wins.
class Parser {
 public:
  explicit Parser(const std::string& name) : app_(kAbout, name) {
    app_.footer(kFooter);
    app_.set_version_flag("--version", std::string("hixl-bench ") + kVersion);
  }

  using Take = std::function<absl::Status(const std::string& option, const std::string& text)>;

  CLI::Option* Add(const std::string& option, const std::string& help, const std::string& type,
                   Take take) {
    return app_
        .add_option_function<std::string>(
            option,
            [this, option, take = std::move(take)](const std::string& text) {
              if (absl::Status status = take(option, text); status_.ok()) status_ = status;
            },
            help)
        ->type_name(type);
  }
  CLI::Option* Text(const std::string& option, const std::string& help, const std::string& type,
                    std::string* out) {
    return Add(option, help, type, [out](const std::string& name, const std::string& text) {
      if (text.empty()) return ParamInvalid(absl::StrCat(name, ": is empty"), {.object = name});
      *out = text;
      return absl::OkStatus();
    });
  }
  template <typename T, typename Parse>
  CLI::Option* Value(const std::string& option, const std::string& help, const std::string& type,
                     Bounds bounds, Parse parse, T* out) {
    return Add(option, help, type,
               [out, bounds, parse](const std::string& name, const std::string& text) {
                 auto value = parse(name, text, bounds);
                 if (value.ok()) *out = static_cast<T>(*value);
                 return value.status();
               });
  }
  CLI::Option* List(const std::string& option, const std::string& help, const std::string& type,
                    Bounds bounds, NumberParser parse, std::vector<uint64_t>* out) {
    return Add(option, help, type,
               [out, bounds, parse](const std::string& name, const std::string& text) {
                 auto values = ParseList(name, text, bounds, parse);
                 if (values.ok()) *out = *values;
                 return values.status();
               });
  }
  template <typename T>
  CLI::Option* Choices(const std::string& option, const std::string& help,
                       const std::vector<std::string>& allowed, std::vector<T>* out) {
    return Add(option, absl::StrCat(help, ": ", absl::StrJoin(allowed, ", ")), "LIST",
               [out, &allowed](const std::string& name, const std::string& text) {
                 auto chosen = ParseChoices(name, text, allowed);
                 if (!chosen.ok()) return chosen.status();
                 out->clear();
                 for (const size_t index : *chosen) out->push_back(static_cast<T>(index));
                 return absl::OkStatus();
               });
  }
  template <typename T>
  CLI::Option* Choice(const std::string& option, const std::string& help,
                      const std::vector<std::string>& allowed, T* out) {
    return Add(option, absl::StrCat(help, ": ", absl::StrJoin(allowed, ", ")), "NAME",
               [out, &allowed](const std::string& name, const std::string& text) {
                 const auto chosen = ParseChoice(name, text, allowed);
                 if (chosen.ok()) *out = static_cast<T>(*chosen);
                 return chosen.status();
               });
  }
  CLI::Option* Flag(const std::string& option, const std::string& help, bool* out) {
    return app_.add_flag(option, *out, help);
  }

  void EngineGroup(EngineOptions* out, const std::string& engine_help) {
    Text("--engine", engine_help, "IP[:PORT]", &out->engine);
    Text("--socket", "The daemon's socket; else as the client library finds it", "PATH",
         &out->socket);
    Value("--device", "Logical device of the engine", "N", {0, 1023}, ParseCount, &out->device);
    Add("--setting", "Option of Hixl::Initialize; may be given several times", "KEY=VALUE",
        [out](const std::string& name, const std::string& text) {
          const size_t equals = text.find('=');
          if (equals == std::string::npos || equals == 0) {
            return ParamInvalid(absl::StrCat(name, ": \"", text, "\" is not allowed"),
                                {.object = name, .allowed = "KEY=VALUE"});
          }
          out->settings[text.substr(0, equals)] = text.substr(equals + 1);
          return absl::OkStatus();
        })
        ->trigger_on_parse();
  }

  bool Given(const std::string& option) const { return app_.get_option(option)->count() > 0; }

  // Parses; true when all is well, false when help or version was asked for (then in `text`).
  absl::StatusOr<bool> Parse(std::vector<std::string> arguments, std::string* text) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForHelp&) {
      *text = app_.help();
      return false;
    } catch (const CLI::CallForVersion& version) {
      *text = absl::StrCat(version.what(), "\n");
      return false;
    } catch (const CLI::ParseError& error) {
      return ParamInvalid(absl::StrCat(error.what(), " (--help lists all options)"));
    }
    if (!status_.ok()) return status_;
    return true;
  }

 private:
  CLI::App app_;
  absl::Status status_;
};

absl::Status Conflict(absl::string_view message) { return ParamInvalid(message); }

absl::Status CheckEngine(const EngineOptions& options) {
  if (options.engine.empty()) return absl::OkStatus();
  if (auto parsed = ParseEndpoint(options.engine); !parsed.ok()) {
    return Annotate(parsed.status(), "--engine");
  }
  return absl::OkStatus();
}

absl::Status CheckAddress(absl::string_view option, const std::string& address, bool any_port) {
  auto parsed = ParseEndpoint(address);
  if (any_port) return parsed.ok() ? absl::OkStatus() : Annotate(parsed.status(), option);
  if (parsed.ok() && parsed->listens()) return absl::OkStatus();
  const std::string why = parsed.ok() ? absl::StrCat("\"", address, "\" has no port")
                                      : std::string(parsed.status().message());
  return ParamInvalid(absl::StrCat(option, ": ", why),
                      {.object = std::string(option), .allowed = "IP:PORT, PORT from 1 to 65535"});
}

absl::StatusOr<CommandLine> ParseTarget(std::vector<std::string> arguments) {
  CommandLine line;
  TargetOptions& target = line.target;
  Parser parser("hixl-bench target");
  parser.EngineGroup(&target.engine, "Address of the engine (127.0.0.1, on a free port)");
  parser.Text("--listen", "Side channel for the initiator (the engine's address, a free port)",
              "IP[:PORT]", &target.listen);
  parser.Flag("--serve", "Wait for the next initiator when one has gone", &target.serve);
  parser.Value("--max-memory", "Most memory that an initiator may ask for (16G)", "SIZE",
               kMemoryBounds, ParseSize, &target.max_memory);
  parser
      .Value("--listen-fd", "Inherited listening socket", "FD", {3, 1 << 20}, ParseCount,
             &target.listen_fd)
      ->group("");
  HIXLD_ASSIGN_OR_RETURN(const bool run, parser.Parse(std::move(arguments), &line.text));
  if (!run) return line;
  line.role = CommandLine::Role::kTarget;
  HIXLD_RETURN_IF_ERROR(CheckEngine(target.engine));
  if (target.engine.engine.empty()) target.engine.engine = "127.0.0.1";
  if (!target.listen.empty()) {
    HIXLD_RETURN_IF_ERROR(CheckAddress("--listen", target.listen, true));
  }
  return line;
}

// What the options about a KV cache say.
struct KvOptions {
  std::string model;
  ModelGeometry geometry;
  uint64_t tokens = 4096;
  uint64_t block_tokens = 16;
  uint64_t tensor_parallel = 1;
};

constexpr const char* kGeometryOptions[] = {"--layers", "--heads", "--head-size"};

void AddSweepOptions(Parser& parser, InitiatorOptions& out) {
  parser.List("--block", "Bytes of a block (4K,64K,1M)", "SIZES", kBlockBounds, ParseSize,
              &out.blocks);
  parser.List("--batch", "Blocks in one transfer (1; the whole cache with --model)", "COUNTS",
              kBatchBounds, ParseCount, &out.batches);
  parser.List("--threads", "Threads that transfer, on one engine (1)", "COUNTS", kThreadBounds,
              ParseCount, &out.threads);
  parser.Choices("--op", "What to do (read,write); mix alternates them", OpNames(), &out.ops);
  parser.Choices("--layout", "Where blocks lie (contiguous)", LayoutNames(), &out.layouts);
  parser.Choices("--memory", "Memory on this side (pool)", MemoryNames(), &out.memory);
  parser.Choices("--target-memory", "Memory on the target's side (as --memory)", MemoryNames(),
                 &out.target_memory);
  parser.Choices("--path", "How small transfers within one daemon go (as HIXLD_DIRECT says)",
                 PathNames(), &out.paths);
  parser.Value("--working-set", "Bytes per thread over which transfers walk (one transfer's)",
               "SIZE", kMemoryBounds, ParseSize, &out.working_set);
  parser.Choice("--batch-as", "How batches are handed over (descriptors)", BatchFormNames(),
                &out.form);
  parser.List("--depth", "With --async: transfers under way per thread (16)", "COUNTS",
              kDepthBounds, ParseCount, &out.depths);
}

void AddKvOptions(Parser& parser, KvOptions& kv) {
  parser.Text("--model", "Move the KV cache of this model; \"list\" shows the known ones", "NAME",
              &kv.model);
  parser.Value("--tokens", "Tokens in the cache (4096)", "N", {1, 1 << 24}, ParseCount, &kv.tokens);
  parser.Value("--block-tokens", "Tokens in one block (16)", "N", {1, 65536}, ParseCount,
               &kv.block_tokens);
  parser.Value("--tp", "Ranks that share the KV heads (1)", "N", {1, 1024}, ParseCount,
               &kv.tensor_parallel);
  parser.Value("--layers", "Instead of --model: layers", "N", {1, 1024}, ParseCount,
               &kv.geometry.layers);
  parser.Value("--heads", "Instead of --model: KV heads", "N", {1, 1024}, ParseCount,
               &kv.geometry.kv_heads);
  parser.Value("--head-size", "Instead of --model: elements per head", "N", {1, 8192}, ParseCount,
               &kv.geometry.head_size);
  parser.Value("--dtype-bytes", "Bytes of an element (2)", "N", {1, 8}, ParseCount,
               &kv.geometry.dtype_bytes);
}

void AddMeasureOptions(Parser& parser, InitiatorOptions& out) {
  const Bounds times = {1000, 60 * kMinute};
  parser.Value("--warmup", "Time before the first round (200ms)", "TIME", {0, times.high},
               ParseDuration, &out.warmup);
  parser.Value("--duration", "Time of one round (500ms)", "TIME", times, ParseDuration,
               &out.duration);
  parser.Value("--iterations", "Transfers per thread and round, instead of --duration", "N",
               {1, uint64_t{1} << 40}, ParseCount, &out.iterations);
  parser.Value("--pause", "Between two transfers, not counted: lets everything fall asleep (0)",
               "TIME", {0, times.high}, ParseDuration, &out.pause);
  parser.Value("--rounds", "Rounds; reported is the median (5)", "N", {1, 1000}, ParseCount,
               &out.rounds);
  parser.Value("--timeout-ms", "Of one transfer (10000)", "N", {1, 3'600'000}, ParseCount,
               &out.timeout_ms);
  parser.Value("--seed", "Of patterns and random places (1)", "N", {0, UINT64_MAX}, ParseCount,
               &out.seed);
  parser.Flag("--check", "Verify every byte on the receiving side after each round", &out.check);
  parser.Choices("--baseline", "Measure these beside, in the same rounds", BaselineNames(),
                 &out.baselines);
  parser.Value("--streams", "Streams of the socket baseline; tcp.lanes of the daemon (2)", "N",
               {1, 64}, ParseCount, &out.streams);
  parser.Value("--memcpy-threads", "Threads of the memcpy baseline (as --threads)", "N",
               kThreadBounds, ParseCount, &out.memcpy_threads);
  parser.Text("--jsonl", "Append one JSON object per case to this file", "FILE", &out.jsonl);
  parser.Text("--label", "A word for each JSON line", "TEXT", &out.label);
  parser.Text("--plot", "Draw the results into this SVG file", "FILE", &out.plot);
  parser.Flag("--quiet", "No progress on standard error", &out.quiet);
}

std::string ModelList() {
  std::string text =
      absl::StrFormat("%-16s %6s %8s %9s\n", "model", "layers", "KV heads", "head size");
  for (const ModelGeometry& model : KnownModels()) {
    absl::StrAppendFormat(&text, "%-16s %6d %8s %9d\n", model.name, model.layers,
                          model.latent ? "latent" : absl::StrCat(model.kv_heads), model.head_size);
  }
  return text;
}

absl::Status ApplyKv(const Parser& parser, KvOptions& kv, InitiatorOptions& out) {
  const bool own = std::any_of(std::begin(kGeometryOptions), std::end(kGeometryOptions),
                               [&](const char* option) { return parser.Given(option); });
  if (kv.model.empty() && !own) {
    for (const char* option : {"--tokens", "--block-tokens", "--tp", "--dtype-bytes"}) {
      if (parser.Given(option)) {
        return Conflict(absl::StrCat(option,
                                     ": needs --model, or --layers with --heads and "
                                     "--head-size"));
      }
    }
    return absl::OkStatus();
  }
  if (parser.Given("--block")) return Conflict("--block: the size comes from the model; omit one");
  if (parser.Given("--working-set")) {
    return Conflict("--working-set: the blocks come from the model; omit one");
  }
  if (!kv.model.empty()) {
    if (own)
      return Conflict("--model: cannot be used together with --layers, --heads, --head-size");
    HIXLD_ASSIGN_OR_RETURN(ModelGeometry found, FindModel(kv.model));
    if (parser.Given("--dtype-bytes")) found.dtype_bytes = kv.geometry.dtype_bytes;
    kv.geometry = found;
  } else {
    for (const char* option : kGeometryOptions) {
      if (!parser.Given(option)) return Conflict(absl::StrCat(option, ": is missing"));
    }
    kv.geometry.name = "own";
  }
  HIXLD_ASSIGN_OR_RETURN(out.kv,
                         ShapeOf(kv.geometry, kv.tokens, kv.block_tokens, kv.tensor_parallel));
  out.kv_name = kv.geometry.name;
  out.blocks = {out.kv.block_bytes};
  if (!parser.Given("--batch")) out.batches = {out.kv.blocks()};
  if (!parser.Given("--layout")) out.layouts = {Layout::kScattered};
  return absl::OkStatus();
}

absl::Status CheckInitiator(const Parser& parser, InitiatorOptions& out, bool async, bool sync) {
  const auto printable = [](unsigned char c) { return c >= 0x20 && c < 0x7f; };
  if (!std::all_of(out.label.begin(), out.label.end(), printable)) {
    return ParamInvalid("--label: has bytes that are no printable ASCII",
                        {.object = "--label", .allowed = "printable ASCII"});
  }
  if (async && sync) return Conflict("--sync: cannot be used together with --async");
  if (parser.Given("--depth") && !async) return Conflict("--depth: needs --async");
  if (async && out.pause > 0) return Conflict("--pause: cannot be used together with --async");
  if (!async) out.depths = {0};
  if (async && !parser.Given("--depth")) out.depths = {16};
  if (parser.Given("--iterations") && parser.Given("--duration")) {
    return Conflict("--iterations: cannot be used together with --duration");
  }
  if (!out.self && out.one_process) return Conflict("--one-process: needs --self");
  if (!out.target_socket.empty() && (!out.self || out.one_process)) {
    return Conflict("--target-socket: needs --self without --one-process");
  }
  if (out.self == !out.target.empty()) {
    return Conflict(out.self ? "--target: cannot be used together with --self"
                             : "--target: is missing (IP:PORT, as the target prints it)");
  }
  if (!out.target.empty()) HIXLD_RETURN_IF_ERROR(CheckAddress("--target", out.target, false));
  return CheckEngine(out.engine);
}

absl::StatusOr<CommandLine> ParseInitiator(std::vector<std::string> arguments) {
  CommandLine line;
  InitiatorOptions& out = line.initiator;
  KvOptions kv;
  bool async = false;
  bool sync = false;
  Parser parser("hixl-bench");
  parser.Flag("--self", "Start the target too, as a second process", &out.self);
  parser.Flag("--one-process", "With --self: both engines in this process", &out.one_process);
  parser.Text("--target", "Side channel of the target", "IP:PORT", &out.target);
  parser.Text("--target-socket", "With --self: the daemon of the target", "PATH",
              &out.target_socket);
  parser.EngineGroup(&out.engine, "Address of the engine (the one that reaches the target)");
  AddSweepOptions(parser, out);
  parser.Flag("--sync", "Wait for each transfer (default)", &sync);
  parser.Flag("--async", "Keep several transfers under way", &async);
  AddKvOptions(parser, kv);
  AddMeasureOptions(parser, out);
  HIXLD_ASSIGN_OR_RETURN(const bool run, parser.Parse(std::move(arguments), &line.text));
  if (!run) return line;
  if (kv.model == "list") {
    line.text = ModelList();
    return line;
  }
  line.role = CommandLine::Role::kInitiator;
  HIXLD_RETURN_IF_ERROR(CheckInitiator(parser, out, async, sync));
  HIXLD_RETURN_IF_ERROR(ApplyKv(parser, kv, out));
  return line;
}

}  // namespace

const std::vector<std::string>& PathNames() {
  static const std::vector<std::string>& names = *new std::vector<std::string>{"direct", "ring"};
  return names;
}

const std::vector<std::string>& MemoryNames() {
  static const std::vector<std::string>& names =
      *new std::vector<std::string>{"pool", "memfd", "plain", "device"};
  return names;
}

const std::vector<std::string>& BaselineNames() {
  static const std::vector<std::string>& names =
      *new std::vector<std::string>{"memcpy", "socket", "grpc", "wake"};
  return names;
}

absl::StatusOr<CommandLine> ParseCommandLine(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "target") {
    arguments.erase(arguments.begin());
    return ParseTarget(std::move(arguments));
  }
  if (arguments.empty()) arguments.push_back("--help");
  if (arguments.front() == "initiator") {
    arguments.erase(arguments.begin());
  } else if (arguments.front().empty() || arguments.front().front() != '-') {
    return ParamInvalid(absl::StrCat("\"", arguments.front(), "\" is not a role"),
                        {.object = "role", .allowed = "target | initiator | --self"});
  }
  return ParseInitiator(std::move(arguments));
}

}  // namespace hixld::bench
