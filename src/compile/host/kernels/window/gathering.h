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

/// Rows of A that are adjacent in a copy: a cache line.
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

/// Where the vectors of the pieces of an operand come from. A copy is cut into blocks of columns;
/// the vector with the number p has the p-th place in each block.
struct Copies {
  std::int64_t width = 0;                  // of a vector
  std::int64_t block = 0;                  // columns of a block
  std::uint16_t padding = 0;               // of a word without a second term
  gemm::WordsKernel make_words = nullptr;  // nullptr: floats are copied
  std::int64_t most = 0;                   // vectors of a piece
  std::vector<SourceRun> runs = {};
  std::vector<std::size_t> ends = {};  // of the runs of each piece

  // Blocks at a distance of a power of two would compete for the same cache lines.
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

/// A product and, if its steps are words, where their second terms are.
struct Reads {
  GemmProblem problem;
  Offsets second_a = {}, second_b = {};
};

/// Products of the same grains that read nearly the same vectors, rewritten so that they read
/// copies. Rows and columns are adjacent.
class Gathering {
 public:
  explicit Gathering(std::span<const GemmProblem> given);

  /// Takes the terms of each grain in pairs, the same pairs in all products that have both terms.
  /// This does not change the sums: a unit that takes pairs adds one term after the other, and a
  /// term may be alone.
  void take_pairs(gemm::WordsKernel make_words);
  /// Copies are made of subtrees of about `most_steps` steps, and take at most `most_floats`.
  /// Returns false if that is impossible.
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
