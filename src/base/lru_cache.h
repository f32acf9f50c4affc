// A cache of limited size.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tessera {

/// Values by key. When there are too many, the one that has not been looked up for the longest time
/// is removed. Not safe for several threads at the same time.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(std::size_t max_size) : max_size_(max_size) {}
  LruCache(const LruCache&) = delete;
  LruCache& operator=(const LruCache&) = delete;

  /// The value of the key, or nullptr. Valid until the next insertion.
  Value* find(std::string_view key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    items_.splice(items_.begin(), items_, found->second);
    return &found->second->second;
  }

  /// The key must be new.
  Value& insert(std::string key, Value value) {
    items_.emplace_front(std::move(key), std::move(value));
    index_.emplace(items_.front().first, items_.begin());
    if (items_.size() > max_size_) {
      index_.erase(items_.back().first);
      items_.pop_back();
    }
    return items_.front().second;
  }

  std::size_t size() const { return items_.size(); }

 private:
  using Items = std::list<std::pair<std::string, Value>>;

  std::size_t max_size_;
  Items items_;  // the item looked up last comes first
  std::unordered_map<std::string_view, typename Items::iterator> index_;  // keys point into items_
};

}  // namespace tessera
