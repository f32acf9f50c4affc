// Copies of the elements that several matrix products read, and these products with the copies as
// their operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"

namespace tessera::kernels::gather {

using Offsets = std::vector<std::int64_t>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Rows of A that are next to each other in a copy: a line.
inline constexpr std::int64_t kRowBlock = 16;

/// A vector of a copy: a vector of an operand, or words of two vectors of terms.
struct Source {
  static constexpr std::int64_t kNone = INT64_MIN;
  std::int64_t first = 0;
  std::int64_t second = kNone;
  auto operator<=>(const Source&) const = default;
};

/// Equally spaced vectors.
struct SourceRun {
  Source from;
  std::int64_t step, count;
};

/// Where the vectors that a piece of an operand consists of come from. The copy is cut into blocks
/// of columns; the vector with the number p has the p-th place in each.
struct Copies {
  std::int64_t width = 0;                  // of a vector
  std::int64_t block = 0;                  // columns of a block
  std::uint16_t padding = 0;               // of a word without a second term
  gemm::WordsKernel make_words = nullptr;  // nullptr: floats are copied
  std::int64_t most = 0;                   // vectors of a piece
  std::vector<SourceRun> runs = {};
  std::vector<std::size_t> ends = {};  // of the runs of each piece

  // Blocks at a distance of a power of two would compete for the same lines.
  std::int64_t block_floats() const { return most * block + gemm::kPanelGap; }
  std::int64_t floats() const { return gemm::ceil_div(width, block) * block_floats(); }
  std::int64_t place_of_column(std::int64_t column) const {
    return column / block * block_floats() + column % block;
  }

  void add_piece(const std::vector<Source>& sources);
  void copy(const void* from, std::int64_t piece, float* to) const;

 private:
  void make_words_of(const SourceRun& run, const std::uint16_t* terms, std::int64_t columns,
                     float* to) const;
};

/// A product, and where the second terms of its steps are if they are words.
struct Reads {
  GemmProblem problem;
  Offsets second_a = {}, second_b = {};
};

/// Products of the same grains that read nearly the same vectors, rewritten so that they read
/// copies. Rows and columns are adjacent.
class Gathering {
 public:
  explicit Gathering(std::span<const GemmProblem> given);

  /// Takes the terms of each grain in twos, the same ones for all products wherever they have both.
  /// The sums are not changed: a unit that takes pairs adds one term after the other, and a term
  /// may be alone.
  void take_pairs(gemm::WordsKernel make_words);
  /// Copies are made of subtrees of about `most_steps`, and take at most this many floats. Returns
  /// false if that is impossible.
  bool run(std::int64_t most_floats, std::int64_t most_steps);

  std::vector<Reads> products;
  Copies a, b;

 private:
  struct Operand {
    GemmOperand GemmProblem::*of;
    Offsets Reads::*second;
  };
  static constexpr Operand kA = {&GemmProblem::a, &Reads::second_a};
  static constexpr Operand kB = {&GemmProblem::b, &Reads::second_b};
  enum class Order : std::uint8_t { memory, grains };

  bool are_short(std::int64_t leaves, std::int64_t most_steps) const;
  bool gather(std::int64_t leaves, Operand operand, Order order, Copies& copies);

  std::int64_t leaves_;
  gemm::WordsKernel make_words_ = nullptr;
};

}  // namespace tessera::kernels::gather
