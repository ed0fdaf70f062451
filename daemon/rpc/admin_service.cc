#include "daemon/rpc/admin_service.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/engine/engine_registry.h"
#include "daemon/link/link.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/convert.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/hixl/v1/admin.grpc.pb.h"

namespace hixld {
namespace {

namespace v1 = ::hixl::v1;

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

uint64_t MillisSince(int64_t then_ns) {
  return static_cast<uint64_t>(std::max<int64_t>(0, MonotonicNanos() - then_ns) / kNanosPerMilli);
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t RegisteredBytes(const RegionSnapshot& regions) {
  uint64_t sum = 0;
  for (const auto& region : regions.regions()) sum += region->length;
  return sum;
}

void ToProto(const ChannelDescription& in, v1::ChannelInfo* out) {
  out->set_channel_id(in.key);
  out->set_remote_engine(in.remote_engine);
  out->set_transport(in.transport);
  out->set_initiator(in.initiator);
  out->set_state(in.state);
  out->set_transfers(in.transfers);
  out->set_bytes(in.bytes);
  out->set_direct_transfers(in.direct_transfers);
  out->set_direct_bytes(in.direct_bytes);
  out->set_notifies(in.notifies);
  out->set_protocol(in.protocol);
}

void ToProto(const EngineDescription& in, v1::EngineInfo* out) {
  out->set_engine_id(in.identity.id);
  out->set_session_id(in.identity.session_id);
  out->set_listen_port(in.listen_port);
  out->set_device_id(in.identity.device_id);
  out->set_regions(in.regions->size());
  out->set_registered_bytes(RegisteredBytes(*in.regions));
  out->set_transfers_active(in.transfers_active);
  out->set_transfers_completed(in.transfers_completed);
  out->set_transfers_failed(in.transfers_failed);
  out->set_bytes_read(in.bytes_read);
  out->set_bytes_written(in.bytes_written);
  out->set_transfers_relayed(in.transfers_relayed);
  out->set_notifies_sent(in.notifies_sent);
  out->set_notifies_received(in.notifies_received);
  out->set_notifies_queued(in.notifies_queued);
  out->mutable_options()->insert(in.options.begin(), in.options.end());
  out->set_engine_kind(in.kind);
  for (const EffectiveOption& option : in.effective) {
    v1::EffectiveOption* info = out->add_effective_options();
    info->set_name(option.name);
    info->set_value(option.value);
    info->set_source(option.source);
  }
  for (const ChannelDescription& channel : in.channels) ToProto(channel, out->add_channels());
}

void ToProto(const TransferDescription& in, v1::TransferInfo* out) {
  const int64_t now = MonotonicNanos();
  out->set_transfer_id(in.id);
  out->set_local_engine(in.local_engine);
  out->set_remote_engine(in.remote_engine);
  out->set_op(in.direction == CopyDirection::kRead ? v1::TRANSFER_OP_READ : v1::TRANSFER_OP_WRITE);
  out->set_state(ToProto(in.state));
  out->set_descriptors(in.descriptors);
  out->set_bytes(in.bytes);
  out->set_bytes_done(in.bytes_done);
  out->set_age_us(static_cast<uint64_t>((in.ended_ns != 0 ? in.ended_ns : now) - in.started_ns) /
                  1000);
  out->set_deadline_ms(in.deadline_ns == kNoDeadline
                           ? -1
                           : std::max<int64_t>(0, in.deadline_ns - now) / kNanosPerMilli);
  out->set_transport(in.transport);
}

void ToProto(const LinkDescription& in, v1::LinkInfo* out) {
  out->set_peer_node_id(in.peer_node);
  out->set_peer_address(in.peer_address);
  out->set_transport(in.transport);
  out->set_state(in.state);
  out->set_channels(in.channels);
  out->set_age_ms(MillisSince(in.since_ns));
  out->set_silent_ms(MillisSince(in.last_heard_ns));
  out->set_detail(in.detail);
  for (const LaneStats& lane : in.lanes) {
    v1::LaneInfo* info = out->add_lanes();
    info->set_index(lane.index);
    info->set_local_address(lane.local_address);
    info->set_remote_address(lane.remote_address);
    info->set_state(lane.state);
    info->set_bytes_sent(lane.bytes_sent);
    info->set_bytes_received(lane.bytes_received);
    info->set_bytes_uncopied(lane.bytes_uncopied);
    info->set_reconnects(lane.reconnects);
    info->set_transport(lane.transport);
    info->set_error(lane.error);
  }
}

v1::MemoryType ToProto(MemoryType type) {
  return type == MemoryType::kDevice ? v1::MEMORY_TYPE_DEVICE : v1::MEMORY_TYPE_HOST;
}

void ToProto(const PlacementRow& in, v1::PlacementRule* out) {
  out->set_protocol(in.protocol);
  out->set_local(ToProto(in.local));
  out->set_remote(ToProto(in.remote));
  out->set_allowed(in.rule.allowed);
  out->set_reason(in.rule.reason);
}

// What a session's engines sum up to.
struct SessionSums {
  uint64_t engines = 0;
  uint64_t regions = 0;
  uint64_t registered_bytes = 0;
  uint64_t transfers_active = 0;
};

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(AdminSources sources) : sources_(std::move(sources)) {}

  Reactor* GetStatus(Context*, const v1::GetStatusRequest*,
                     v1::GetStatusResponse* response) override {
    response->set_version(sources_.version);
    response->set_pid(getpid());
    response->set_uptime_ms(MillisSince(sources_.started_ns));
    response->set_node_id(sources_.node_id);
    response->set_socket_path(sources_.socket_path);
    response->set_config_path(sources_.config_path);
    response->set_private_daemon(sources_.private_daemon);
    response->set_workers(sources_.workers);
    response->set_security(sources_.security);
    response->set_tcp_congestion_control(sources_.tcp_congestion_control);
    response->set_sessions(sources_.sessions->size());
    response->set_rss_bytes(ResidentBytes());
    response->set_huge_page_fallbacks(sources_.huge_page_fallbacks());
    AddEngines(response);
    AddTransfers(response);
    auto* call = new CallReactor;
    sources_.links->List([call, response](const std::vector<LinkDescription>& links) {
      response->set_links(links.size());
      call->Reply(absl::OkStatus());
    });
    return call;
  }

  Reactor* ListSessions(Context*, const v1::ListSessionsRequest*,
                        v1::ListSessionsResponse* response) override {
    std::map<uint64_t, SessionSums> sums;
    for (const auto& engine : sources_.engines->All()) {
      const EngineDescription description = engine->Describe();
      SessionSums& sum = sums[description.identity.session_id];
      sum.engines += 1;
      sum.regions += description.regions->size();
      sum.registered_bytes += RegisteredBytes(*description.regions);
      sum.transfers_active += description.transfers_active;
    }
    for (const SessionDescription& session : sources_.sessions->List()) {
      const SessionSums& sum = sums[session.id];
      v1::SessionInfo* info = response->add_sessions();
      info->set_session_id(session.id);
      info->set_pid(session.credentials.pid);
      info->set_uid(session.credentials.uid);
      info->set_client_name(session.client_name);
      info->set_library_version(session.library_version);
      info->set_age_ms(MillisSince(session.opened_at_ns));
      info->set_engines(sum.engines);
      info->set_regions(sum.regions);
      info->set_registered_bytes(sum.registered_bytes);
      info->set_buffer_bytes(session.buffer_bytes);
      info->set_transfers_active(sum.transfers_active);
      info->set_process_memory_readable(session.process_memory_readable);
      info->set_state(session.state);
      info->set_detail(session.detail);
    }
    return Answered();
  }

  Reactor* ListEngines(Context*, const v1::ListEnginesRequest*,
                       v1::ListEnginesResponse* response) override {
    std::vector<EngineDescription> engines;
    for (const auto& engine : sources_.engines->All()) engines.push_back(engine->Describe());
    AddLocalInbound(&engines);
    for (const EngineDescription& engine : engines) ToProto(engine, response->add_engines());
    return Answered();
  }

  Reactor* ListRegions(Context*, const v1::ListRegionsRequest* request,
                       v1::ListRegionsResponse* response) override {
    bool known = request->engine_id().empty();
    std::vector<std::string> ids;
    for (const auto& engine : sources_.engines->All()) {
      const std::string& id = engine->identity().id;
      ids.push_back(id);
      if (!request->engine_id().empty() && id != request->engine_id()) continue;
      known = true;
      const auto regions = engine->Regions();
      for (const auto& region : regions->regions()) {
        v1::RegionInfo* info = response->add_regions();
        info->set_region_id(region->id);
        info->set_engine_id(id);
        info->set_address(region->address);
        info->set_length(region->length);
        info->set_type(region->type == MemoryType::kDevice ? v1::MEMORY_TYPE_DEVICE
                                                           : v1::MEMORY_TYPE_HOST);
        info->set_access(ToProto(region->access->kind()));
      }
    }
    return Answered(known ? absl::OkStatus() : UnknownEngine(request->engine_id(), ids));
  }

  Reactor* ListLinks(Context*, const v1::ListLinksRequest*,
                     v1::ListLinksResponse* response) override {
    auto* call = new CallReactor;
    sources_.links->List([call, response](const std::vector<LinkDescription>& links) {
      for (const LinkDescription& link : links) ToProto(link, response->add_links());
      call->Reply(absl::OkStatus());
    });
    return call;
  }

  Reactor* ListTransfers(Context*, const v1::ListTransfersRequest*,
                         v1::ListTransfersResponse* response) override {
    std::vector<TransferDescription> active;
    for (const auto& engine : sources_.engines->All()) engine->DescribeTransfers(&active);
    for (const TransferDescription& transfer : active) ToProto(transfer, response->add_active());
    for (const TransferDescription& transfer : sources_.transfers->RecentFailures()) {
      v1::FailedTransferInfo* info = response->add_recent_failures();
      ToProto(transfer, info->mutable_transfer());
      info->set_message(transfer.message);
      info->set_ago_ms(MillisSince(transfer.ended_ns));
    }
    return Answered();
  }

  Reactor* ListDevices(Context*, const v1::ListDevicesRequest*,
                       v1::ListDevicesResponse* response) override {
    for (const DeviceDescription& device : sources_.devices()) {
      v1::DeviceInfo* info = response->add_devices();
      info->set_device_id(device.device_id);
      info->set_backend(device.backend);
      info->set_product(device.product);
      info->set_memory_bytes(device.memory_bytes);
      info->set_memory_used(device.memory_used);
      for (auto& name : CapabilityNames(device.capabilities))
        info->add_capabilities(std::move(name));
      const ProductForm form = ProductFormOf(device.product);
      info->set_product_form(std::string(ProductFormName(form)));
      info->set_product_limits(device.product_limits);
      for (const PlacementRow& row : PlacementTable(form)) ToProto(row, info->add_rules());
    }
    return Answered();
  }

  Reactor* ListPools(Context*, const v1::ListPoolsRequest*,
                     v1::ListPoolsResponse* response) override {
    for (const PoolDescription& pool : sources_.pools()) {
      v1::PoolInfo* info = response->add_pools();
      info->set_name(pool.name);
      info->set_capacity_bytes(pool.capacity_bytes);
      info->set_arenas(pool.arenas);
      info->set_used_bytes(pool.used_bytes);
      info->set_buffers(pool.buffers);
      info->set_huge_pages(pool.huge_pages);
    }
    return Answered();
  }

 private:
  static Reactor* Answered(const absl::Status& status = absl::OkStatus()) {
    auto* call = new CallReactor;
    call->Reply(status);
    return call;
  }

  static absl::Status UnknownEngine(const std::string& id, std::vector<std::string> open) {
    // A gRPC status has to fit into a few KiB of headers.
    constexpr size_t kMaxListed = 16;
    const size_t more = open.size() - std::min(open.size(), kMaxListed);
    open.resize(open.size() - more);
    std::string allowed = open.empty() ? "none" : absl::StrJoin(open, ", ");
    if (more > 0) absl::StrAppend(&allowed, " and ", more, " more");
    return ParamInvalid(
        absl::StrCat("no engine \"", id.substr(0, 128), "\" is open; open: ", allowed),
        {.object = absl::StrCat("engine ", id.substr(0, 128)), .allowed = allowed});
  }

  void AddEngines(v1::GetStatusResponse* response) const {
    uint64_t regions = 0;
    uint64_t bytes = 0;
    uint64_t channels = 0;
    const auto engines = sources_.engines->All();
    for (const auto& engine : engines) {
      const EngineDescription description = engine->Describe();
      regions += description.regions->size();
      bytes += RegisteredBytes(*description.regions);
      channels += description.channels.size();
    }
    response->set_engines(engines.size());
    response->set_regions(regions);
    response->set_registered_bytes(bytes);
    response->set_channels(channels);
  }

  void AddTransfers(v1::GetStatusResponse* response) const {
    const TransferTotals totals = sources_.transfers->Totals();
    response->set_transfers_active(totals.active);
    response->set_transfers_completed(totals.completed);
    response->set_transfers_failed(totals.failed);
    response->set_transfers_timed_out(totals.timed_out);
    response->set_descriptors_in(totals.descriptors);
    response->set_descriptors_out(totals.pieces);
    if (totals.pieces > 0) {
      response->set_merge_ratio(static_cast<double>(totals.descriptors) /
                                static_cast<double>(totals.pieces));
    }
    response->set_merged_transfers(totals.merged_transfers);
    response->set_merges(totals.merges);
    response->set_bytes_read(totals.bytes_read);
    response->set_bytes_written(totals.bytes_written);
  }

  // The target's side of channels inside this daemon is not kept anywhere: it is the mirror of
  // what the initiators have.
  static void AddLocalInbound(std::vector<EngineDescription>* engines) {
    std::unordered_map<std::string, std::vector<ChannelDescription>> mirrors;
    for (const EngineDescription& engine : *engines) {
      for (const ChannelDescription& channel : engine.channels) {
        if (!channel.initiator || channel.transport != "local") continue;
        ChannelDescription mirror = channel;
        mirror.remote_engine = engine.identity.id;
        mirror.initiator = false;
        mirrors[channel.remote_engine].push_back(std::move(mirror));
      }
    }
    for (EngineDescription& engine : *engines) {
      const auto found = mirrors.find(engine.identity.endpoint.ToString());
      if (found == mirrors.end() || !engine.identity.endpoint.listens()) continue;
      for (ChannelDescription& mirror : found->second) engine.channels.push_back(std::move(mirror));
    }
  }

  const AdminSources sources_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(AdminSources sources) {
  return std::make_unique<AdminService>(std::move(sources));
}

}  // namespace hixld
