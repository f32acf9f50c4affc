#include <atomic>
#include <cstdlib>

#include <tessera/error.h>

#include "run/executable.h"

namespace tessera::run {

namespace {

constexpr std::int64_t kAlignment = 64;  // a cache line, and the widest vector

std::atomic<std::int64_t> bytes_held{0};
std::atomic<std::int64_t> most_bytes_held{0};

void raise_most(std::int64_t held) {
  std::int64_t most = most_bytes_held.load(std::memory_order_relaxed);
  while (held > most &&
         !most_bytes_held.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
  }
}

}  // namespace

Buffer::Buffer(std::int64_t bytes) : size_(bytes) {
  const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment;
  data_ = static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded * kAlignment)));
  if (data_ == nullptr) {
    throw RuntimeFault("out of memory: " + std::to_string(bytes) +
                       " bytes for a buffer; use a smaller batch or a smaller model");
  }
  raise_most(bytes_held.fetch_add(size_, std::memory_order_relaxed) + size_);
}

Buffer::~Buffer() {
  bytes_held.fetch_sub(size_, std::memory_order_relaxed);
  std::free(data_);
}

std::int64_t Buffer::peak_bytes() { return most_bytes_held.load(std::memory_order_relaxed); }

void Buffer::reset_peak_bytes() {
  most_bytes_held.store(bytes_held.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace tessera::run
