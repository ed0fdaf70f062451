#include "daemon/cluster_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/loader.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr char kOption[] = "security.cluster_key_file";
constexpr size_t kMinKeyBytes = 32;
constexpr size_t kMaxKeyBytes = 4096;

absl::Status Bad(const Config& config, absl::string_view reason) {
  const std::string& path = config.security.cluster_key_file;
  return ParamInvalid(
      absl::StrCat(WhereSet(config, kOption), ": ", kOption, ": \"", path, "\" ", reason),
      {.object = absl::StrCat("file ", path),
       .option = kOption,
       .allowed = "a file of 32..4096 bytes, mode 0600 or 0640"});
}

}  // namespace

absl::StatusOr<std::string> ReadClusterKey(const Config& config) {
  const std::string& path = config.security.cluster_key_file;
  if (path.empty()) return std::string();
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Bad(config, absl::StrCat("cannot be read: ", strerror(errno)));
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Bad(config, "is not a regular file");
  }
  if ((info.st_mode & 0027) != 0) {
    return Bad(config, absl::StrFormat("is open to others (mode %04o); allowed: 0600 or 0640",
                                       info.st_mode & 07777));
  }
  std::string key(kMaxKeyBytes + 1, '\0');
  const ssize_t got = read(file.get(), key.data(), key.size());
  if (got < 0) return Bad(config, absl::StrCat("cannot be read: ", strerror(errno)));
  key.resize(static_cast<size_t>(got));
  absl::StripTrailingAsciiWhitespace(&key);
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes) {
    return Bad(config, absl::StrCat("holds ", key.size(), " bytes; allowed: ", kMinKeyBytes, "..",
                                    kMaxKeyBytes));
  }
  return key;
}

}  // namespace hixld
