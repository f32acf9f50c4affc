// A list that allocates no memory while it is short.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera {

/// Like std::vector, for trivially copyable items; up to `kShort` of them are stored in the list
/// itself.
template <typename T, std::size_t kShort>
class SmallList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;  // NOLINT(readability-identifier-naming)

  SmallList() = default;
  SmallList(std::initializer_list<T> items) : SmallList(items.begin(), items.end()) {}
  template <std::forward_iterator I>
  SmallList(I first, I last) {
    insert(end(), first, last);
  }
  explicit SmallList(std::size_t size, T value = T()) { resize(size, value); }
  SmallList(const SmallList& other) : SmallList(other.begin(), other.end()) {}
  SmallList(SmallList&& other) noexcept { take(other); }
  SmallList& operator=(const SmallList& other) {
    if (this == &other) return *this;
    clear();
    insert(end(), other.begin(), other.end());
    return *this;
  }
  SmallList& operator=(SmallList&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~SmallList() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return long_ ? long_.get() : short_; }
  const T* data() const { return long_ ? long_.get() : short_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  auto rbegin() const { return std::reverse_iterator(end()); }
  auto rend() const { return std::reverse_iterator(begin()); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }

  void clear() { size_ = 0; }
  void push_back(T item) { insert(end(), item); }
  void pop_back() { --size_; }
  void resize(std::size_t size, T value = T()) {
    const std::size_t old_size = size_;
    set_size(size);
    if (size > old_size) std::fill(begin() + old_size, end(), value);
  }
  T* insert(const T* before, T item) { return insert(before, &item, &item + 1); }
  template <std::forward_iterator I>
  T* insert(const T* before, I first, I last) {
    const auto at = before - data();
    const auto old_size = static_cast<std::ptrdiff_t>(size_);
    set_size(size_ + static_cast<std::size_t>(std::distance(first, last)));
    std::copy_backward(begin() + at, begin() + old_size, end());
    std::copy(first, last, begin() + at);
    return begin() + at;
  }
  T* erase(const T* first, const T* last) {
    T* const at = begin() + (first - data());
    size_ = static_cast<std::uint32_t>(std::copy(last, std::as_const(*this).end(), at) - data());
    return at;
  }
  T* erase(const T* at) { return erase(at, at + 1); }

  friend bool operator==(const SmallList& a, const SmallList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const SmallList& a, const SmallList& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void set_size(std::size_t size) {
    if (size > capacity_) {
      const std::size_t capacity = std::max<std::size_t>(size, 2 * std::size_t{capacity_});
      auto grown = std::make_unique<T[]>(capacity);
      std::copy(begin(), end(), grown.get());
      long_ = std::move(grown);
      capacity_ = static_cast<std::uint32_t>(capacity);
    }
    size_ = static_cast<std::uint32_t>(size);
  }
  void take(SmallList& other) {
    long_ = std::move(other.long_);
    std::copy_n(other.short_, kShort, short_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kShort);
  }

  std::unique_ptr<T[]> long_;
  T short_[kShort] = {};
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kShort;
};

/// Removes all items equal to `item`.
template <typename T, std::size_t kShort>
void erase(SmallList<T, kShort>& list, const T& item) {
  list.erase(std::remove(list.begin(), list.end(), item), list.end());
}

}  // namespace tessera
