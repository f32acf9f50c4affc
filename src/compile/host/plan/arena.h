// The memory of an executable besides its arguments and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tessera::compile::host {

/// A range of an arena, with the tiles whose tasks must end before it is used again.
struct FreeRange {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::vector<std::size_t> last_users = {};
};

/// Ranges that may be used. Adjacent ones are joined.
class FreeRanges {
 public:
  /// The beginning of the smallest range that fits; the rest of it stays free.
  std::optional<FreeRange> take(std::int64_t bytes) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) return std::nullopt;
    FreeRange range = remove(ranges_.find(best->second));
    if (range.size > bytes) {
      insert({.offset = range.offset + bytes,
              .size = range.size - bytes,
              .last_users = range.last_users});
      range.size = bytes;
    }
    return range;
  }
  /// The free range that ends at `end`.
  std::optional<FreeRange> take_before(std::int64_t end) {
    if (ranges_.empty()) return std::nullopt;
    const auto last = std::prev(ranges_.end());
    if (last->second.offset + last->second.size != end) return std::nullopt;
    return remove(last);
  }
  std::vector<FreeRange> take_all() {
    std::vector<FreeRange> all;
    for (auto& [offset, range] : ranges_) all.push_back(std::move(range));
    ranges_.clear();
    by_size_.clear();
    return all;
  }

  void add(FreeRange range) {
    const std::int64_t end = range.offset + range.size;
    auto it = insert(std::move(range));
    auto next = std::next(it);
    if (next != ranges_.end() && end == next->first) join(it, next);
    if (it == ranges_.begin()) return;
    auto before = std::prev(it);
    if (before->first + before->second.size == it->first) join(before, it);
  }

 private:
  using Ranges = std::map<std::int64_t, FreeRange>;  // by offset

  Ranges::iterator insert(FreeRange range) {
    by_size_.emplace(range.size, range.offset);
    const std::int64_t offset = range.offset;
    return ranges_.emplace(offset, std::move(range)).first;
  }

  FreeRange remove(Ranges::iterator place) {
    by_size_.erase({place->second.size, place->first});
    return std::move(ranges_.extract(place).mapped());
  }

  void join(Ranges::iterator into, Ranges::iterator next) {
    const FreeRange gone = remove(next);
    by_size_.erase({into->second.size, into->first});
    into->second.size += gone.size;
    by_size_.emplace(into->second.size, into->first);
    auto& users = into->second.last_users;
    users.insert(users.end(), gone.last_users.begin(), gone.last_users.end());
  }

  Ranges ranges_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  // size and offset of each range
};

/// A task that takes memory waits for the last users of that memory. These users may in turn wait
/// for an exchange of messages with other processes; exchanges are numbered from 1 on. Until such
/// an exchange counts as ended, the memory is only given to tasks that wait for the exchange
/// anyway. Other tasks would wait for it just to get memory.
class Arena {
 public:
  /// Takes the smallest range that fits, or grows the arena at its end. `exchange`: the last one
  /// that the new user waits for, 0 if none.
  std::int64_t take(std::int64_t bytes, std::int64_t exchange,
                    std::vector<std::size_t>& previous_users) {
    std::optional<FreeRange> range;
    for (auto it = open_.begin(); !range && it != open_.end() && it->first <= exchange; ++it) {
      range = it->second.take(bytes);
    }
    if (!range) range = free_.take(bytes);
    if (!range) range = grow(bytes);
    previous_users = std::move(range->last_users);
    return range->offset;
  }
  /// `exchange`: the last one that the last user, a tile, waits for.
  void give_back(std::int64_t offset, std::int64_t bytes, std::size_t user, std::int64_t exchange) {
    FreeRanges& ranges = exchange > last_ended_ ? open_[exchange] : free_;
    ranges.add({.offset = offset, .size = bytes, .last_users = {user}});
  }
  /// The exchange and those before it count as ended.
  void end_exchange(std::int64_t exchange) {
    last_ended_ = exchange;
    while (!open_.empty() && open_.begin()->first <= exchange) {
      for (FreeRange& range : open_.begin()->second.take_all()) free_.add(std::move(range));
      open_.erase(open_.begin());
    }
  }

  std::int64_t size() const { return size_; }

 private:
  FreeRange grow(std::int64_t bytes) {
    FreeRange range = free_.take_before(size_).value_or(FreeRange{.offset = size_});
    range.size = bytes;
    size_ = range.offset + bytes;
    return range;
  }

  FreeRanges free_;
  std::map<std::int64_t, FreeRanges> open_;  // by exchange
  std::int64_t last_ended_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace tessera::compile::host
