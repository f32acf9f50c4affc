// Ops on sliding windows: convolution and pooling.
//
//   Array y = conv(images, kernel, {.strides = {2, 2}, .padding = "SAME"});
//   Array z = max_pool(y, {2, 2}, {2, 2});
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include <tessera/ops.h>

namespace tessera {

/// What is added around an array before windows slide over it: "VALID" for nothing, "SAME" for
/// ceil(size / stride) windows per dimension, or the widths before and after each dimension.
class Padding {
 public:
  Padding(const char* name) : name_(name) {}                          // NOLINT
  Padding(std::vector<std::pair<std::int64_t, std::int64_t>> widths)  // NOLINT
      : widths_(std::move(widths)) {}
  /// Empty for a list of widths.
  std::string_view name() const { return name_; }
  const std::vector<std::pair<std::int64_t, std::int64_t>>& widths() const { return widths_; }

 private:
  std::string_view name_;
  std::vector<std::pair<std::int64_t, std::int64_t>> widths_;
};

/// Lists have one entry per dimension of the window; an empty list means ones.
struct ConvOptions {
  std::vector<std::int64_t> strides = {};
  Padding padding = "VALID";
  /// Inserts input_dilation - 1 zeros between neighbouring elements of the array.
  std::vector<std::int64_t> input_dilation = {};
  /// The distance between neighbouring elements of the kernel.
  std::vector<std::int64_t> kernel_dilation = {};
  /// The number of groups of channels; each has its own part of the kernel.
  std::int64_t feature_group_count = 1;
};
/// An array [n, space.., channels] and a kernel [window.., channels / groups, features] ->
/// [n, space.., features]. The kernel is not reversed. Padding counts as zeros.
Array conv(Operand x, Operand kernel, const ConvOptions& options = {});

/// The sum, maximum or minimum of each window, which has one size per dimension of x. Padding does
/// not change the result.
Array reduce_window_sum(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");
Array reduce_window_max(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");
Array reduce_window_min(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");

/// For x [n, space.., channels] and a window over space. As in Flax, avg_pool divides by the size
/// of the window, including padding.
Array max_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");
Array min_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");
Array avg_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");

}  // namespace tessera
