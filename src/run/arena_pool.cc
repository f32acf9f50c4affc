#include "run/arena_pool.h"

#include <algorithm>

namespace tessera::run {

namespace {

bool is_smaller(const std::unique_ptr<Buffer>& arena, std::int64_t bytes) {
  return arena->size() < bytes;
}

}  // namespace

ArenaPool::Arenas::const_iterator ArenaPool::smallest_of(std::int64_t bytes) const {
  return std::lower_bound(free_.begin(), free_.end(), bytes, is_smaller);
}

std::int64_t ArenaPool::new_bytes(std::int64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (smallest_of(bytes) != free_.end()) return 0;
  // take() would first free the arenas beyond this.
  const std::int64_t most = std::max(most_needed_, needed_ + bytes);
  std::int64_t after = held_bytes_ + bytes;
  for (auto it = free_.rbegin(); it != free_.rend() && after > most; ++it) after -= (*it)->size();
  return std::max<std::int64_t>(0, after - held_bytes_);
}

std::int64_t ArenaPool::held_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_bytes_;
}

std::unique_ptr<Buffer> ArenaPool::take(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Buffer> arena;
  if (const auto found = smallest_of(bytes); found != free_.end()) {
    const auto place = free_.begin() + (found - free_.cbegin());
    arena = std::move(*place);
    free_.erase(place);
  } else {
    // give_back() must not allocate.
    free_.reserve(free_.size() + num_in_use_ + 1);
    drop_beyond(std::max(most_needed_, needed_ + bytes) - bytes);
    arena = std::make_unique<Buffer>(bytes, Buffer::Use::arena);
    held_bytes_ += bytes;
  }
  num_in_use_ += 1;
  needed_ += bytes;
  most_needed_ = std::max(most_needed_, needed_);
  return arena;
}

void ArenaPool::give_back(std::unique_ptr<Buffer> arena, std::int64_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  num_in_use_ -= 1;
  needed_ -= bytes;
  const auto place = smallest_of(arena->size());
  free_.insert(free_.begin() + (place - free_.cbegin()), std::move(arena));
  drop_beyond(most_needed_);
}

/// Frees arenas that are not in use, the largest first, until the pool holds at most `bytes`.
void ArenaPool::drop_beyond(std::int64_t bytes) noexcept {
  while (held_bytes_ > bytes && !free_.empty()) {
    held_bytes_ -= free_.back()->size();
    free_.pop_back();
  }
}

}  // namespace tessera::run
