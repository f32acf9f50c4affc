// Mistakes in convolution and pooling.
#include <gtest/gtest.h>

#include <tessera/functions.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(WindowErrors, StridesOfAnotherRank) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel, {.strides = {2}}); });
  EXPECT_EQ(error.text,
            "conv: the strides do not match the window\n"
            "  where:  <this line>\n"
            "  found:  [2]\n"
            "  wanted: 2 numbers of 1 or more\n"
            "  cure:   give one number per dimension of the window, or none");
}

TEST(WindowErrors, DilationOfZero) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel, {.kernel_dilation = {0, 1}}); });
  EXPECT_EQ(error.text,
            "conv: the kernel dilations do not match the window\n"
            "  where:  <this line>\n"
            "  found:  [0,1]\n"
            "  wanted: 2 numbers of 1 or more\n"
            "  cure:   give one number per dimension of the window, or none");
}

TEST(WindowErrors, UnknownPadding) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel, {.padding = "FULL"}); });
  EXPECT_EQ(error.text,
            "conv: the padding does not match the window\n"
            "  where:  <this line>\n"
            "  found:  \"FULL\"\n"
            "  wanted: \"VALID\", \"SAME\" or 2 pairs of 0 or more\n"
            "  cure:   give one pair per dimension of the window");
}

TEST(WindowErrors, PaddingForOneDimension) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel, {.padding = {{{1, 1}}}}); });
  EXPECT_EQ(error.text,
            "conv: the padding does not match the window\n"
            "  where:  <this line>\n"
            "  found:  [1] and [1]\n"
            "  wanted: \"VALID\", \"SAME\" or 2 pairs of 0 or more\n"
            "  cure:   give one pair per dimension of the window");
}

TEST(WindowErrors, ChannelsOfAnotherKernel) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { conv(images, ones({3, 3, 4, 8})); });
  EXPECT_EQ(error.text,
            "conv: the channels do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[1,8,8,3] and f32[3,3,4,8]\n"
            "  wanted: a kernel for 3 / 1 channels, and a number of features that 1 divides\n"
            "  cure:   check the last dimensions and feature_group_count");
}

TEST(WindowErrors, GroupsDoNotDivide) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel, {.feature_group_count = 2}); });
  EXPECT_EQ(error.text,
            "conv: the channels do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[1,8,8,3] and f32[3,3,3,8]\n"
            "  wanted: a kernel for 3 / 2 channels, and a number of features that 2 divides\n"
            "  cure:   check the last dimensions and feature_group_count");
}

TEST(WindowErrors, KernelWithoutFeatures) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { conv(images, ones({3, 3, 3})); });
  EXPECT_EQ(error.text,
            "conv: the ranks do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[1,8,8,3] and f32[3,3,3]\n"
            "  wanted: an array [n, space.., channels], a kernel [window.., channels / groups, "
            "features]\n"
            "  cure:   reshape one of them");
}

TEST(WindowErrors, DilatedKernelIsLargerThanTheImage) {
  const Array images = ones({1, 5, 5, 3}), kernel = ones({4, 4, 3, 8});
  const ConvOptions dilated{.kernel_dilation = {3, 3}};
  const Caught error = caught([&] { conv(images, kernel, dilated); });
  EXPECT_EQ(error.text,
            "conv: dimension 0 of the window does not fit: 10 elements in 5\n"
            "  where:  <this line>\n"
            "  found:  f32[1,5,5,3], f32[4,4,3,8]\n"
            "  wanted: a window of 1 or more elements that fits in the array\n"
            "  cure:   use a smaller kernel, or pad the array first");
}

TEST(WindowErrors, KernelIsLargerThanTheImage) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { conv(images, ones({9, 9, 3, 8})); });
  EXPECT_EQ(error.text,
            "conv: dimension 0 of the window does not fit: 9 elements in 8\n"
            "  where:  <this line>\n"
            "  found:  f32[1,8,8,3], f32[9,9,3,8]\n"
            "  wanted: a window of 1 or more elements that fits in the array\n"
            "  cure:   use a smaller kernel, or pad the array first");
}

TEST(WindowErrors, PoolOverEveryDimension) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { max_pool(images, {1, 2, 2, 1}); });
  EXPECT_EQ(error.text,
            "max_pool: the window does not match the array\n"
            "  where:  <this line>\n"
            "  found:  [1,2,2,1] and f32[1,8,8,3]\n"
            "  wanted: one entry per spatial dimension of [n, space.., channels]\n"
            "  cure:   leave out the entries for n and channels");
}

TEST(WindowErrors, PoolIsLargerThanTheImage) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { max_pool(images, {9, 2}); });
  EXPECT_EQ(error.text,
            "max_pool: the window is larger than the array\n"
            "  where:  <this line>\n"
            "  found:  9 elements along axis 1 of f32[1,8,8,3]\n"
            "  wanted: at most 8\n"
            "  cure:   use a smaller window, or the padding \"SAME\"");
}

TEST(WindowErrors, WindowOfAnotherRank) {
  const Array images = ones({1, 8, 8, 3});
  const Caught error = caught([&] { reduce_window_sum(images, {2, 2}); });
  EXPECT_EQ(error.text,
            "reduce_window_sum: the sizes do not match the window\n"
            "  where:  <this line>\n"
            "  found:  [2,2]\n"
            "  wanted: 4 numbers of 1 or more\n"
            "  cure:   give one number per dimension of the window, or none");
}

TEST(WindowErrors, ChannelsBeforeSpace) {
  const Array images = ones({1, 3, 8, 8});
  const Array kernel = ones({3, 3, 3, 8});
  const Caught error = caught([&] { conv(images, kernel); });
  EXPECT_EQ(error.text,
            "conv: the channels do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[1,3,8,8] and f32[3,3,3,8]\n"
            "  wanted: a kernel for 8 / 1 channels, and a number of features that 1 divides\n"
            "  cure:   the channels of the array come last: write transpose(x, {0, 2, 3, 1})");
  EXPECT_EQ(conv(transpose(images, {0, 2, 3, 1}), kernel).shape(), (Shape{1, 6, 6, 8}));
}

TEST(WindowErrors, KernelWithFeaturesFirst) {
  const Array images = ones({1, 8, 8, 3});
  const Array kernel = ones({16, 3, 5, 5});
  const Caught error = caught([&] { conv(images, kernel); });
  EXPECT_EQ(
      error.text,
      "conv: the channels do not match\n"
      "  where:  <this line>\n"
      "  found:  f32[1,8,8,3] and f32[16,3,5,5]\n"
      "  wanted: a kernel for 3 / 1 channels, and a number of features that 1 divides\n"
      "  cure:   a kernel [features, channels, window..] is moved by transpose(kernel, {2, 3, "
      "1, 0})");
  EXPECT_EQ(conv(images, transpose(kernel, {2, 3, 1, 0})).shape(), (Shape{1, 4, 4, 16}));
}

}  // namespace
}  // namespace tessera
