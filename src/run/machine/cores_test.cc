#include "run/machine/cores.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

/// Replaces the kernel's files of control groups by files in a separate folder.
class UsableCores : public ::testing::Test {
 protected:
  UsableCores() {
    char name[] = "/tmp/tessera_cores_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~UsableCores() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  std::string root_;
  int all_ = usable_cores("/nowhere");  // without control groups
};

/// Uses a separate thread for the mask, because a mask cannot always be widened again.
int cores_with_mask(int num_cores) {
  int found = 0;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&mask) < num_cores; ++core) {
      if (CPU_ISSET(core, &allowed)) CPU_SET(core, &mask);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    found = usable_cores("/nowhere");
  }).join();
  return found;
}

TEST_F(UsableCores, AreThoseOfTheAffinityMask) {
  EXPECT_GE(all_, 1);
  for (int cores = 1; cores <= std::min(all_, 4); ++cores) EXPECT_EQ(cores_with_mask(cores), cores);
}

TEST_F(UsableCores, AGroupWithoutALimit) {
  write("/proc/self/cgroup", "0::/user/me");
  write("/sys/fs/cgroup/user/me/cpu.max", "max 100000");
  EXPECT_EQ(usable_cores(root_), all_);
}

TEST_F(UsableCores, AQuotaIsRoundedDown) {
  write("/proc/self/cgroup", "0::/user/me");
  write("/sys/fs/cgroup/user/me/cpu.max", "190000 100000");
  EXPECT_EQ(usable_cores(root_), 1);
  write("/sys/fs/cgroup/user/me/cpu.max", "50000 100000");
  EXPECT_EQ(usable_cores(root_), 1);
  write("/sys/fs/cgroup/user/me/cpu.max", "200000 100000");
  EXPECT_EQ(usable_cores(root_), std::min(all_, 2));
}

TEST_F(UsableCores, GroupsAboveLimitThoseBelow) {
  write("/proc/self/cgroup", "0::/user/me");
  write("/sys/fs/cgroup/user/me/cpu.max", "max 100000");
  write("/sys/fs/cgroup/user/cpu.max", "100000 100000");
  EXPECT_EQ(usable_cores(root_), 1);
}

TEST_F(UsableCores, TheFirstVersionOfGroups) {
  write("/proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/a");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usable_cores(root_), all_);
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000");
  EXPECT_EQ(usable_cores(root_), 1);
}

}  // namespace
}  // namespace tessera::run
