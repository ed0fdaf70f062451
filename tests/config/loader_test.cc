#include "config/loader.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

Config Parse(const std::string& body) {
  auto config = ParseConfig("version: 1\n" + body, "c.yaml");
  INFO(config.status());
  REQUIRE(config.ok());
  return *config;
}

// The message of the error that `body` (after a version line) gives.
std::string ErrorOf(const std::string& body) {
  const auto config = ParseConfig("version: 1\n" + body, "c.yaml");
  REQUIRE_FALSE(config.ok());
  CHECK(ApiCodeOf(config.status()) == ApiCode::kParamInvalid);
  const std::string message(config.status().message());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TEST_CASE("a file sets the keys that it names and leaves the others") {
  const Config config = Parse(
      "socket:\n"
      "  path: /run/x/h.sock\n"
      "  mode: 0600\n"
      "pools:\n"
      "  host: {arena_bytes: 128MiB, huge_pages: \"off\"}\n"
      "tcp:\n"
      "  lanes: 4\n"
      "  connect_timeout: 250ms\n"
      "  interfaces: [eth0, eth1]\n"
      "log:\n"
      "  level: debug\n");
  CHECK(config.socket.path == "/run/x/h.sock");
  CHECK(config.socket.mode == 0600);
  CHECK(config.pools.host.arena_bytes == 128 * kMiB);
  CHECK(config.pools.host.huge_pages == HugePages::kOff);
  CHECK(config.tcp.lanes == 4);
  CHECK(config.tcp.connect_timeout == std::chrono::milliseconds(250));
  CHECK(config.tcp.interfaces == std::vector<std::string>{"eth0", "eth1"});
  CHECK(config.log.level == LogLevel::kDebug);
  CHECK(config.tcp.stripe_bytes == Config().tcp.stripe_bytes);
  CHECK(config.file == "c.yaml");
  CHECK(WhereSet(config, "tcp.lanes") == "c.yaml:8");
  CHECK(WhereSet(config, "tcp.stripe_bytes") == "default");
}

TEST_CASE("a key may be written as one dotted word") {
  CHECK(Parse("tcp.lanes: 4\n").tcp.lanes == 4);
}

TEST_CASE("a bare off is the word off, and an empty section changes nothing") {
  const Config config = Parse("pools:\n  host:\n    huge_pages: off\ntcp:\n");
  CHECK(config.pools.host.huge_pages == HugePages::kOff);
  CHECK(config.tcp.lanes == Config().tcp.lanes);
}

TEST_CASE("an unknown key names the line, the nearest key and the known ones") {
  const std::string message = ErrorOf("tcp:\n  lane: 4\n");
  CHECK_THAT(message, StartsWith("c.yaml:3: unknown key \"tcp.lane\""));
  CHECK_THAT(message, Contains("did you mean \"tcp.lanes\"?"));
  CHECK_THAT(message, Contains("tcp.stripe_bytes"));
  CHECK_THAT(ErrorOf("sokcet:\n  path: /x\n"), StartsWith("c.yaml:2: unknown key \"sokcet\""));
  CHECK_THAT(ErrorOf("max_sessions: 4\n"), Contains("did you mean \"limits.max_sessions\"?"));
  CHECK_THAT(ErrorOf(std::string(1000, 'x') + ": 4\n"), StartsWith("c.yaml:2: unknown key"));
}

TEST_CASE("a key given twice is refused, on every level") {
  CHECK_THAT(ErrorOf("tcp:\n  lanes: 4\n  lanes: 5\n"),
             Equals("c.yaml:4: key \"tcp.lanes\" is given twice, first at c.yaml:3"));
  CHECK_THAT(ErrorOf("tcp: {lanes: 4}\nlog: {level: info}\ntcp: {lanes: 4}\n"),
             StartsWith("c.yaml:4: key \"tcp\" is given twice"));
  CHECK_THAT(ErrorOf("tcp.lanes: 4\ntcp:\n  lanes: 4\n"),
             Equals("c.yaml:4: key \"tcp.lanes\" is given twice, first at c.yaml:2"));
}

TEST_CASE("values of a wrong type name what is allowed") {
  CHECK_THAT(ErrorOf("tcp:\n  lanes: many\n"),
             Equals("c.yaml:3: tcp.lanes: \"many\" is not a whole number; allowed: 1..16"));
  CHECK_THAT(ErrorOf("tcp: {lanes: [1, 2]}\n"), Contains("tcp.lanes: is a list"));
  CHECK_THAT(ErrorOf("tcp: {lanes: {a: 1}}\n"), Contains("tcp.lanes: is a mapping"));
  CHECK_THAT(ErrorOf("tcp: {lanes: }\n"), Contains("tcp.lanes: has no value"));
  CHECK_THAT(ErrorOf("tcp: {lanes: -1}\n"), Contains("\"-1\" is not a whole number"));
  CHECK_THAT(ErrorOf("tcp: 4\n"), Contains("tcp: is a section"));
  CHECK_THAT(ErrorOf("tcp: {interfaces: eth0}\n"), Contains("is not a list"));
  CHECK_THAT(ErrorOf("tcp: {interfaces: [[a]]}\n"), Contains("an entry that is not a word"));
  CHECK_THAT(ErrorOf("tcp: {connect_timeout: 5}\n"), Contains("is not a duration"));
  CHECK_THAT(ErrorOf("pools: {relay: {bytes: 64MB}}\n"), Contains("is not a size"));
  CHECK_THAT(ErrorOf("security: {allow_unauthenticated_network: 1}\n"),
             Contains("allowed: true | false"));
  CHECK_THAT(ErrorOf("pools: {host: {huge_pages: yes}}\n"),
             Contains("allowed: off | try | require"));
  CHECK_THAT(ErrorOf("socket: {mode: rw}\n"), Contains("is not an octal mode"));
  CHECK_THAT(ErrorOf("? [a, b]\n: 1\n"), Contains("is not a word"));
}

TEST_CASE("values out of range name the range, and its ends are allowed") {
  CHECK_THAT(ErrorOf("tcp: {lanes: 17}\n"),
             Equals("c.yaml:2: tcp.lanes: \"17\" is out of range; allowed: 1..16"));
  CHECK_THAT(ErrorOf("tcp: {lanes: 0}\n"), Contains("allowed: 1..16"));
  CHECK(Parse("tcp: {lanes: 1}\n").tcp.lanes == 1);
  CHECK(Parse("tcp: {lanes: 16}\n").tcp.lanes == 16);
  CHECK_THAT(ErrorOf("tcp: {stripe_bytes: 32MiB}\n"), Contains("allowed: 64KiB..16MiB"));
  CHECK_THAT(ErrorOf("tcp: {connect_timeout: 1ms}\n"), Contains("allowed: 100ms..2min"));
  CHECK_THAT(ErrorOf("workers: {spin_us: 1001}\n"), Contains("allowed: 0..1000"));
  CHECK_THAT(ErrorOf("rings: {entries: 1000}\n"),
             Equals("c.yaml:2: rings.entries: \"1000\" is no power of two; allowed: 16..65536, a "
                    "power of two"));
  CHECK_THAT(ErrorOf("rings: {entries: 8}\n"), Contains("is out of range"));
  CHECK(Parse("rings: {entries: 2048}\n").rings.entries == 2048);
  CHECK_THAT(ErrorOf("socket: {mode: 0060}\n"), Contains("allowed: 0600..0777"));
}

TEST_CASE("texts are checked for what they mean") {
  CHECK_THAT(ErrorOf("socket: {path: run/h.sock}\n"), Contains("is not an absolute path"));
  CHECK_THAT(ErrorOf("socket: {path: /" + std::string(96, 'x') + "}\n"), Contains("is longer"));
  CHECK_THAT(ErrorOf("telemetry: {metrics_address: \"localhost:9400\"}\n"),
             Contains("telemetry.metrics_address: \"localhost:9400\" is no IP:PORT"));
  CHECK_THAT(ErrorOf("telemetry: {metrics_address: \"127.0.0.1:99999\"}\n"),
             Contains("no IP:PORT"));
  CHECK_THAT(ErrorOf("node: {data_address: \"10.0.0.1:80\"}\n"), Contains("has a port"));
  CHECK_THAT(ErrorOf("node: {data_address: myhost}\n"), Contains("is no IP address"));
  CHECK(Parse("node: {data_address: \"fd00::1\"}\n").node.data_address == "fd00::1");
  CHECK_THAT(ErrorOf("devices: {backends: [host, gpu]}\n"),
             Contains("\"gpu\" is no device backend"));
  CHECK_THAT(ErrorOf("devices: {backends: [host, host]}\n"), Contains("is listed twice"));
  CHECK_THAT(ErrorOf("devices: {backends: []}\n"), Contains("has 0 entries"));
}

TEST_CASE("a file that is no mapping of keys is refused") {
  CHECK_THAT(ErrorOf("tcp: {lanes: 1\n"), Contains("is not valid YAML"));
  CHECK_THAT(ErrorOf("---\nversion: 1\n"), Contains("more than one YAML document"));
  for (const char* text : {"- a\n", "word\n"}) {
    const auto config = ParseConfig(text, "c.yaml");
    REQUIRE_FALSE(config.ok());
    CHECK_THAT(std::string(config.status().message()), Contains("c.yaml:1"));
  }
}

TEST_CASE("the version must be given and known") {
  for (const char* text : {"", "tcp: {lanes: 2}\n"}) {
    const auto config = ParseConfig(text, "c.yaml");
    REQUIRE_FALSE(config.ok());
    CHECK_THAT(std::string(config.status().message()), Contains("key \"version\" is missing"));
  }
  const auto config = ParseConfig("version: 2\n", "c.yaml");
  REQUIRE_FALSE(config.ok());
  CHECK_THAT(std::string(config.status().message()),
             Equals("c.yaml:1: version: \"2\" is out of range; allowed: 1..1"));
}

TEST_CASE("flags override the file, and their errors name the flag") {
  Config config = Parse("tcp: {lanes: 4}\n");
  CHECK(ApplyFlag(config, "tcp.lanes", "8").ok());
  CHECK(config.tcp.lanes == 8);
  CHECK(WhereSet(config, "tcp.lanes") == "--set");
  CHECK(ApplySetting(config, "tcp.interfaces=eth0, eth1").ok());
  CHECK(config.tcp.interfaces.size() == 2);
  CHECK(ApplySetting(config, "tcp.interfaces=[]").ok());
  CHECK(config.tcp.interfaces.empty());
  CHECK(ApplySetting(config, "socket.path=/tmp/a=b").ok());
  CHECK(config.socket.path == "/tmp/a=b");

  const absl::Status range = ApplyFlag(config, "tcp.lanes", "99");
  CHECK(range.message() == "--set: tcp.lanes: \"99\" is out of range; allowed: 1..16");
  CHECK(ErrorInfoOf(range).option == "tcp.lanes");
  CHECK(ErrorInfoOf(range).allowed == "1..16");
  CHECK(config.tcp.lanes == 8);
  CHECK_THAT(std::string(ApplyFlag(config, "tcp.lane", "1").message()),
             StartsWith("--set: unknown key \"tcp.lane\"; did you mean \"tcp.lanes\"?"));
  CHECK_FALSE(ApplySetting(config, "tcp.lanes").ok());
}

TEST_CASE("keys that contradict each other are refused with both places") {
  Config config = Parse("pools:\n  relay:\n    bytes: 1MiB\n    slot_bytes: 2MiB\n");
  CHECK(CheckConfig(config).message() ==
        "c.yaml:5: pools.relay.slot_bytes: 2MiB is more than pools.relay.bytes (1MiB, c.yaml:4); "
        "allowed: at most 1MiB");
  config = Parse("tcp: {keepalive_interval: 3s}\n");
  CHECK_THAT(std::string(CheckConfig(config).message()),
             StartsWith("default: tcp.keepalive_timeout: 5s is less than twice"));
  CHECK(CheckConfig(Config()).ok());
}

TEST_CASE("an address beyond loopback needs a key or a word") {
  Config config = Parse("node: {data_address: 10.0.0.1}\n");
  CHECK_THAT(std::string(CheckConfig(config).message()),
             StartsWith("c.yaml:2: node.data_address: address 10.0.0.1 is beyond loopback"));
  for (const char* address : {"127.0.0.1", "127.0.0.1:80", "::1", "[::1]:80"}) {
    INFO(address);
    CHECK(CheckMayListen(config, address).ok());
  }
  for (const char* address : {"0.0.0.0:80", "10.0.0.1:80", "::", "[fd00::1]:80", "nonsense"}) {
    INFO(address);
    CHECK_FALSE(CheckMayListen(config, address).ok());
  }
  config.security.cluster_key_file = "/etc/hixld/key";
  CHECK(CheckConfig(config).ok());
  config.security.cluster_key_file.clear();
  config.security.allow_unauthenticated_network = true;
  CHECK(CheckMayListen(config, "0.0.0.0:80").ok());
}

TEST_CASE("a missing file is named, with the reason") {
  const auto config = LoadConfig("/nonexistent/hixld.yaml");
  REQUIRE_FALSE(config.ok());
  CHECK(config.status().message() ==
        "cannot read configuration file /nonexistent/hixld.yaml: No such file or directory");
  CHECK_FALSE(LoadConfig("/").ok());
  CHECK_THAT(std::string(LoadConfig("/dev/zero").status().message()), Contains("larger than 1MiB"));
}

TEST_CASE("file, flags and checks together") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/hixld.yaml";
  std::ofstream(path) << "version: 1\ntcp:\n  lanes: 3\n";
  const auto config = ReadConfig(path, {"workers.count=2"});
  REQUIRE(config.ok());
  CHECK(config->tcp.lanes == 3);
  CHECK(config->workers.count == 2);
  CHECK_FALSE(ReadConfig(path, {"pools.host.max_bytes=2MiB"}).ok());
  CHECK(ReadConfig("", {}).ok());
}

}  // namespace
}  // namespace hixld
