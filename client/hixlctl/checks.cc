#include "client/hixlctl/checks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/hixlctl/human.h"

namespace hixld::hixlctl {
namespace {

namespace fs = std::filesystem;

// Bits of CapEff (capability.h).
constexpr uint64_t kCapIpcLock = 1ULL << 14;
constexpr uint64_t kCapSysPtrace = 1ULL << 19;

// A file's text without the last newline; nullopt when it cannot be read.
std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return std::nullopt;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

// The names in a directory, sorted; empty when there is none.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::directory_iterator(path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ProcDirectory(const Host& host) {
  return absl::StrCat(host.root, "/proc/",
                      host.daemon_pid > 0 ? absl::StrCat(host.daemon_pid) : "self");
}

std::string Who(const Host& host) {
  return host.daemon_pid > 0 ? absl::StrCat("the daemon (pid ", host.daemon_pid, ")")
                             : "a daemon that is started from here";
}

// The first word after `key` at the start of a line of a file in the daemon's /proc directory.
std::optional<std::string> ProcWord(const Host& host, const char* file, const char* key) {
  const auto text = ReadText(absl::StrCat(ProcDirectory(host), "/", file));
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, key)) continue;
    std::istringstream words{std::string(rest)};
    std::string word;
    if (words >> word) return word;
  }
  return std::nullopt;
}

// The soft limit of locked memory: "65536" or "unlimited".
std::optional<std::string> MemlockOf(const Host& host) {
  return ProcWord(host, "limits", "Max locked memory");
}

uint64_t CapabilitiesOf(const Host& host) {
  uint64_t bits = 0;
  const auto word = ProcWord(host, "status", "CapEff:");
  return word && absl::SimpleHexAtoi(*word, &bits) ? bits : 0;
}

std::string DevicesDirectory(const Host& host) { return host.root + "/sys/class/infiniband"; }

bool HasRdmaDevice(const Host& host) { return !NamesIn(DevicesDirectory(host)).empty(); }

// A GID as sysfs writes it: eight groups of four hexadecimal digits.
struct Gid {
  std::string index;
  std::string text;
  std::string type;       // "RoCE v2", "IB/RoCE v1"
  std::string interface;  // empty where there is none
  bool link_local() const {
    return text.compare(0, 5, "fe80:") == 0 || text.compare(0, 34, kMapped169) == 0;
  }
  static constexpr char kMapped169[] = "0000:0000:0000:0000:0000:ffff:a9fe";
};

std::vector<Gid> GidsOf(const std::string& port) {
  std::vector<Gid> gids;
  for (const std::string& index : NamesIn(port + "/gids")) {
    const auto text = ReadText(absl::StrCat(port, "/gids/", index));
    if (!text || text->find_first_not_of("0:") == std::string::npos) continue;
    gids.push_back({index, *text,
                    ReadText(absl::StrCat(port, "/gid_attrs/types/", index)).value_or(""),
                    ReadText(absl::StrCat(port, "/gid_attrs/ndevs/", index)).value_or("")});
  }
  return gids;
}

// The interface that a port belongs to, for advice.
std::string InterfaceOf(const std::string& port, const std::string& device_directory) {
  for (const Gid& gid : GidsOf(port)) {
    if (!gid.interface.empty()) return gid.interface;
  }
  const std::vector<std::string> names = NamesIn(device_directory + "/device/net");
  if (!names.empty()) return names.front();
  // Soft-RoCE names its interface in "parent".
  return ReadText(device_directory + "/parent").value_or("INTERFACE");
}

Finding CheckGids(const std::string& name, const std::string& port, bool ethernet,
                  const std::string& interface) {
  const std::vector<Gid> gids = GidsOf(port);
  std::string list;
  size_t usable = 0;
  for (const Gid& gid : gids) {
    const bool good = !ethernet || !gid.link_local();
    usable += good ? 1 : 0;
    if (good)
      absl::StrAppend(&list, list.empty() ? "" : ", ", gid.index, " ", gid.text, " ", gid.type);
  }
  if (usable > 0) return {"rdma gids " + name, Level::kGood, list, ""};
  return {"rdma gids " + name, Level::kProblem,
          absl::StrCat("no usable GID: ", gids.size(), " in the table, none but link-local ones"),
          absl::StrCat("give the interface an IP address: ip addr add ADDRESS/24 dev ", interface,
                       "; or set rdma.allow_link_local")};
}

void CheckPort(const Host& host, const std::string& device, const std::string& number,
               std::vector<Finding>* findings) {
  const std::string directory = absl::StrCat(DevicesDirectory(host), "/", device);
  const std::string port = absl::StrCat(directory, "/ports/", number);
  const std::string name = absl::StrCat(device, ":", number);
  const std::string state = ReadText(port + "/state").value_or("unknown");
  const std::string layer = ReadText(port + "/link_layer").value_or("unknown");
  const std::string rate = ReadText(port + "/rate").value_or("");
  const std::string interface = InterfaceOf(port, directory);
  const std::string found =
      absl::StrCat("state ", state, ", ", layer, rate.empty() ? "" : ", ", rate);
  if (state.find("ACTIVE") == std::string::npos || state.find("DEFER") != std::string::npos) {
    const bool ethernet = layer == "Ethernet";
    findings->push_back({"rdma port " + name, Level::kProblem, found,
                         ethernet ? absl::StrCat("bring the interface up: ip link set ", interface,
                                                 " up; check the cable")
                                  : "check the cable and the subnet manager"});
    return;
  }
  findings->push_back({"rdma port " + name, Level::kGood, found, ""});
  findings->push_back(CheckGids(name, port, layer == "Ethernet", interface));
}

void CheckDeviceFile(const Host& host, std::vector<Finding>* findings) {
  const std::string directory = host.root + "/dev/infiniband";
  for (const std::string& name : NamesIn(directory)) {
    if (name.compare(0, 6, "uverbs") != 0) continue;
    const std::string path = absl::StrCat(directory, "/", name);
    if (access(path.c_str(), R_OK | W_OK) == 0) return;
    findings->push_back({"rdma device file", Level::kProblem,
                         absl::StrCat(path, " may not be opened by this user"),
                         "install the package rdma-core (its udev rules), or chmod 0666 the file"});
    return;
  }
  findings->push_back({"rdma device file", Level::kProblem,
                       absl::StrCat("there is no ", directory, "/uverbs*"),
                       "load the kernel module: modprobe ib_uverbs"});
}

// The first two numbers of a kernel release.
std::pair<int, int> KernelVersion(const std::string& release) {
  int major = 0;
  int minor = 0;
  if (sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return {0, 0};
  return {major, minor};
}

}  // namespace

const char* LevelWord(Level level) {
  switch (level) {
    case Level::kGood:
      return "good";
    case Level::kNote:
      return "note";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

std::vector<Finding> CheckSocket(const Host& host) {
  struct stat info = {};
  if (stat(host.socket_path.c_str(), &info) != 0) {
    return {
        {"socket", Level::kNote, absl::StrCat("there is no ", host.socket_path),
         "start the daemon: systemctl start hixld; without it, the first client starts a private "
         "one"}};
  }
  if (!S_ISSOCK(info.st_mode)) {
    return {{"socket", Level::kProblem, host.socket_path + " is no socket",
             "name the daemon's socket with --socket or HIXLD_SOCKET, or remove what is there"}};
  }
  const std::string found = absl::StrFormat("%s, mode %04o, uid %d, gid %d", host.socket_path,
                                            info.st_mode & 07777, info.st_uid, info.st_gid);
  if (access(host.socket_path.c_str(), W_OK) == 0) return {{"socket", Level::kGood, found, ""}};
  return {{"socket", Level::kProblem, found + ": this user may not use it",
           absl::StrCat("add the user to group ", info.st_gid,
                        ", or set socket.group or socket.mode")}};
}

std::vector<Finding> CheckMemlock(const Host& host) {
  const auto limit = MemlockOf(host);
  if (!limit) {
    return {{"memlock", Level::kNote, absl::StrCat("the limits of ", Who(host), " cannot be read"),
             "run hixlctl as the daemon's user or as root"}};
  }
  uint64_t bytes = 0;
  const bool number = absl::SimpleAtoi(*limit, &bytes);
  const std::string found =
      absl::StrCat("RLIMIT_MEMLOCK of ", Who(host), " is ", number ? HumanBytes(bytes) : *limit);
  if (!number) return {{"memlock", Level::kGood, found, ""}};
  if ((CapabilitiesOf(host) & kCapIpcLock) != 0) {
    return {{"memlock", Level::kGood, found + "; CAP_IPC_LOCK lifts it", ""}};
  }
  if (!HasRdmaDevice(host)) {
    return {
        {"memlock", Level::kGood, found + "; it counts only with RDMA devices, here are none", ""}};
  }
  return {
      {"memlock", Level::kProblem, found + ": no more memory than that can be registered for RDMA",
       "set LimitMEMLOCK=infinity in hixld.service, or `ulimit -l unlimited` before hixld; needed "
       "is at least the size of all registered memory (`hixlctl status`)"}};
}

std::vector<Finding> CheckRdma(const Host& host) {
  const std::vector<std::string> devices = NamesIn(DevicesDirectory(host));
  if (devices.empty()) {
    return {
        {"rdma devices", Level::kNote, "none: nodes are reached over TCP",
         "where there is a card: install its driver; Soft-RoCE: rdma link add rxe0 type rxe netdev "
         "INTERFACE"}};
  }
  std::vector<Finding> findings;
  std::string names;
  for (const std::string& device : devices)
    absl::StrAppend(&names, names.empty() ? "" : ", ", device);
  findings.push_back({"rdma devices", Level::kGood, names, ""});
  if (host.has_verbs_library && !host.has_verbs_library()) {
    findings.push_back({"rdma library", Level::kProblem, "libibverbs.so.1 cannot be loaded",
                        "install the packages libibverbs1 and ibverbs-providers"});
  }
  CheckDeviceFile(host, &findings);
  for (const std::string& device : devices) {
    for (const std::string& port :
         NamesIn(absl::StrCat(DevicesDirectory(host), "/", device, "/ports"))) {
      CheckPort(host, device, port, &findings);
    }
  }
  return findings;
}

std::vector<Finding> CheckHugePages(const Host& host) {
  const std::string directory = host.root + "/sys/kernel/mm/hugepages/hugepages-2048kB";
  const auto total = ReadText(directory + "/nr_hugepages");
  const auto free = ReadText(directory + "/free_hugepages");
  if (!total || !free) {
    return {{"huge pages", Level::kNote, "this kernel has no 2 MiB pages",
             "pools.host.huge_pages: off saves the attempts"}};
  }
  const std::string found = absl::StrCat(*free, " of ", *total, " pages of 2 MiB are free");
  if (*free != "0") return {{"huge pages", Level::kGood, found, ""}};
  return {{"huge pages", Level::kNote, found + ": new arenas get ordinary pages",
           "sysctl vm.nr_hugepages=N, 32 for each arena of 64 MiB (pools.host.arena_bytes)"}};
}

std::vector<Finding> CheckPtrace(const Host& host) {
  const std::string scope =
      ReadText(host.root + "/proc/sys/kernel/yama/ptrace_scope").value_or("0");
  const std::string found = absl::StrCat("ptrace_scope ", scope);
  if (scope == "0") return {{"ptrace scope", Level::kGood, found, ""}};
  if ((CapabilitiesOf(host) & kCapSysPtrace) != 0 && scope != "3") {
    return {{"ptrace scope", Level::kGood, found + "; the daemon has CAP_SYS_PTRACE", ""}};
  }
  if (scope == "1") {
    return {{"ptrace scope", Level::kGood, found + "; clients allow the daemon by themselves", ""}};
  }
  return {
      {"ptrace scope", Level::kNote,
       found + ": the daemon cannot copy plain process memory, its owners do so through the relay",
       "allocate from the pool, or sysctl kernel.yama.ptrace_scope=1, or grant the daemon "
       "CAP_SYS_PTRACE"}};
}

std::vector<Finding> CheckKernel(const Host& host) {
  const std::string release =
      ReadText(host.root + "/proc/sys/kernel/osrelease").value_or("unknown");
  std::vector<Finding> findings;
  // pidfd_open tells that a process has ended without a race.
  if (KernelVersion(release) >= std::make_pair(5, 3)) {
    findings.push_back({"kernel", Level::kGood, release, ""});
  } else {
    findings.push_back({"kernel", Level::kProblem,
                        release + " has no pidfd_open: plain process memory cannot be registered",
                        "use Linux 5.3 or later"});
  }
  const auto space = ReadText(host.root + "/proc/sys/vm/overcommit_memory");
  if (space == "2") {
    findings.push_back({"overcommit", Level::kNote,
                        "vm.overcommit_memory is 2: arenas count in full when they are made",
                        "lower pools.host.max_bytes or raise vm.overcommit_ratio"});
  }
  return findings;
}

std::vector<Finding> CheckTcp(const Host& host) {
  const std::string control =
      ReadText(host.root + "/proc/sys/net/ipv4/tcp_congestion_control").value_or("unknown");
  const std::string found =
      absl::StrCat("default congestion control ", control,
                   host.congestion_control.empty()
                       ? ""
                       : absl::StrCat("; ", Who(host), " uses ", host.congestion_control));
  const std::string& used = host.congestion_control.empty() ? control : host.congestion_control;
  if (!absl::StartsWith(used, "bbr")) return {{"tcp", Level::kGood, found, ""}};
  return {{"tcp", Level::kNote,
           found + ": it paces, which costs transfers that come in bursts half "
                   "of their speed",
           "tcp.congestion_control: cubic (with modprobe tcp_cubic where it is not built in)"}};
}

std::vector<Finding> Examine(const Host& host) {
  std::vector<Finding> all;
  for (auto* check : {&CheckSocket, &CheckKernel, &CheckPtrace, &CheckHugePages, &CheckMemlock,
                      &CheckTcp, &CheckRdma}) {
    std::vector<Finding> found = (*check)(host);
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace hixld::hixlctl
