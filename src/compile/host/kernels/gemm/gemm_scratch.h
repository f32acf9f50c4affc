// Memory for packed operands and sums.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// The scratch memory of one thread. It grows to the size of the largest plan that the thread has
/// run.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  float* reserve(std::int64_t floats) {
    if (floats > size_) {
      std::free(data_);
      size_ = 0;
      data_ = static_cast<float*>(
          std::aligned_alloc(64, static_cast<std::size_t>(ceil_div(floats, 16) * 64)));
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = floats;
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace tessera::kernels::gemm
