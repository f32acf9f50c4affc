// Memory for the matrices that a factorisation works on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "compile/host/kernels/linalg/strips.h"

namespace tessera::kernels {

/// Hands out memory of the calling thread, which the thread keeps for the next factorisation:
/// getting new pages would take as long as some factorisations do. The destructor takes back all
/// that was handed out.
class MatrixMemory {
 public:
  MatrixMemory()
      : pool_(pool_of_thread()),
        blocks_before_(pool_.used_blocks),
        bytes_before_(pool_.used_bytes) {}
  MatrixMemory(const MatrixMemory&) = delete;
  MatrixMemory& operator=(const MatrixMemory&) = delete;
  ~MatrixMemory() { pool_.reset(blocks_before_, bytes_before_); }

  /// Aligned to 64 bytes, and not initialised.
  template <typename T>
  T* take(std::int64_t count) {
    return static_cast<T*>(pool_.take((count * std::int64_t{sizeof(T)} + 63) / 64 * 64));
  }
  template <typename T>
  T* take_zeros(std::int64_t count) {
    T* data = take<T>(count);
    std::fill_n(data, count, T{});
    return data;
  }
  template <typename T>
  Strips<T> take_strips(std::int64_t rows, std::int64_t cols) {
    return {take<T>(rows * Strips<T>::count_for(cols) * kStripWidth<T>), rows, cols};
  }
  template <typename T>
  Strips<T> take_zero_strips(std::int64_t rows, std::int64_t cols) {
    return {take_zeros<T>(rows * Strips<T>::count_for(cols) * kStripWidth<T>), rows, cols};
  }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  struct Block {
    std::unique_ptr<void, Free> data;
    std::int64_t bytes;
  };
  static constexpr std::int64_t kMostBytesKept = std::int64_t{64} << 20;

  struct Pool {
    std::vector<Block> blocks;
    std::size_t used_blocks = 0;                         // before the one that is used now
    std::int64_t used_bytes = 0;                         // of that one
    std::int64_t least_bytes = std::int64_t{64} * 1024;  // of a new one

    void add_block(std::int64_t bytes) {
      void* data = std::aligned_alloc(64, static_cast<std::size_t>(bytes));
      if (data == nullptr) throw std::bad_alloc();
      blocks.push_back({std::unique_ptr<void, Free>(data), bytes});
    }

    void* take(std::int64_t bytes) {
      while (used_blocks < blocks.size() && used_bytes + bytes > blocks[used_blocks].bytes) {
        ++used_blocks;
        used_bytes = 0;
      }
      if (used_blocks == blocks.size()) add_block(std::max(bytes, least_bytes));
      void* taken = static_cast<std::byte*>(blocks[used_blocks].data.get()) + used_bytes;
      used_bytes += bytes;
      return taken;
    }

    void reset(std::size_t blocks_before, std::int64_t bytes_before) noexcept {
      used_blocks = blocks_before;
      used_bytes = bytes_before;
      if (used_blocks > 0 || used_bytes > 0) return;
      std::int64_t bytes = 0;
      for (const Block& block : blocks) bytes += block.bytes;
      if (bytes > kMostBytesKept) {
        blocks.clear();
      } else if (blocks.size() > 1) {  // next time, one block has room for all
        blocks.clear();
        least_bytes = bytes;
      }
    }
  };

  static Pool& pool_of_thread() {
    thread_local Pool pool;
    return pool;
  }

  Pool& pool_;
  std::size_t blocks_before_;
  std::int64_t bytes_before_;
};

/// The matrix in strips, with zeros beyond its last column.
template <typename T>
Strips<T> load_strips(MatrixMemory& memory, std::int64_t rows, std::int64_t cols, const T* data,
                      std::int64_t stride) {
  const Strips<T> strips = memory.take_strips<T>(rows, cols);
  for (std::int64_t s = 0; s < strips.count(); ++s) {
    const std::int64_t first = s * kStripWidth<T>;
    const std::int64_t width = std::min(kStripWidth<T>, cols - first);
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* from = data + i * stride + first;
      T* to = strips.strip(s, i);
      if (width == kStripWidth<T>) {
        std::copy_n(from, kStripWidth<T>, to);
      } else {
        for (std::int64_t j = 0; j < kStripWidth<T>; ++j) to[j] = j < width ? from[j] : T{};
      }
    }
  }
  return strips;
}

template <typename T>
void store_strips(const Strips<T>& strips, T* data, std::int64_t stride) {
  for (std::int64_t s = 0; s < strips.count(); ++s) {
    const std::int64_t first = s * kStripWidth<T>;
    const std::int64_t width = std::min(kStripWidth<T>, strips.cols - first);
    for (std::int64_t i = 0; i < strips.rows; ++i) {
      const T* from = strips.strip(s, i);
      T* to = data + i * stride + first;
      if (width == kStripWidth<T>) {
        std::copy_n(from, kStripWidth<T>, to);
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[j] = from[j];
      }
    }
  }
}

}  // namespace tessera::kernels
