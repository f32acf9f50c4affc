// Random problems for the tests of matrix products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels::problems {

using Ends = std::vector<std::int64_t>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Random {
  std::mt19937 engine{7};
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }

  // Values whose sums round, cancel and underflow; `special` adds infinities.
  float value(bool special) {
    const auto unit = std::uniform_real_distribution<float>(-1.0f, 1.0f)(engine);
    switch (integer(0, 31)) {
      case 0:
        return 0.0f;
      case 1:
        return -0.0f;
      case 2:
        return unit * std::numeric_limits<float>::denorm_min() * 1e4f;
      case 3:
        return unit * 1e-30f;
      case 4:
        return unit * 1e18f;
      case 5:
        return special && integer(0, 20) == 0 ? std::numeric_limits<float>::infinity() : unit;
      default:
        return unit;
    }
  }

  std::vector<float> values(std::int64_t count, bool special) {
    std::vector<float> out(at(count));
    for (float& x : out) x = value(special);
    return out;
  }
};

enum class Layout { unit_k, unit_outer, heads, strided, swapped_k, windows, kernel, any, kCount };

inline std::vector<std::int64_t> steps(std::int64_t count, std::int64_t stride) {
  std::vector<std::int64_t> out(at(count));
  for (std::int64_t i = 0; i < count; ++i) out[at(i)] = i * stride;
  return out;
}

// Offsets of a k that runs over two dimensions; either may be the contiguous one.
inline std::vector<std::int64_t> two_dims(std::int64_t count, std::int64_t inner,
                                          std::int64_t inner_stride, std::int64_t outer_stride) {
  std::vector<std::int64_t> out(at(count));
  for (std::int64_t i = 0; i < count; ++i)
    out[at(i)] = i % inner * inner_stride + i / inner * outer_stride;
  return out;
}

inline GemmOperand make_operand(Random& random, Layout layout, std::int64_t batches,
                                std::int64_t outer, std::int64_t k, std::int64_t* size) {
  const std::int64_t pad = random.integer(0, 3);
  GemmOperand out{steps(batches, outer * k * 2 + 600), {}, {}};
  switch (layout) {
    case Layout::unit_k:
      out.outer = steps(outer, k + pad), out.k = steps(k, 1);
      break;
    case Layout::unit_outer:
      out.outer = steps(outer, 1), out.k = steps(k, outer + pad);
      break;
    case Layout::heads:
      out.batch = two_dims(batches, 2, k, 2 * k * outer);
      out.outer = steps(outer, 2 * k), out.k = steps(k, 1);
      break;
    case Layout::strided:
      out.outer = steps(outer, 2), out.k = steps(k, outer * 2);
      break;
    case Layout::swapped_k: {
      const std::int64_t inner = random.integer(1, 20);
      const std::int64_t blocks = (k + inner - 1) / inner;
      out.outer = two_dims(outer, 5, inner, 5 * inner * blocks),
      out.k = two_dims(k, inner, 1, 5 * inner);
      out.batch = steps(batches, (outer + 5) * inner * blocks);
      break;
    }
    case Layout::windows:
    case Layout::kernel: {
      // 3x3 windows over lines of channels or, with rows and k swapped, the gradient of such
      // windows.
      const bool is_kernel = layout == Layout::kernel;
      const std::int64_t channels = (is_kernel ? outer : k) / 9 + 1, stride = random.integer(1, 2);
      const std::int64_t width = random.integer(1, 40);
      const std::int64_t line = channels * (width * stride + 3);
      const auto places = two_dims(is_kernel ? k : outer, width, channels * stride, line * stride);
      std::vector<std::int64_t> terms = two_dims(is_kernel ? outer : k, 9, 0, 1);
      for (std::size_t i = 0; i < terms.size(); ++i) {
        const auto in_window = static_cast<std::int64_t>(i % 9);
        terms[i] += in_window % 3 * channels + in_window / 3 * line;
      }
      out.outer = is_kernel ? terms : places, out.k = is_kernel ? places : terms;
      out.batch = steps(batches, 7);
      break;
    }
    default:
      out.outer = steps(outer, k), out.k = steps(k, 1);
      std::shuffle(out.k.begin(), out.k.end(), random.engine);
      std::shuffle(out.outer.begin(), out.outer.end(), random.engine);
  }
  const auto largest = [](const std::vector<std::int64_t>& v) {
    return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
  };
  *size = largest(out.batch) + largest(out.outer) + largest(out.k) + 1;
  return out;
}

inline Ends even_leaves(std::int64_t k, std::int64_t leaves) {
  Ends out;
  for (std::int64_t i = 1; i <= leaves; ++i) out.push_back(k * i / leaves);
  return out;
}

inline Ends random_leaves(Random& random, std::int64_t k) {
  if (random.integer(0, 2) != 0) {
    constexpr std::int64_t kGrains[] = {1, 2, 3, 8, 8, 8, 24, 64};
    return even_leaves(k, kGrains[random.integer(0, 7)]);
  }
  Ends out(at(random.integer(1, 40)));
  for (std::int64_t& end : out) end = random.integer(0, k);
  std::sort(out.begin(), out.end());
  out.back() = k;
  return out;
}

struct Case {
  GemmProblem problem;
  std::vector<float> a, b;
  std::int64_t c_size = 0;
};

inline Case make_case(Random& random, std::int64_t batches, std::int64_t m, std::int64_t n,
                      std::int64_t k, Ends leaf_ends, bool special) {
  Case out;
  GemmProblem& p = out.problem;
  constexpr auto kLast = static_cast<std::int64_t>(Layout::kCount) - 1;
  std::int64_t a_size = 0, b_size = 0;
  p.a = make_operand(random, static_cast<Layout>(random.integer(0, kLast)), batches, m, k, &a_size);
  p.b = make_operand(random, static_cast<Layout>(random.integer(0, kLast)), batches, n, k, &b_size);
  if (random.integer(0, 7) == 0) std::fill(p.b.batch.begin(), p.b.batch.end(), 0);
  const std::int64_t row = n + random.integer(0, 2);
  p.c_rows = steps(m, row);
  p.c_batch = steps(batches, m * row);
  p.leaf_ends = std::move(leaf_ends);
  // Exactly as long as the operands, so that a sanitizer detects reads beyond the end.
  out.a = random.values(a_size, special);
  out.b = random.values(b_size, special);
  out.c_size = batches * m * row;
  return out;
}

// Batches whose elements of A and B are adjacent, like those of the groups of a convolution. The
// groups of C are adjacent too, or follow one after the other.
inline Case make_groups(Random& random, std::int64_t k) {
  const std::int64_t groups = random.integer(2, 40), n = random.integer(1, 9);
  const std::int64_t m = random.integer(1, 70), width = random.integer(1, 5);
  Case out = make_case(random, groups, m, n, k, random_leaves(random, k), false);
  GemmProblem& p = out.problem;
  const std::int64_t line = random.integer(1, 30);
  p.a.batch = steps(groups, width);
  p.a.outer = two_dims(m, line, groups * width, 2 * line * groups * width);
  p.a.k = two_dims(k, width, 1, groups * width);
  p.b.batch = steps(groups, n);
  p.b.outer = steps(n, 1);
  p.b.k = two_dims(k, 7, groups * n, 8 * groups * n);
  const bool is_together = random.integer(0, 2) > 0;
  p.c_batch = steps(groups, is_together ? n : m * n);
  p.c_rows = steps(m, is_together ? groups * n : n);
  const auto size = [](const GemmOperand& x) {
    return x.batch.back() + *std::max_element(x.outer.begin(), x.outer.end()) +
           *std::max_element(x.k.begin(), x.k.end()) + 1;
  };
  out.a = random.values(size(p.a), false);
  out.b = random.values(size(p.b), false);
  out.c_size = groups * m * n;
  return out;
}

// Lines of images. The offsets of their long sums and rows repeat, so that plans store few of them.
inline Case make_images(Random& random, bool has_long_sums, std::int64_t others,
                        std::int64_t columns) {
  const std::int64_t height = random.integer(1, 40), width = random.integer(1, 60);
  const std::int64_t fewest = has_long_sums ? 66000 : 16384;
  const std::int64_t images = fewest / (height * width) + random.integer(1, 3);
  const std::int64_t many = images * height * width;
  const std::int64_t m = has_long_sums ? others : many, k = has_long_sums ? many : others;
  Case c = make_case(random, 1, m, columns, k, even_leaves(k, random.integer(1, 9)), false);
  const std::int64_t line = (width + random.integer(0, 2)) * others;
  const std::int64_t image = (height + random.integer(0, 1)) * line;
  std::vector<std::int64_t> pixels;
  for (std::int64_t i = 0; i < many; ++i) {
    const std::int64_t y = i / width % height;
    pixels.push_back(i / (height * width) * image + y * line + i % width * others);
  }
  if (random.integer(0, 2) == 0) ++pixels[at(random.integer(0, many - 1))];
  GemmProblem& p = c.problem;
  p.a.outer = has_long_sums ? steps(m, 1) : pixels;
  p.a.k = has_long_sums ? pixels : steps(k, 1);
  c.a = random.values(images * image + others + 1, false);
  return c;
}

}  // namespace tessera::kernels::problems
