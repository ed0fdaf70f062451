#include "transports/rdma/verbs_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

constexpr char kLibrary[] = "libibverbs.so.1";

class Loader {
 public:
  explicit Loader(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const handle_;
  std::string missing_;
};

absl::StatusOr<const VerbsLibrary*> Load() {
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Unsupported(absl::StrCat("RDMA needs ", kLibrary, " (package libibverbs1): ", dlerror()),
                       {.object = kLibrary});
  }
  static VerbsLibrary library;
  Loader loader(handle);
  loader.Find("ibv_get_device_list", &library.get_device_list);
  loader.Find("ibv_free_device_list", &library.free_device_list);
  loader.Find("ibv_get_device_name", &library.get_device_name);
  loader.Find("ibv_open_device", &library.open_device);
  loader.Find("ibv_close_device", &library.close_device);
  loader.Find("ibv_query_device", &library.query_device);
  loader.Find("_ibv_query_gid_table", &library.query_gid_table);
  loader.Find("ibv_alloc_pd", &library.alloc_pd);
  loader.Find("ibv_dealloc_pd", &library.dealloc_pd);
  loader.Find("ibv_reg_mr", &library.reg_mr);
  loader.Find("ibv_reg_dmabuf_mr", &library.reg_dmabuf_mr);
  loader.Find("ibv_dereg_mr", &library.dereg_mr);
  loader.Find("ibv_create_comp_channel", &library.create_comp_channel);
  loader.Find("ibv_destroy_comp_channel", &library.destroy_comp_channel);
  loader.Find("ibv_create_cq", &library.create_cq);
  loader.Find("ibv_destroy_cq", &library.destroy_cq);
  loader.Find("ibv_get_cq_event", &library.get_cq_event);
  loader.Find("ibv_ack_cq_events", &library.ack_cq_events);
  loader.Find("ibv_create_qp", &library.create_qp);
  loader.Find("ibv_modify_qp", &library.modify_qp);
  loader.Find("ibv_destroy_qp", &library.destroy_qp);
  loader.Find("ibv_get_async_event", &library.get_async_event);
  loader.Find("ibv_ack_async_event", &library.ack_async_event);
  loader.Find("ibv_event_type_str", &library.event_type_str);
  if (!loader.missing().empty()) {
    return Unsupported(
        absl::StrCat("RDMA needs a newer ", kLibrary, ": it has no ", loader.missing()),
        {.object = kLibrary});
  }
  return &library;
}

}  // namespace

absl::StatusOr<const VerbsLibrary*> LoadVerbsLibrary() {
  static const auto* const loaded = new absl::StatusOr<const VerbsLibrary*>(Load());
  return *loaded;
}

}  // namespace hixld::rdma
