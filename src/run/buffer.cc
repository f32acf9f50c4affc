#include <cstdlib>

#include <tessera/error.h>

#include "run/executable.h"

namespace tessera::run {

namespace {

constexpr std::int64_t kAlignment = 64;  // a cache line, and the widest vector

}  // namespace

Buffer::Buffer(std::int64_t bytes) : size_(bytes) {
  const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment;
  data_ = static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded * kAlignment)));
  if (data_ == nullptr) {
    throw RuntimeFault("out of memory: " + std::to_string(bytes) +
                       " bytes for a buffer; use a smaller batch or a smaller model");
  }
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace tessera::run
