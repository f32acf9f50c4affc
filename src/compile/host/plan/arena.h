// The memory of an executable besides its arguments and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tessera::compile::host {

/// Free ranges of an arena, each with the tile that used it last.
class Arena {
 public:
  struct Range {
    std::int64_t size;
    std::vector<std::size_t> last_users;  // tiles whose tasks must end before reuse
  };

  /// Takes the smallest range that fits, or grows the arena at its end.
  std::int64_t take(std::int64_t bytes, std::vector<std::size_t>& previous_users) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) return grow(bytes, previous_users);
    const std::int64_t offset = best->second;
    Range range = remove(free_.find(offset));
    previous_users = range.last_users;
    if (range.size > bytes) {
      add(offset + bytes, Range{range.size - bytes, std::move(range.last_users)});
    }
    return offset;
  }

  void give_back(std::int64_t offset, std::int64_t bytes, std::size_t user) {
    auto it = add(offset, Range{bytes, {user}});
    auto next = std::next(it);
    if (next != free_.end() && offset + bytes == next->first) join(it, next);
    if (it == free_.begin()) return;
    auto before = std::prev(it);
    if (before->first + before->second.size == offset) join(before, it);
  }

  std::int64_t size() const { return size_; }

 private:
  using Ranges = std::map<std::int64_t, Range>;

  std::int64_t grow(std::int64_t bytes, std::vector<std::size_t>& previous_users) {
    std::int64_t offset = size_;
    if (!free_.empty()) {
      auto last = std::prev(free_.end());
      if (last->first + last->second.size == size_) {
        offset = last->first;
        previous_users = remove(last).last_users;
      }
    }
    size_ = offset + bytes;
    return offset;
  }

  Ranges::iterator add(std::int64_t offset, Range range) {
    by_size_.emplace(range.size, offset);
    return free_.emplace(offset, std::move(range)).first;
  }

  Range remove(Ranges::iterator place) {
    by_size_.erase({place->second.size, place->first});
    return std::move(free_.extract(place).mapped());
  }

  void join(Ranges::iterator into, Ranges::iterator next) {
    const Range gone = remove(next);
    by_size_.erase({into->second.size, into->first});
    into->second.size += gone.size;
    by_size_.emplace(into->second.size, into->first);
    auto& users = into->second.last_users;
    users.insert(users.end(), gone.last_users.begin(), gone.last_users.end());
  }

  Ranges free_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  // size and offset of each range
  std::int64_t size_ = 0;
};

}  // namespace tessera::compile::host
