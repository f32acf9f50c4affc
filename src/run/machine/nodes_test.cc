#include "run/machine/nodes.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "run/machine/cores.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

/// The CPUs that a thread may use after binding itself to `cpus`.
std::vector<int> after_binding(const NodeCpus& cpus) {
  std::vector<int> found;
  std::thread([&] {
    bind_this_thread(cpus);
    found = allowed_cpus();
  }).join();
  return found;
}

std::vector<int> own_cpus() { return after_binding({}); }

TEST(Nodes, AreThoseWithCpusThatTheThreadMayUse) {
  char name[] = "/tmp/tessera_nodes_XXXXXX";
  const std::string root = mkdtemp(name);
  const auto write = [&](const std::string& path, const std::string& text) {
    const fs::path full = root + "/sys/devices/system/node/" + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  };
  const std::vector<int> own = own_cpus();
  write("online", "0-1,3");
  write("node0/cpulist", std::to_string(own.back()));
  write("node1/cpulist", "100000-100003");  // CPUs that are not allowed
  write("node3/cpulist", std::to_string(own.front()) + ",100004");
  EXPECT_EQ(usable_nodes(root), (std::vector<NodeCpus>{{own.back()}, {own.front()}}));
  fs::remove_all(root);
  EXPECT_TRUE(usable_nodes(root).empty());
}

TEST(Nodes, OfThisMachineHaveAllCpus) {
  std::size_t count = 0;
  for (const NodeCpus& node : usable_nodes()) count += node.size();
  if (count == 0) GTEST_SKIP() << "this kernel has no NUMA nodes";
  EXPECT_EQ(count, own_cpus().size());
}

TEST(Nodes, AreFilledOneAfterTheOther) {
  const std::vector<NodeCpus> nodes = {{0, 1}, {2, 3, 4}};
  using Nodes = std::vector<std::size_t>;
  EXPECT_EQ(nodes_of_threads(nodes, 1), (Nodes{0}));
  EXPECT_EQ(nodes_of_threads(nodes, 4), (Nodes{0, 0, 1, 1}));
  EXPECT_EQ(nodes_of_threads(nodes, 7), (Nodes{0, 0, 1, 1, 1, 0, 0}));
  EXPECT_TRUE(nodes_of_threads({}, 3).empty());
}

TEST(Nodes, ThreadsAreBound) {
  const std::vector<int> own = own_cpus();
  EXPECT_EQ(after_binding({own.back()}), std::vector<int>{own.back()});
}

}  // namespace
}  // namespace tessera::run
