#include "run/poison.h"

#include <cstring>

namespace tessera::run {

namespace {

constexpr int kNanByte = 0xFF;  // four of them are NaN as f32 and -1 as i32

}  // namespace

void Poison::start(const Executable& executable, std::byte* arena) {
  executable_ = &executable;
  arena_ = arena;
  if (kIsPoisoned && arena != nullptr) {
    std::memset(arena, kNanByte, static_cast<std::size_t>(executable.arena_bytes));
  }
  if (executable.dead_ranges.empty()) return;
  users_left_.clear();
  ranges_used_.assign(executable.tasks.size(), {});
  for (std::size_t range = 0; range < executable.dead_ranges.size(); ++range) {
    const std::vector<std::uint32_t>& users = executable.dead_ranges[range].users;
    users_left_.push_back(users.size());
    for (std::uint32_t user : users) ranges_used_[user].push_back(range);
  }
}

void Poison::fill_dead(std::uint32_t task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t range : ranges_used_[task]) {
    if (--users_left_[range] > 0) continue;
    const DeadRange& dead = executable_->dead_ranges[range];
    std::memset(arena_ + dead.offset, kNanByte, static_cast<std::size_t>(dead.bytes));
  }
}

}  // namespace tessera::run
