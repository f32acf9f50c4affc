// Products channel by channel: depthwise convolutions and the gradients of their kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Matrix products on the same buffers with one column, and one batch per channel, where channels
/// are adjacent in memory. Each lane of a vector holds a channel, so that every element is read in
/// place. The results have the bits of GemmPlan.
class ChannelProducts {
 public:
  /// Empty if the problems are not of this kind, or if they have both many rows and many terms.
  static std::optional<ChannelProducts> of(std::span<const GemmProblem> problems, int num_workers);
  ~ChannelProducts();
  ChannelProducts(ChannelProducts&&) noexcept;
  ChannelProducts& operator=(ChannelProducts&&) noexcept;

  std::int64_t flops() const;
  /// Parts are independent.
  int num_parts() const;
  /// The most memory that a thread uses.
  std::int64_t scratch_bytes() const;
  void run(const float* a, const float* b, float* c, int part) const;

  struct State;

 private:
  explicit ChannelProducts(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
