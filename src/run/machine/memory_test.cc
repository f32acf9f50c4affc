#include "run/machine/memory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "run/executable.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

/// Stands in for the kernel's files of a machine with 1 GiB of memory, 600 MiB of it free.
class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    char name[] = "/tmp/tessera_machine_XXXXXX";
    root_ = mkdtemp(name);
    write(
        "/proc/meminfo",
        "MemTotal:        1048576 kB\nMemFree:          100000 kB\nMemAvailable:     614400 kB\n");
  }
  ~MachineMemoryTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void write_group(const std::string& folder, const std::string& limit, std::int64_t used,
                   std::int64_t of_files) const {
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(used) + "\n");
    write(folder + "/memory.stat",
          "anon 4096\ninactive_file " + std::to_string(of_files) + "\nactive_file 0\n");
  }
  void expect(std::int64_t total, std::int64_t free) const {
    const MachineMemory memory = machine_memory(root_);
    EXPECT_EQ(memory.total, total * kMebibyte);
    EXPECT_EQ(memory.free, free * kMebibyte);
  }

  std::string root_;
};

TEST_F(MachineMemoryTest, WithoutGroups) { expect(1024, 600); }

TEST_F(MachineMemoryTest, AGroupWithoutALimit) {
  write("/proc/self/cgroup", "0::/user/me\n");
  write_group("/sys/fs/cgroup/user/me", "max", 300 * kMebibyte, 0);
  expect(1024, 600);
}

TEST_F(MachineMemoryTest, FilesInMemoryCanBeReadAgain) {
  write("/proc/self/cgroup", "0::/user/me\n");
  write_group("/sys/fs/cgroup/user/me", std::to_string(400 * kMebibyte), 350 * kMebibyte,
              200 * kMebibyte);
  expect(400, 250);
}

TEST_F(MachineMemoryTest, GroupsAboveLimitThoseBelow) {
  write("/proc/self/cgroup", "0::/user/me\n");
  write_group("/sys/fs/cgroup/user/me", std::to_string(500 * kMebibyte), 10 * kMebibyte, 0);
  write_group("/sys/fs/cgroup/user", std::to_string(300 * kMebibyte), 280 * kMebibyte, 0);
  expect(300, 20);
}

TEST_F(MachineMemoryTest, AContainerSeesItsGroupAsTheRoot) {
  write("/proc/self/cgroup", "0::/docker/0123\n");
  write_group("/sys/fs/cgroup", std::to_string(100 * kMebibyte), 120 * kMebibyte, 0);
  expect(100, 0);
}

TEST_F(MachineMemoryTest, TheFirstVersionOfGroups) {
  write("/proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/a\n0::/b\n");
  const std::string folder = "/sys/fs/cgroup/memory/a/";
  write(folder + "memory.limit_in_bytes", std::to_string(200 * kMebibyte));
  write(folder + "memory.usage_in_bytes", std::to_string(150 * kMebibyte));
  write(folder + "memory.stat", "total_inactive_file " + std::to_string(30 * kMebibyte) +
                                    "\ntotal_active_file " + std::to_string(20 * kMebibyte) + "\n");
  expect(200, 100);
}

TEST(MachineMemory, OfThisMachine) {
  const MachineMemory memory = machine_memory();
  EXPECT_GT(memory.total, 0);
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
}

TEST(MachineMemory, BuffersTakeNoMoreThanIsFree) {
  // More than is free, but little enough that the kernel itself would grant it.
  const std::int64_t bytes = machine_memory().free + 256 * kMebibyte;
  EXPECT_THROW(Buffer buffer(bytes), RuntimeFault);
  EXPECT_EQ(Buffer(128 * kMebibyte).size(), 128 * kMebibyte);
  set_overcommit(true);
  EXPECT_EQ(Buffer(bytes).size(), bytes);
  set_overcommit(false);
}

}  // namespace
}  // namespace tessera::run
