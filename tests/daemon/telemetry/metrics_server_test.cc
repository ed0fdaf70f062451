#include "daemon/telemetry/metrics_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "config/loader.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

Config At(const std::string& address) {
  auto config = ParseConfig("version: 1\ntelemetry:\n  metrics_address: \"" + address + "\"\n",
                            "/etc/hixld/hixld.yaml");
  REQUIRE(config.ok());
  return *config;
}

// The whole answer to one HTTP request.
std::string Get(uint16_t port, const std::string& path) {
  const auto endpoint = ParseEndpoint("127.0.0.1:" + std::to_string(port));
  REQUIRE(endpoint.ok());
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(fd.get(), endpoint->sockaddr_ptr(), endpoint->address_len) == 0);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  REQUIRE(write(fd.get(), request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  ssize_t bytes;
  while ((bytes = read(fd.get(), buffer, sizeof(buffer))) > 0) {
    answer.append(buffer, static_cast<size_t>(bytes));
  }
  return answer;
}

TEST_CASE("metrics are read over HTTP") {
  Metrics metrics;
  Counter* const counter =
      metrics.AddCounter("hixld_x_total", "Things that happened.", {{"kind", "a"}});
  const auto server = MetricsServer::Start(At("127.0.0.1:0"), &metrics);
  REQUIRE(server.ok());
  counter->Add(12);
  const std::string answer = Get((*server)->port(), "/metrics");
  CHECK_THAT(answer, StartsWith("HTTP/1.1 200") || StartsWith("HTTP/1.0 200"));
  CHECK_THAT(answer, Contains("# HELP hixld_x_total Things that happened.\n"));
  CHECK_THAT(answer, Contains("# TYPE hixld_x_total counter\n"));
  CHECK_THAT(answer, Contains("hixld_x_total{kind=\"a\"} 12\n"));
  counter->Add();
  CHECK_THAT(Get((*server)->port(), "/metrics"), Contains("hixld_x_total{kind=\"a\"} 13\n"));
  CHECK_THAT(Get((*server)->port(), "/other"), Contains(" 404 "));
}

TEST_CASE("no address, no server") {
  Metrics metrics;
  const auto server = MetricsServer::Start(Config(), &metrics);
  REQUIRE(server.ok());
  CHECK(*server == nullptr);
}

TEST_CASE("an address that is taken names key, place and reason in one line") {
  Metrics metrics;
  const auto first = MetricsServer::Start(At("127.0.0.1:0"), &metrics);
  REQUIRE(first.ok());
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = MetricsServer::Start(At(taken), &metrics);
  REQUIRE_FALSE(second.ok());
  CHECK(ApiCodeOf(second.status()) == ApiCode::kParamInvalid);
  CHECK(second.status().message() ==
        "/etc/hixld/hixld.yaml:3: telemetry.metrics_address: cannot listen on \"" + taken +
            "\": Address already in use; allowed: a free IP:PORT of this machine, or \"\"");
  CHECK_THAT(Get((*first)->port(), "/metrics"), Contains(" 200 "));
}

TEST_CASE("an address of another machine is refused") {
  Metrics metrics;
  const auto server = MetricsServer::Start(At("192.0.2.1:9400"), &metrics);
  REQUIRE_FALSE(server.ok());
  CHECK_THAT(std::string(server.status().message()), Contains("Cannot assign requested address"));
}

}  // namespace
}  // namespace hixld
