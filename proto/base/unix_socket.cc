#include "proto/base/unix_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/private_name.h"
#include "proto/base/status.h"

namespace hixld {

absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return ParamInvalid(absl::StrCat("socket path \"", path, "\" has ", path.size(), " bytes"),
                        {.object = "socket path",
                         .allowed = absl::StrCat("1..", sizeof(address.sun_path) - 1, " bytes")});
  }
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> ListenUnixSocket(const std::string& path, int type, mode_t mode,
                                          gid_t group) {
  HIXLD_ASSIGN_OR_RETURN(const PrivateName temporary, PrivateName::Beside(path));
  HIXLD_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(temporary.name()));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "create a unix socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoError(errno, absl::StrCat("bind ", path));
  }
  if (listen(fd.get(), 1024) != 0) return ErrnoError(errno, absl::StrCat("listen on ", path));
  HIXLD_RETURN_IF_ERROR(temporary.Publish(mode, group));
  return fd;
}

}  // namespace hixld
