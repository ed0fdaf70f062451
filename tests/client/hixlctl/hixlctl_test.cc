// The real hixlctl against a fake daemon.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proto/base/version.h"
#include "tests/client/hixlctl/fake_daemon.h"
#include "tests/client/hixlctl/run_command.h"

namespace hixld::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using nlohmann::json;

constexpr char kBinary[] = "client/hixlctl/hixlctl";

CommandResult Ctl(const std::string& socket, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {kBinary, "--socket", socket});
  return RunCommand(arguments);
}

// The answer to a good call.
std::string Out(const FakeDaemon& daemon, std::vector<std::string> arguments) {
  const CommandResult result = Ctl(daemon.socket(), std::move(arguments));
  CHECK(result.err == "");
  CHECK(result.exit_code == 0);
  return result.out;
}

json Json(const FakeDaemon& daemon, std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const json document = json::parse(Out(daemon, std::move(arguments)));
  CHECK(document["version"] == 1);
  return document;
}

FakeDaemon::Answers FullAnswers() {
  FakeDaemon::Answers answers;
  answers.status.set_version("9.8.7");
  answers.status.set_pid(4711);
  answers.status.set_uptime_ms(7'500'000);
  answers.status.set_socket_path("/run/hixld/hixld.sock");
  answers.status.set_security("cluster key");
  answers.status.set_registered_bytes(3ULL << 30);
  answers.status.set_transfers_timed_out(5);

  auto* const session = answers.sessions.add_sessions();
  session->set_session_id(3);
  session->set_pid(815);
  session->set_client_name("vllm \x1b[31mworker");
  session->set_state("stuck");
  session->set_detail("device 0 does not answer");

  auto* const engine = answers.engines.add_engines();
  engine->set_engine_id("10.0.0.1:26000");
  engine->set_listen_port(26000);
  (*engine->mutable_options())["BufferPool"] = "4:8";
  auto* const channel = engine->add_channels();
  channel->set_remote_engine("10.0.0.2:26000");
  channel->set_transport("tcp");
  channel->set_initiator(true);
  channel->set_bytes(1536);

  auto* const region = answers.regions.add_regions();
  region->set_region_id(12);
  region->set_engine_id("10.0.0.1:26000");
  region->set_address(0x7f0000001000);
  region->set_length(4096);
  region->set_type(hixl::v1::MEMORY_TYPE_HOST);
  region->set_access(hixl::v1::MEMORY_ACCESS_MAPPED);

  auto* const link = answers.links.add_links();
  link->set_peer_address("10.0.0.2");
  link->set_state("up");
  link->set_transport("tcp");
  auto* const lane = link->add_lanes();
  lane->set_index(1);
  lane->set_remote_address("10.0.0.2:40001");
  lane->set_bytes_sent(2048);

  auto* const transfer = answers.transfers.add_active();
  transfer->set_transfer_id(99);
  transfer->set_op(hixl::v1::TRANSFER_OP_READ);
  transfer->set_state(hixl::v1::TRANSFER_STATE_WAITING);
  transfer->set_bytes(1000);
  transfer->set_bytes_done(250);
  transfer->set_deadline_ms(-1);
  auto* const failure = answers.transfers.add_recent_failures();
  failure->mutable_transfer()->set_transfer_id(98);
  failure->mutable_transfer()->set_state(hixl::v1::TRANSFER_STATE_TIMEOUT);
  failure->set_message("peer 10.0.0.2 is silent");
  failure->set_ago_ms(2500);

  auto* const device = answers.devices.add_devices();
  device->set_backend("sim");
  device->set_product("Ascend910B3");
  device->set_memory_bytes(1ULL << 30);
  device->add_capabilities("allocate");
  device->add_capabilities("copy");

  auto* const pool = answers.pools.add_pools();
  pool->set_name("host");
  pool->set_capacity_bytes(8ULL << 30);
  pool->set_huge_pages(true);
  return answers;
}

TEST_CASE("tables show what the daemon answers") {
  const FakeDaemon daemon(FullAnswers());
  CHECK_THAT(Out(daemon, {"status"}), StartsWith("hixld       9.8.7, pid 4711, up 2h 05m\n") &&
                                          Contains("cluster key") && Contains("3 GiB registered") &&
                                          Contains("5 timed out"));
  CHECK_THAT(Out(daemon, {"sessions"}), Contains("815") && Contains("vllm ?[31mworker") &&
                                            Contains("stuck: device 0 does not answer"));
  CHECK_THAT(Out(daemon, {"engines"}), Contains("10.0.0.1:26000") && Contains("10.0.0.2:26000") &&
                                           Contains("initiator") && Contains("1.5 KiB") &&
                                           !Contains("BufferPool"));
  CHECK_THAT(Out(daemon, {"engines", "--options"}), Contains("BufferPool"));
  CHECK_THAT(Out(daemon, {"regions"}), Contains("0x7f0000001000") && Contains("4096") &&
                                           Contains("host") && Contains("mapped"));
  CHECK_THAT(Out(daemon, {"links"}), Contains("10.0.0.2:40001") && Contains("2 KiB"));
  CHECK_THAT(Out(daemon, {"transfers"}), Contains("25%") && Contains("none") &&
                                             Contains("2.5 s ago") && Contains("timeout") &&
                                             Contains("peer 10.0.0.2 is silent"));
  CHECK_THAT(Out(daemon, {"devices"}), Contains("Ascend910B3") && Contains("allocate copy"));
  CHECK_THAT(Out(daemon, {"pools"}), Contains("8 GiB") && Contains("yes"));
}

TEST_CASE("an idle daemon is told from an empty screen") {
  const FakeDaemon daemon({});
  CHECK(Out(daemon, {"sessions"}) == "No sessions.\n");
  CHECK(Out(daemon, {"engines"}) == "No engines.\n");
  CHECK(Out(daemon, {"regions"}) == "No regions.\n");
  CHECK(Out(daemon, {"links"}) == "No links.\n");
  CHECK(Out(daemon, {"transfers"}) == "No transfers under way.\n");
  CHECK(Out(daemon, {"devices"}) == "No devices.\n");
  CHECK(Out(daemon, {"pools"}) == "No pools.\n");
}

TEST_CASE("json has stable names for every subcommand") {
  const FakeDaemon daemon(FullAnswers());
  CHECK(Json(daemon, {"status"})["status"]["pid"] == 4711);
  CHECK(Json(daemon, {"status"})["status"]["version"] == "9.8.7");
  CHECK(Json(daemon, {"sessions"})["sessions"][0]["session_id"] == 3);
  CHECK(Json(daemon, {"engines"})["engines"][0]["channels"][0]["bytes"] == 1536);
  CHECK(Json(daemon, {"regions"})["regions"][0]["address"] == 0x7f0000001000);
  CHECK(Json(daemon, {"links"})["links"][0]["lanes"][0]["bytes_sent"] == 2048);
  CHECK(Json(daemon, {"transfers"})["active"][0]["op"] == "read");
  CHECK(Json(daemon, {"transfers"})["recent_failures"][0]["transfer"]["state"] == "timeout");
  CHECK(Json(daemon, {"devices"})["devices"][0]["capabilities"] == json({"allocate", "copy"}));
  CHECK(Json(daemon, {"pools"})["pools"][0]["huge_pages"] == true);
  CHECK(Json(daemon, {"health"})["health"] == "serving");
  CHECK(Json(daemon, {"version"})["hixld"] == "9.8.7");
  CHECK(Json(daemon, {"version"})["hixlctl"] == kVersion);
}

TEST_CASE("regions of one engine are asked for by name") {
  const FakeDaemon daemon(FullAnswers());
  Out(daemon, {"regions", "--engine", "[::1]:5"});
  CHECK(daemon.last_region_engine() == "[::1]:5");
  Out(daemon, {"regions"});
  CHECK(daemon.last_region_engine().empty());
}

TEST_CASE("health follows the daemon") {
  FakeDaemon daemon({});
  CHECK(Out(daemon, {"health"}) == "serving\n");
  daemon.SetServing(false);
  const CommandResult result = Ctl(daemon.socket(), {"health"});
  CHECK(result.exit_code == 1);
  CHECK(result.out == "not serving\n");
}

TEST_CASE("no daemon is one line that names the path and what to do, and code 3") {
  const std::string path = "/tmp/hixlctl-none/h.sock";
  const CommandResult result = Ctl(path, {"status"});
  CHECK(result.exit_code == 3);
  CHECK(result.out.empty());
  CHECK(result.err == "hixlctl: no daemon at " + path +
                          " (No such file or directory); start it (systemctl start hixld, or hixld "
                          "--socket " +
                          path + "), or name another socket with --socket or HIXLD_SOCKET\n");
}

TEST_CASE("a socket that nobody listens on, and what is no socket") {
  const FakeDaemon other({});
  const std::string stale = other.directory() + "/stale.sock";
  {
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, stale.c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  const CommandResult result = Ctl(stale, {"status"});
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.err, Contains("a socket is left, but nobody listens"));

  const CommandResult directory = Ctl(other.directory(), {"status"});
  CHECK(directory.exit_code == 3);
  CHECK_THAT(directory.err, Contains("not a socket"));
  CHECK_THAT(Ctl("/" + std::string(200, 'x'), {"status"}).err, Contains("allowed: 1..107"));
}

TEST_CASE("a socket of somebody else is told apart, with code 4") {
  const FakeDaemon daemon({});
  fs::permissions(daemon.socket(), fs::perms(0600));
  // As another user; its files must be where that user may read them.
  const std::string binary = daemon.directory() + "/hixlctl";
  fs::copy_file(kBinary, binary);
  std::vector<std::string> command = {binary, "--socket", daemon.socket(), "status"};
  if (geteuid() == 0) {
    command.insert(command.begin(),
                   {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  } else {
    fs::permissions(daemon.socket(), fs::perms(0));
  }
  const CommandResult result = RunCommand(command);
  CHECK(result.exit_code == 4);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, StartsWith("hixlctl: no access to " + daemon.socket() +
                                    ": Permission denied; it has mode 0"));
}

TEST_CASE("an error of the daemon is one line and code 1") {
  FakeDaemon::Answers answers;
  answers.regions_error = "unknown engine\nx; allowed: those of hixlctl engines";
  const FakeDaemon daemon(answers);
  const CommandResult result = Ctl(daemon.socket(), {"regions", "--engine", "x"});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(result.err == "hixlctl: the daemon at " + daemon.socket() +
                          " answered: unknown engine?x; allowed: those of hixlctl engines\n");
}

TEST_CASE("a daemon that does not answer costs the timeout, and code 1") {
  FakeDaemon::Answers answers;
  answers.pools_hang = true;
  const FakeDaemon daemon(answers);
  const CommandResult result = Ctl(daemon.socket(), {"pools", "--timeout", "0.2"});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Contains("did not answer within 200 ms"));
}

TEST_CASE("wrong usage is code 2 and nothing on standard output") {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"status", "--nonsense"},
      {"status", "extra"},
      {"status", "--timeout", "0"},
      {"status", "--timeout", "soon"},
      {"status", "--watch", "-1"},
      {"version", "--watch", "1"},
      {"regions", "--engine"},
      {"status", "sessions"},
      {"status", "--socket", ""},
  };
  for (const auto& arguments : wrong) {
    const CommandResult result = Ctl("/tmp/none.sock", arguments);
    INFO(json(arguments).dump());
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
}

TEST_CASE("an unknown command is named, with those that there are") {
  const CommandResult result = Ctl("/tmp/none.sock", {"bogus"});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, Contains("\"bogus\" is not a command") && Contains("links | transfers"));
}

TEST_CASE("help and version need no daemon") {
  const CommandResult help = RunCommand({kBinary, "--help"});
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, Contains("transfers") && Contains("Exit codes"));
  const CommandResult version = RunCommand({kBinary, "--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.out == std::string("hixlctl ") + kVersion + "\n");
  const CommandResult both = Ctl("/tmp/none.sock", {"version"});
  CHECK(both.exit_code == 0);
  CHECK_THAT(both.out, Contains("not running"));
  CHECK(json::parse(Ctl("/tmp/none.sock", {"version", "--json"}).out)["hixld"].is_null());
}

TEST_CASE("bash completes what the parser knows") {
  const std::string start = "source <(" + std::string(kBinary) + " completion); ";
  const auto complete = [&start](const std::string& words, const std::string& cword) {
    return RunCommand({"bash", "-c",
                       start + "COMP_WORDS=(" + words + "); COMP_CWORD=" + cword +
                           "; _hixlctl; echo \"${COMPREPLY[*]}\""})
        .out;
  };
  CHECK(complete("hixlctl s", "1") == "status sessions\n");
  CHECK(complete("hixlctl regions --e", "2") == "--engine\n");
  CHECK(complete("hixlctl --json sessions --w", "3") == "--watch\n");
  CHECK(complete("hixlctl version --w", "2") == "\n");
  CHECK_THAT(complete("hixlctl sessions --", "2"), Contains("--socket") && Contains("--json"));
  CHECK(complete("hixlctl --timeout ''", "2") == "\n");
}

TEST_CASE("the socket is found by variable and by runtime directory") {
  const FakeDaemon daemon({});
  CHECK(RunCommand({kBinary, "sessions"}, {{"HIXLD_SOCKET", daemon.socket()}}).exit_code == 0);
  const CommandResult none =
      RunCommand({kBinary, "sessions"}, {{"XDG_RUNTIME_DIR", daemon.directory()}});
  if (!fs::exists("/run/hixld/hixld.sock")) {
    CHECK_THAT(none.err, Contains(daemon.directory() + "/hixld.sock"));
    fs::create_symlink(daemon.socket(), daemon.directory() + "/hixld.sock");
    CHECK(RunCommand({kBinary, "sessions"}, {{"XDG_RUNTIME_DIR", daemon.directory()}}).out ==
          "No sessions.\n");
  }
}

TEST_CASE("common options may stand on either side of the subcommand") {
  const FakeDaemon daemon({});
  CHECK(RunCommand({kBinary, "sessions", "--json", "--socket", daemon.socket()}).exit_code == 0);
  CHECK(RunCommand({kBinary, "--json", "--socket", daemon.socket(), "sessions"}).exit_code == 0);
}

TEST_CASE("watching asks again until it is ended, one json document per line") {
  const FakeDaemon daemon(FullAnswers());
  RunningCommand watch({kBinary, "--socket", daemon.socket(), "status", "--watch", "0.1", "--json"},
                       {});
  const std::string text = watch.ReadLines(3);
  watch.Kill(SIGTERM);
  CHECK(watch.Wait().exit_code == 128 + SIGTERM);
  const size_t end = text.find('\n');
  CHECK(json::parse(text.substr(0, end))["status"]["pid"] == 4711);
  CHECK(json::parse(text.substr(end + 1, text.find('\n', end + 1) - end))["version"] == 1);
  CHECK(Ctl("/tmp/none.sock", {"status", "--watch", "1"}).exit_code == 3);
}

TEST_CASE("output that cannot be written is an error") {
  const FakeDaemon daemon(FullAnswers());
  const std::string line =
      std::string(kBinary) + " --socket " + daemon.socket() + " status >/dev/full";
  const CommandResult result = RunCommand({"sh", "-c", line});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Contains("No space left on device"));
}

}  // namespace
}  // namespace hixld::testing
