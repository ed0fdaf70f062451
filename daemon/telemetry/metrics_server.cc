#include "daemon/telemetry/metrics_server.h"

#include <CivetServer.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/loader.h"
#include "daemon/telemetry/log.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr char kKey[] = "telemetry.metrics_address";
constexpr size_t kThreads = 2;

class MetricsCollectable : public prometheus::Collectable {
 public:
  explicit MetricsCollectable(const Metrics* metrics) : metrics_(metrics) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return metrics_->Collect(); }

 private:
  const Metrics* const metrics_;
};

absl::Status AddressError(const Config& config, absl::string_view reason) {
  return ParamInvalid(absl::StrCat(WhereSet(config, kKey), ": ", kKey, ": cannot listen on \"",
                                   config.telemetry.metrics_address, "\": ", reason,
                                   "; allowed: a free IP:PORT of this machine, or \"\""),
                      {.object = config.telemetry.metrics_address,
                       .option = kKey,
                       .allowed = "a free IP:PORT of this machine, or \"\""});
}

// The HTTP server does not say why it could not listen, so the address is tried first.
absl::Status TryListen(const Config& config) {
  const auto endpoint = ParseEndpoint(config.telemetry.metrics_address);
  if (!endpoint.ok()) return AddressError(config, endpoint.status().message());
  const UniqueFd fd(socket(endpoint->ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd.get(), endpoint->sockaddr_ptr(), endpoint->address_len) != 0 ||
      listen(fd.get(), 1) != 0) {
    return AddressError(config, strerrordesc_np(errno));
  }
  return absl::OkStatus();
}

// Standard error is the log's; the server's own complaints go there as fields.
int LogServerMessage(const mg_connection*, const char* message) {
  LogDebug("metrics server", {{"text", message}});
  return 1;
}

}  // namespace

struct MetricsServer::Server {
  std::shared_ptr<MetricsCollectable> collectable;
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const Config& config,
                                                                    const Metrics* metrics) {
  if (config.telemetry.metrics_address.empty()) return std::unique_ptr<MetricsServer>();
  HIXLD_RETURN_IF_ERROR(TryListen(config));
  auto server = std::make_unique<Server>();
  server->collectable = std::make_shared<MetricsCollectable>(metrics);
  CivetCallbacks callbacks;
  callbacks.log_message = LogServerMessage;
  try {
    server->exposer = std::make_unique<prometheus::Exposer>(config.telemetry.metrics_address,
                                                            kThreads, &callbacks);
    server->exposer->RegisterCollectable(server->collectable);
  } catch (const std::exception& error) {
    return AddressError(config, error.what());
  }
  const std::vector<int> ports = server->exposer->GetListeningPorts();
  const uint16_t port = ports.empty() ? 0 : static_cast<uint16_t>(ports.front());
  LogInfo("metrics served", {{"address", config.telemetry.metrics_address}, {"port", port}});
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(server), port));
}

MetricsServer::MetricsServer(std::unique_ptr<Server> server, uint16_t port)
    : server_(std::move(server)), port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace hixld
