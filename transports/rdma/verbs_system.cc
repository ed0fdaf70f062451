#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>

#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "transports/rdma/verbs.h"
#include "transports/rdma/verbs_library.h"

namespace hixld::rdma {
namespace {

constexpr size_t kMaxGids = 256;

absl::Status SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return ErrnoError(errno, "make a verbs descriptor non-blocking");
  }
  return absl::OkStatus();
}

// What this process has pinned already; the kernel counts it against RLIMIT_MEMLOCK.
uint64_t PinnedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmPin: %" SCNu64 " kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

// Why a registration failed, with what to do about it.
absl::Status RegistrationError(int error_number, const std::string& device, const void* address,
                               uint64_t length) {
  const std::string what =
      absl::StrCat("register ", length, " bytes at 0x",
                   absl::Hex(reinterpret_cast<uintptr_t>(address)), " with ", device);
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if ((error_number == ENOMEM || error_number == EAGAIN) && limit.rlim_cur != RLIM_INFINITY) {
    return ResourceExhausted(
        absl::StrCat(what, ": ", strerror(error_number), "; RLIMIT_MEMLOCK is ", limit.rlim_cur,
                     " bytes, and at least ", PinnedBytes() + length,
                     " are needed: raise LimitMEMLOCK of the service or `ulimit -l`"),
        {.object = absl::StrCat(device),
         .limit = absl::StrCat("RLIMIT_MEMLOCK ", limit.rlim_cur, " bytes"),
         .option = "LimitMEMLOCK"});
  }
  if (error_number == ENOMEM) {
    return ResourceExhausted(absl::StrCat(what, ": ", strerror(error_number)),
                             {.object = absl::StrCat(device)});
  }
  return ErrnoError(error_number, what, {.object = absl::StrCat(device)});
}

class Region final : public VerbsRegion {
 public:
  Region(const VerbsLibrary& library, ibv_mr* mr) : library_(library), mr_(mr) {}
  ~Region() override { library_.dereg_mr(mr_); }
  uint32_t local_key() const override { return mr_->lkey; }
  uint32_t remote_key() const override { return mr_->rkey; }

 private:
  const VerbsLibrary& library_;
  ibv_mr* const mr_;
};

class Domain final : public VerbsDomain {
 public:
  Domain(const VerbsLibrary& library, ibv_pd* pd, std::string device)
      : library_(library), pd_(pd), device_(std::move(device)) {}
  ~Domain() override { library_.dealloc_pd(pd_); }
  ibv_pd* get() const { return pd_; }

  absl::StatusOr<std::unique_ptr<VerbsRegion>> Register(void* address, uint64_t length,
                                                        int access) override {
    ibv_mr* mr = library_.reg_mr(pd_, address, length, access);
    if (mr == nullptr) return RegistrationError(errno, device_, address, length);
    return std::make_unique<Region>(library_, mr);
  }

  absl::StatusOr<std::unique_ptr<VerbsRegion>> RegisterDmaBuf(int fd, uint64_t offset,
                                                              uint64_t length, uint64_t address,
                                                              int access) override {
    ibv_mr* mr = library_.reg_dmabuf_mr(pd_, offset, length, address, fd, access);
    if (mr == nullptr) {
      return ErrnoError(errno,
                        absl::StrCat("register ", length, " bytes of a dma-buf with ", device_));
    }
    return std::make_unique<Region>(library_, mr);
  }

 private:
  const VerbsLibrary& library_;
  ibv_pd* const pd_;
  const std::string device_;
};

class Completions final : public VerbsCompletions {
 public:
  Completions(const VerbsLibrary& library, ibv_comp_channel* channel, ibv_cq* cq)
      : library_(library), channel_(channel), cq_(cq) {}
  ~Completions() override {
    ConsumeEvents();
    library_.destroy_cq(cq_);
    library_.destroy_comp_channel(channel_);
  }
  ibv_cq* get() const { return cq_; }

  int Poll(int count, ibv_wc* out) override { return ibv_poll_cq(cq_, count, out); }
  absl::Status Arm() override {
    const int error = ibv_req_notify_cq(cq_, 0);
    return error == 0 ? absl::OkStatus() : ErrnoError(error, "ask for a completion event");
  }
  int fd() const override { return channel_->fd; }
  void ConsumeEvents() override {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (library_.get_cq_event(channel_, &cq, &context) == 0) library_.ack_cq_events(cq, 1);
  }

 private:
  const VerbsLibrary& library_;
  ibv_comp_channel* const channel_;
  ibv_cq* const cq_;
};

class QueuePair final : public VerbsQueuePair {
 public:
  QueuePair(const VerbsLibrary& library, ibv_qp* qp, uint32_t inline_bytes)
      : library_(library), qp_(qp), inline_bytes_(inline_bytes) {}
  ~QueuePair() override { library_.destroy_qp(qp_); }
  uint32_t number() const override { return qp_->qp_num; }
  uint32_t inline_bytes() const override { return inline_bytes_; }
  int Modify(ibv_qp_attr* attributes, int mask) override {
    return library_.modify_qp(qp_, attributes, mask);
  }
  int Post(ibv_send_wr* first, ibv_send_wr** bad) override {
    return ibv_post_send(qp_, first, bad);
  }

 private:
  const VerbsLibrary& library_;
  ibv_qp* const qp_;
  const uint32_t inline_bytes_;
};

const char* StateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
    default:
      return "NOP";
  }
}

uint32_t MtuBytes(ibv_mtu mtu) { return 128U << static_cast<uint32_t>(mtu); }

// The prefix length of the interface address that the GID was made from; 0 where there is none.
uint32_t PrefixBits(const ifaddrs* addresses, const Gid& gid, const std::string& interface) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool v4 = memcmp(gid.data(), kMapped, sizeof(kMapped)) == 0;
  for (const ifaddrs* at = addresses; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_netmask == nullptr || interface != at->ifa_name) {
      continue;
    }
    const uint8_t* address = nullptr;
    const uint8_t* mask = nullptr;
    if (v4 && at->ifa_addr->sa_family == AF_INET) {
      address = reinterpret_cast<uint8_t*>(&reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr);
      mask = reinterpret_cast<uint8_t*>(&reinterpret_cast<sockaddr_in*>(at->ifa_netmask)->sin_addr);
    } else if (!v4 && at->ifa_addr->sa_family == AF_INET6) {
      address =
          reinterpret_cast<uint8_t*>(&reinterpret_cast<sockaddr_in6*>(at->ifa_addr)->sin6_addr);
      mask =
          reinterpret_cast<uint8_t*>(&reinterpret_cast<sockaddr_in6*>(at->ifa_netmask)->sin6_addr);
    } else {
      continue;
    }
    const size_t skip = v4 ? sizeof(kMapped) : 0;
    if (memcmp(gid.data() + skip, address, gid.size() - skip) != 0) continue;
    uint32_t bits = static_cast<uint32_t>(8 * skip);
    for (size_t i = 0; i < gid.size() - skip; ++i) {
      bits += static_cast<uint32_t>(std::popcount(static_cast<unsigned>(mask[i])));
    }
    return bits;
  }
  return 0;
}

AsyncEvent Translate(const VerbsLibrary& library, const ibv_async_event& event) {
  AsyncEvent out;
  out.text = library.event_type_str(event.event_type);
  switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
      out.kind = AsyncEvent::Kind::kPortActive;
      out.port = static_cast<uint8_t>(event.element.port_num);
      break;
    case IBV_EVENT_PORT_ERR:
      out.kind = AsyncEvent::Kind::kPortDown;
      out.port = static_cast<uint8_t>(event.element.port_num);
      break;
    case IBV_EVENT_DEVICE_FATAL:
      out.kind = AsyncEvent::Kind::kDeviceGone;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      out.kind = AsyncEvent::Kind::kQueuePairFailed;
      out.queue_pair = event.element.qp->qp_num;
      break;
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      out.kind = AsyncEvent::Kind::kAddressesChanged;
      out.port = static_cast<uint8_t>(event.element.port_num);
      break;
    default:
      break;
  }
  return out;
}

class Device final : public VerbsDevice {
 public:
  Device(const VerbsLibrary& library, ibv_context* context, std::string name,
         const ibv_device_attr& attributes)
      : library_(library),
        context_(context),
        name_(std::move(name)),
        ports_(attributes.phys_port_cnt) {
    limits_.max_mr_size = attributes.max_mr_size == 0 ? UINT64_MAX : attributes.max_mr_size;
    limits_.max_send_depth = static_cast<uint32_t>(attributes.max_qp_wr);
    limits_.max_completions = static_cast<uint32_t>(attributes.max_cqe);
    limits_.read_depth_out = static_cast<uint32_t>(attributes.max_qp_init_rd_atom);
    limits_.read_depth_in = static_cast<uint32_t>(attributes.max_qp_rd_atom);
  }
  ~Device() override { library_.close_device(context_); }

  const DeviceLimits& limits() const override { return limits_; }

  absl::StatusOr<std::vector<PortInfo>> Ports() override {
    std::vector<PortInfo> ports;
    for (uint8_t number = 1; number <= ports_; ++number) {
      ibv_port_attr attributes = {};
      if (const int error = QueryPort(number, &attributes); error != 0) {
        return ErrnoError(error, absl::StrCat("query port ", number, " of ", name_));
      }
      PortInfo& port = ports.emplace_back();
      port.number = number;
      port.active = attributes.state == IBV_PORT_ACTIVE;
      port.state = StateName(attributes.state);
      port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
      port.mtu = MtuBytes(attributes.active_mtu);
      port.max_mtu = MtuBytes(attributes.max_mtu);
      port.lid = attributes.lid;
    }
    AddGids(&ports);
    return ports;
  }

  absl::StatusOr<std::unique_ptr<VerbsDomain>> CreateDomain() override {
    ibv_pd* pd = library_.alloc_pd(context_);
    if (pd == nullptr) return Exhausted("protection domain");
    return std::make_unique<Domain>(library_, pd, name_);
  }

  absl::StatusOr<std::unique_ptr<VerbsCompletions>> CreateCompletions(uint32_t depth) override {
    ibv_comp_channel* channel = library_.create_comp_channel(context_);
    if (channel == nullptr) return Exhausted("completion channel");
    ibv_cq* cq = nullptr;
    absl::Status status = SetNonBlocking(channel->fd);
    if (status.ok()) {
      cq = library_.create_cq(context_, static_cast<int>(depth), nullptr, channel, 0);
      if (cq == nullptr) status = Exhausted("completion queue");
    }
    if (!status.ok()) {
      library_.destroy_comp_channel(channel);
      return status;
    }
    return std::make_unique<Completions>(library_, channel, cq);
  }

  absl::StatusOr<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      const QueuePairRequest& request) override {
    uint32_t inline_bytes = request.inline_bytes;
    while (true) {
      ibv_qp_init_attr attributes = {};
      attributes.qp_type = IBV_QPT_RC;
      attributes.send_cq = static_cast<Completions*>(request.completions)->get();
      attributes.recv_cq = attributes.send_cq;
      attributes.cap.max_send_wr = request.send_depth;
      attributes.cap.max_recv_wr = 1;
      attributes.cap.max_send_sge = 1;
      attributes.cap.max_recv_sge = 1;
      attributes.cap.max_inline_data = inline_bytes;
      ibv_qp* qp = library_.create_qp(static_cast<Domain*>(request.domain)->get(), &attributes);
      if (qp != nullptr) {
        return std::make_unique<QueuePair>(
            library_, qp, std::min(request.inline_bytes, attributes.cap.max_inline_data));
      }
      // Devices tell their limit only by refusing.
      if (inline_bytes == 0) return Exhausted("queue pair");
      inline_bytes /= 2;
    }
  }

  int event_fd() const override { return context_->async_fd; }

  std::optional<AsyncEvent> NextEvent() override {
    ibv_async_event event;
    if (library_.get_async_event(context_, &event) != 0) return std::nullopt;
    AsyncEvent out = Translate(library_, event);
    library_.ack_async_event(&event);
    return out;
  }

 private:
  absl::Status Exhausted(const char* what) const {
    const int error = errno;
    if (error == ENOMEM || error == EAGAIN || error == ENOSPC) {
      return ResourceExhausted(
          absl::StrCat("create a ", what, " on ", name_, ": ", strerror(error)), {.object = name_});
    }
    return ErrnoError(error, absl::StrCat("create a ", what, " on ", name_), {.object = name_});
  }

  // As the header's inline function does it: the exported one knows only old fields.
  int QueryPort(uint8_t number, ibv_port_attr* attributes) {
    verbs_context* const table = verbs_get_ctx_op(context_, query_port);
    if (table == nullptr) return ENOSYS;
    return table->query_port(context_, number, attributes, sizeof(*attributes));
  }

  void AddGids(std::vector<PortInfo>* ports) {
    std::vector<ibv_gid_entry> entries(kMaxGids);
    const ssize_t count = library_.query_gid_table(context_, entries.data(), entries.size(), 0,
                                                   sizeof(ibv_gid_entry));
    ifaddrs* addresses = nullptr;
    if (getifaddrs(&addresses) != 0) addresses = nullptr;
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
      if (entry.port_num == 0 || entry.port_num > ports->size()) continue;
      GidEntry gid;
      gid.index = entry.gid_index;
      memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
      gid.type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::kRoceV2
                 : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
                                                          : GidType::kInfiniBand;
      char name[IF_NAMESIZE] = {};
      if (entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, name) != nullptr) {
        gid.interface = name;
      }
      gid.prefix_bits = PrefixBits(addresses, gid.gid, gid.interface);
      (*ports)[entry.port_num - 1].gids.push_back(std::move(gid));
    }
    if (addresses != nullptr) freeifaddrs(addresses);
  }

  const VerbsLibrary& library_;
  ibv_context* const context_;
  const std::string name_;
  const uint8_t ports_;
  DeviceLimits limits_;
};

// Owns a list of devices.
class DeviceList {
 public:
  explicit DeviceList(const VerbsLibrary& library)
      : library_(library), list_(library.get_device_list(&count_)) {
    if (list_ == nullptr) error_ = errno;
  }
  ~DeviceList() {
    if (list_ != nullptr) library_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int count() const { return list_ == nullptr ? 0 : count_; }
  ibv_device* at(int i) const { return list_[i]; }
  absl::string_view name(int i) const { return library_.get_device_name(list_[i]); }
  // 0, or why there is no list. A kernel without verbs is as good as one without devices.
  int error() const {
    const bool none = error_ == ENOSYS || error_ == ENOENT || error_ == EPERM;
    return none ? 0 : error_;
  }

 private:
  const VerbsLibrary& library_;
  int count_ = 0;
  ibv_device** const list_;
  int error_ = 0;
};

class System final : public Verbs {
 public:
  absl::StatusOr<std::vector<std::string>> DeviceNames() override {
    HIXLD_ASSIGN_OR_RETURN(const VerbsLibrary* library, LoadVerbsLibrary());
    const DeviceList devices(*library);
    if (devices.error() != 0) return ErrnoError(devices.error(), "list RDMA devices");
    std::vector<std::string> names;
    for (int i = 0; i < devices.count(); ++i) names.emplace_back(devices.name(i));
    return names;
  }

  absl::StatusOr<std::unique_ptr<VerbsDevice>> Open(absl::string_view device) override {
    HIXLD_ASSIGN_OR_RETURN(const VerbsLibrary* library, LoadVerbsLibrary());
    const DeviceList devices(*library);
    ibv_context* context = nullptr;
    int error = devices.error() != 0 ? devices.error() : ENODEV;
    for (int i = 0; i < devices.count() && context == nullptr; ++i) {
      if (device != devices.name(i)) continue;
      context = library->open_device(devices.at(i));
      error = errno;
    }
    if (context == nullptr) {
      return ErrnoError(error, absl::StrCat("open RDMA device ", device),
                        {.object = std::string(device)});
    }
    return Wrap(*library, context, std::string(device));
  }

 private:
  static absl::StatusOr<std::unique_ptr<VerbsDevice>> Wrap(const VerbsLibrary& library,
                                                           ibv_context* context, std::string name) {
    ibv_device_attr attributes = {};
    absl::Status status = SetNonBlocking(context->async_fd);
    if (status.ok()) {
      const int error = library.query_device(context, &attributes);
      if (error != 0) status = ErrnoError(error, absl::StrCat("query RDMA device ", name));
    }
    if (!status.ok()) {
      library.close_device(context);
      return status;
    }
    return std::make_unique<Device>(library, context, std::move(name), attributes);
  }
};

}  // namespace

std::unique_ptr<Verbs> SystemVerbs() { return std::make_unique<System>(); }

std::string GidText(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

}  // namespace hixld::rdma
