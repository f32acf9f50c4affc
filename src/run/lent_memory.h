// Buffers that use memory which the caller owns.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "run/executable.h"

namespace tessera::run {

/// A Buffer gets this instead of memory of its own: Buffer::data() then returns this memory, which
/// is given back when the buffer is destroyed. It must be aligned like a buffer's own memory, and
/// is never written.
class LentMemory final : public DeviceCopies {
 public:
  LentMemory(std::span<std::byte> bytes, std::function<void()> give_back)
      : bytes_(bytes), give_back_(std::move(give_back)) {}
  ~LentMemory() override { give_back_(); }
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  std::byte* data() const { return bytes_.data(); }
  void wait() const override {}
  void read(std::span<std::byte> to) const override { std::ranges::copy(bytes_, to.begin()); }

 private:
  std::span<std::byte> bytes_;
  std::function<void()> give_back_;
};

/// Whether the memory of the buffer is lent.
inline bool is_lent(const Buffer& buffer) {
  return std::dynamic_pointer_cast<const LentMemory>(buffer.copies()) != nullptr;
}

}  // namespace tessera::run
