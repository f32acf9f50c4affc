// The arenas of executions, kept for the next ones.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "run/executable.h"

namespace tessera::run {

/// Holds no more bytes than executions have needed at the same time, except while a larger arena
/// than needed is in use.
class ArenaPool {
 public:
  /// An arena in use.
  class Lease {
   public:
    /// Throws RuntimeFault if there is not enough memory.
    Lease(ArenaPool& pool, std::int64_t bytes)
        : pool_(pool), bytes_(bytes), arena_(pool.take(bytes)) {}
    ~Lease() { pool_.give_back(std::move(arena_), bytes_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    std::byte* data() { return arena_->data(); }

   private:
    ArenaPool& pool_;
    std::int64_t bytes_;
    std::unique_ptr<Buffer> arena_;
  };

  /// The bytes by which the pool would grow if an arena of this size were taken now.
  std::int64_t new_bytes(std::int64_t bytes) const;
  /// The bytes of all arenas, in use or not.
  std::int64_t held_bytes() const;

 private:
  using Arenas = std::vector<std::unique_ptr<Buffer>>;
  std::unique_ptr<Buffer> take(std::int64_t bytes);
  void give_back(std::unique_ptr<Buffer> arena, std::int64_t bytes) noexcept;
  Arenas::const_iterator smallest_of(std::int64_t bytes) const;
  void drop_beyond(std::int64_t bytes) noexcept;

  mutable std::mutex mutex_;
  Arenas free_;                   // by size
  std::int64_t held_bytes_ = 0;   // of all arenas
  std::int64_t needed_ = 0;       // bytes that the executions in flight asked for
  std::int64_t most_needed_ = 0;  // the maximum of needed_ so far
  std::size_t num_in_use_ = 0;
};

}  // namespace tessera::run
