// What `hixlctl doctor` finds on nodes that are made of files.
#include "client/hixlctl/checks.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "proto/base/unix_socket.h"
#include "tests/test_directory.h"

namespace hixld::hixlctl {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

// A node's /proc, /sys and /dev in a directory of its own.
class Node {
 public:
  Node() {
    host_.root = directory_.path();
    host_.daemon_pid = 77;
    host_.socket_path = directory_.socket();
    host_.has_verbs_library = [] { return true; };
    Limit("unlimited");
    Capabilities("0000000000000000");
  }
  Node& File(const std::string& path, const std::string& text) {
    const fs::path full = fs::path(directory_.path()) / path.substr(1);
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
    return *this;
  }
  Node& Limit(const std::string& soft) {
    return File("/proc/77/limits",
                "Limit                     Soft Limit           Hard Limit           Units\n"
                "Max locked memory         " +
                    soft + "                unlimited            bytes");
  }
  Node& Capabilities(const std::string& bits) {
    return File("/proc/77/status", "Name:\thixld\nCapEff:\t" + bits + "\n");
  }
  Node& Port(const std::string& device, const std::string& state) {
    const std::string port = "/sys/class/infiniband/" + device + "/ports/1";
    return File(port + "/state", state)
        .File(port + "/link_layer", "Ethernet")
        .File(port + "/rate", "2.5 Gb/sec (1X SDR)")
        .File("/sys/class/infiniband/" + device + "/parent", "eth7")
        .File("/dev/infiniband/uverbs0", "");
  }
  Node& Gid(const std::string& device, const std::string& index, const std::string& gid) {
    const std::string port = "/sys/class/infiniband/" + device + "/ports/1";
    return File(port + "/gids/" + index, gid)
        .File(port + "/gid_attrs/types/" + index, "RoCE v2")
        .File(port + "/gid_attrs/ndevs/" + index, "eth7");
  }
  Host& host() { return host_; }

 private:
  const testing::TestDirectory directory_;
  Host host_;
};

constexpr char kAddress[] = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
constexpr char kLinkLocal[] = "fe80:0000:0000:0000:0202:03ff:fe04:0506";

Finding Find(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return finding;
  }
  FAIL("nothing was found about " << check);
  return {};
}

TEST_CASE("A node without RDMA devices has no problem with that") {
  Node node;
  node.Limit("65536");
  CHECK(Find(CheckRdma(node.host()), "rdma devices").level == Level::kNote);
  CHECK(Find(CheckMemlock(node.host()), "memlock").level == Level::kGood);
}

TEST_CASE("Too little lockable memory is a problem where there is an RDMA device") {
  Node node;
  node.Port("rxe0", "4: ACTIVE").Limit("65536");
  Finding finding = Find(CheckMemlock(node.host()), "memlock");
  CHECK(finding.level == Level::kProblem);
  CHECK_THAT(finding.found, Contains("pid 77") && Contains("64 KiB"));
  CHECK_THAT(finding.advice, Contains("LimitMEMLOCK=infinity"));
  node.Capabilities("0000000000004000");
  CHECK(Find(CheckMemlock(node.host()), "memlock").level == Level::kGood);
  node.Capabilities("0000000000000000").Limit("unlimited");
  CHECK(Find(CheckMemlock(node.host()), "memlock").level == Level::kGood);
  node.host().daemon_pid = 78;
  finding = Find(CheckMemlock(node.host()), "memlock");
  CHECK(finding.level == Level::kNote);
  CHECK_THAT(finding.advice, Contains("root"));
}

TEST_CASE("Ports and their GIDs") {
  Node node;
  node.Port("rxe0", "4: ACTIVE").Gid("rxe0", "0", kLinkLocal).Gid("rxe0", "1", kAddress);
  std::vector<Finding> findings = CheckRdma(node.host());
  CHECK(Find(findings, "rdma port rxe0:1").level == Level::kGood);
  const Finding gids = Find(findings, "rdma gids rxe0:1");
  CHECK(gids.level == Level::kGood);
  CHECK(gids.found == std::string("1 ") + kAddress + " RoCE v2");

  node.Port("rxe1", "4: ACTIVE").Gid("rxe1", "0", kLinkLocal);
  Finding finding = Find(CheckRdma(node.host()), "rdma gids rxe1:1");
  CHECK(finding.level == Level::kProblem);
  CHECK_THAT(finding.advice, Contains("ip addr add") && Contains("eth7"));

  node.Port("rxe2", "1: DOWN");
  finding = Find(CheckRdma(node.host()), "rdma port rxe2:1");
  CHECK(finding.level == Level::kProblem);
  CHECK_THAT(finding.advice, Contains("ip link set eth7 up"));
}

TEST_CASE("What RDMA needs besides devices") {
  Node node;
  node.File("/sys/class/infiniband/mlx5_0/node_guid", "0");
  node.host().has_verbs_library = [] { return false; };
  const std::vector<Finding> findings = CheckRdma(node.host());
  CHECK_THAT(Find(findings, "rdma library").advice, Contains("libibverbs1"));
  CHECK_THAT(Find(findings, "rdma device file").advice, Contains("modprobe ib_uverbs"));
}

TEST_CASE("Huge pages") {
  Node node;
  const std::string pages = "/sys/kernel/mm/hugepages/hugepages-2048kB";
  CHECK(Find(CheckHugePages(node.host()), "huge pages").level == Level::kNote);
  node.File(pages + "/nr_hugepages", "64").File(pages + "/free_hugepages", "0");
  CHECK_THAT(Find(CheckHugePages(node.host()), "huge pages").advice, Contains("vm.nr_hugepages"));
  node.File(pages + "/free_hugepages", "3");
  CHECK(Find(CheckHugePages(node.host()), "huge pages").level == Level::kGood);
}

TEST_CASE("Yama's ptrace scope counts unless the daemon has the capability") {
  Node node;
  const std::string scope = "/proc/sys/kernel/yama/ptrace_scope";
  CHECK(CheckPtrace(node.host()).front().level == Level::kGood);
  CHECK(CheckPtrace(node.File(scope, "1").host()).front().level == Level::kGood);
  CHECK(CheckPtrace(node.File(scope, "2").host()).front().level == Level::kNote);
  node.Capabilities("0000000000080000");
  CHECK(CheckPtrace(node.host()).front().level == Level::kGood);
  CHECK(CheckPtrace(node.File(scope, "3").host()).front().level == Level::kNote);
}

TEST_CASE("The kernel's release, and its way to count memory") {
  Node node;
  const std::string release = "/proc/sys/kernel/osrelease";
  CHECK(CheckKernel(node.File(release, "6.1.0-51-amd64").host()).front().level == Level::kGood);
  CHECK(CheckKernel(node.File(release, "5.3.0").host()).front().level == Level::kGood);
  CHECK(CheckKernel(node.File(release, "5.2.21").host()).front().level == Level::kProblem);
  node.File("/proc/sys/vm/overcommit_memory", "2");
  CHECK(Find(CheckKernel(node.host()), "overcommit").level == Level::kNote);
}

TEST_CASE("A default congestion control that paces is worth a note") {
  Node node;
  const std::string control = "/proc/sys/net/ipv4/tcp_congestion_control";
  CHECK(CheckTcp(node.File(control, "cubic").host()).front().level == Level::kGood);
  const Finding finding = CheckTcp(node.File(control, "bbr").host()).front();
  CHECK(finding.level == Level::kNote);
  CHECK_THAT(finding.advice, Contains("tcp.congestion_control: cubic"));
  Host host = node.host();
  host.congestion_control = "cubic";  // the daemon's own choice
  CHECK(CheckTcp(host).front().level == Level::kGood);
  CHECK_THAT(CheckTcp(host).front().found, Contains("bbr") && Contains("uses cubic"));
  host.congestion_control = "bbr2";
  CHECK(CheckTcp(node.File(control, "cubic").host()).front().level == Level::kGood);
  CHECK(CheckTcp(host).front().level == Level::kNote);
}

TEST_CASE("The socket") {
  Node node;
  CHECK(CheckSocket(node.host()).front().level == Level::kNote);
  node.File("/hixld.sock", "");
  const Finding file = CheckSocket(node.host()).front();
  CHECK(file.level == Level::kProblem);
  CHECK_THAT(file.found, Contains("hixld.sock is no socket"));
}

TEST_CASE("A socket that this user may write is good") {
  Node node;
  const auto listener = ListenUnixSocket(node.host().socket_path, SOCK_STREAM, 0600, -1);
  REQUIRE(listener.ok());
  CHECK(CheckSocket(node.host()).front().level == Level::kGood);
}

TEST_CASE("This node can be examined, and every finding that is not good says what to do") {
  Host host;
  host.socket_path = "/run/hixld/hixld.sock";
  host.has_verbs_library = [] { return true; };
  const std::vector<Finding> findings = Examine(host);
  CHECK(findings.size() >= 6);
  for (const Finding& finding : findings) {
    INFO(finding.check << ": " << finding.found);
    CHECK_FALSE(finding.found.empty());
    CHECK(finding.advice.empty() == (finding.level == Level::kGood));
  }
}

}  // namespace
}  // namespace hixld::hixlctl
