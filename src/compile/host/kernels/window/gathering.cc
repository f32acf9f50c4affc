#include "compile/host/kernels/window/gathering.h"

#include <algorithm>
#include <cstring>

namespace tessera::kernels::gather {

namespace {

constexpr std::int64_t kUnit = 8;  // floats that are copied at once

void copy_columns(const SourceRun& run, const float* from, std::int64_t columns, std::int64_t block,
                  float* to) {
  from += run.from.first;
  for (std::int64_t i = 0; i < run.count; ++i, from += run.step, to += block) {
    std::int64_t done = 0;
    for (; done + kUnit <= columns; done += kUnit)
      std::memcpy(to + done, from + done, kUnit * sizeof(float));
    for (; done < columns; ++done) to[done] = from[done];
  }
}

/// Whether a run goes on with this vector.
bool continues(SourceRun& run, const Source& next) {
  const bool is_alone = run.from.second == Source::kNone;
  if (is_alone != (next.second == Source::kNone)) return false;
  const auto apart = [](const Source& s) { return s.second - s.first; };
  if (!is_alone && apart(next) != apart(run.from)) return false;
  if (run.count == 1) run.step = next.first - run.from.first;
  return next.first == run.from.first + run.count * run.step;
}

std::int64_t first_of(const GemmOperand& operand) { return operand.batch[0] + operand.outer[0]; }

std::int64_t begin_of(const GemmProblem& p, std::int64_t leaf) {
  return leaf == 0 ? 0 : p.leaf_ends[at(leaf - 1)];
}

/// The range of the offsets of an operand's vectors.
gemm::Range range_of(const std::vector<Reads>& products, GemmOperand GemmProblem::*of) {
  gemm::Range range{INT64_MAX, INT64_MIN};
  for (const Reads& product : products) {
    const GemmOperand& read = product.problem.*of;
    for (const std::int64_t k : read.k) {
      range.begin = std::min(range.begin, first_of(read) + k);
      range.end = std::max(range.end, first_of(read) + k + 1);
    }
  }
  return range.begin < range.end ? range : gemm::Range{0, 0};
}

/// Numbers the vectors that products read, piece by piece.
class Numbering {
 public:
  Numbering(const gemm::Range& range, std::int64_t width)
      : least_(range.begin), width_(width), cells_(at((range.size() - 1) / width + 1)) {}

  /// Returns false if vectors overlap.
  bool add(const Source& source) {
    Cell& cell = cell_of(source);
    if (cell.piece != piece_) cell = {.piece = piece_, .last = -1};
    for (std::int32_t i = cell.last; i >= 0; i = seen_[at(i)].before) {
      if (seen_[at(i)].source == source) return true;
      if (seen_[at(i)].source.first != source.first) return false;
    }
    order_.push_back(static_cast<std::int32_t>(seen_.size()));
    seen_.push_back({.source = source, .before = cell.last, .number = 0});
    cell.last = order_.back();
    return true;
  }
  /// Numbers the vectors that were added since the last call in the order of memory.
  void sort() {
    std::sort(order_.begin() + sorted_, order_.end(), [&](std::int32_t x, std::int32_t y) {
      return seen_[at(x)].source < seen_[at(y)].source;
    });
    for (; sorted_ < std::ssize(order_); ++sorted_)
      seen_[at(order_[at(sorted_)])].number = static_cast<std::int32_t>(sorted_);
  }
  std::int64_t number_of(const Source& source) {
    std::int32_t i = cell_of(source).last;
    while (seen_[at(i)].source != source) i = seen_[at(i)].before;
    return seen_[at(i)].number;
  }
  std::vector<Source> sources() const {
    std::vector<Source> sources;
    for (const std::int32_t i : order_) sources.push_back(seen_[at(i)].source);
    return sources;
  }
  void begin_piece() {
    ++piece_;
    seen_.clear();
    order_.clear();
    sorted_ = 0;
  }

 private:
  struct Cell {
    std::int32_t piece = 0, last = -1;
  };
  struct Seen {
    Source source;
    std::int32_t before = -1;  // the previous one in the same cell
    std::int32_t number = 0;
  };
  Cell& cell_of(const Source& source) { return cells_[at((source.first - least_) / width_)]; }

  std::int64_t least_, width_;
  std::vector<Cell> cells_;
  std::int32_t piece_ = 0;
  std::vector<Seen> seen_;           // of the piece
  std::vector<std::int32_t> order_;  // of those seen
  std::int64_t sorted_ = 0;
};

/// For each term of B that is the first one of a pair, the second one. All products have the same
/// pairs.
class Partners {
 public:
  Partners(const gemm::Range& range, std::int64_t width)
      : least_(range.begin), width_(width), partner_(at((range.size() - 1) / width + 1), kUnseen) {}

  /// Whether two consecutive terms of the sum are taken together. When both are seen for the first
  /// time, they become partners.
  bool are_together(std::int64_t offset, std::int64_t next) {
    std::int64_t& partner = of(offset);
    if (partner == kUnseen && of(next) == kUnseen) {
      partner = next;
      of(next) = kSecond;
    }
    return partner == next;
  }

 private:
  static constexpr std::int64_t kUnseen = INT64_MIN, kSecond = INT64_MIN + 1;
  std::int64_t& of(std::int64_t offset) { return partner_[at((offset - least_) / width_)]; }

  std::int64_t least_, width_;
  std::vector<std::int64_t> partner_;
};

Reads in_pairs(const GemmProblem& p, Partners& partners) {
  Reads reads{.problem = p};
  GemmProblem& to = reads.problem;
  to.a.k.clear();
  to.b.k.clear();
  const std::int64_t first = first_of(p.b);
  for (std::int64_t leaf = 0; leaf < std::ssize(p.leaf_ends); ++leaf) {
    const std::int64_t end = p.leaf_ends[at(leaf)];
    for (std::int64_t i = begin_of(p, leaf); i < end;) {
      const bool is_pair =
          i + 1 < end && partners.are_together(first + p.b.k[at(i)], first + p.b.k[at(i + 1)]);
      to.a.k.push_back(p.a.k[at(i)]);
      to.b.k.push_back(p.b.k[at(i)]);
      reads.second_a.push_back(is_pair ? p.a.k[at(i + 1)] : Source::kNone);
      reads.second_b.push_back(is_pair ? p.b.k[at(i + 1)] : Source::kNone);
      i += is_pair ? 2 : 1;
    }
    to.leaf_ends[at(leaf)] = std::ssize(to.a.k);
  }
  return reads;
}

}  // namespace

void Copies::add_piece(const std::vector<Source>& sources) {
  most = std::max(most, std::ssize(sources));
  const std::size_t first = runs.size();
  for (const Source& source : sources) {
    if (runs.size() > first && continues(runs.back(), source)) {
      ++runs.back().count;
    } else {
      runs.push_back({.from = source, .step = 0, .count = 1});
    }
  }
  ends.push_back(runs.size());
}

void Copies::copy(const void* from, std::int64_t piece, float* to) const {
  const std::size_t begin = piece == 0 ? 0 : ends[at(piece - 1)];
  for (std::int64_t column = 0; column < width; column += block) {
    float* next = to + place_of_column(column);
    const std::int64_t columns = std::min(block, width - column);
    for (std::size_t r = begin; r < ends[at(piece)]; next += runs[r++].count * block) {
      if (make_words == nullptr) {
        copy_columns(runs[r], static_cast<const float*>(from) + column, columns, block, next);
        continue;
      }
      make_words_of(runs[r], static_cast<const std::uint16_t*>(from) + column, columns, next);
    }
  }
}

void Copies::make_words_of(const SourceRun& run, const std::uint16_t* terms, std::int64_t columns,
                           float* to) const {
  const bool is_alone = run.from.second == Source::kNone;
  make_words({.first = terms + run.from.first,
              .second = is_alone ? nullptr : terms + run.from.second,
              .step = run.step,
              .count = run.count,
              .columns = columns,
              .padding = padding,
              .to = to,
              .to_step = block});
}

Gathering::Gathering(std::span<const GemmProblem> given) : leaves_(std::ssize(given[0].leaf_ends)) {
  for (const GemmProblem& p : given) products.push_back({.problem = p});
}

void Gathering::take_pairs(gemm::WordsKernel make_words) {
  make_words_ = make_words;
  const gemm::Range range = range_of(products, &GemmProblem::b);
  if (range.size() <= 0) return;
  Partners partners(range, std::ssize(products[0].problem.b.outer));
  std::vector<Reads*> longest;
  for (Reads& product : products) longest.push_back(&product);
  std::stable_sort(longest.begin(), longest.end(), [](const Reads* x, const Reads* y) {
    return x->problem.a.k.size() > y->problem.a.k.size();
  });
  for (Reads* product : longest) *product = in_pairs(product->problem, partners);
}

bool Gathering::are_short(std::int64_t leaves, std::int64_t most_steps) const {
  for (const Reads& product : products) {
    const GemmProblem& p = product.problem;
    for (std::int64_t leaf = 0; leaf < leaves_; leaf += leaves) {
      if (p.leaf_ends[at(leaf + leaves - 1)] - begin_of(p, leaf) > most_steps) return false;
    }
  }
  return true;
}

bool Gathering::run(std::int64_t most_floats, std::int64_t most_steps) {
  std::int64_t leaves = 1;
  while (leaves_ % (2 * leaves) == 0 && are_short(2 * leaves, most_steps)) leaves *= 2;
  const std::vector<Reads> given = products;
  for (; leaves > 0; leaves /= 2) {
    // The product with a missing term is -0.0, which does not change the sum.
    a = {.width = std::ssize(given[0].problem.a.outer),
         .block = kRowBlock,
         .padding = 0x8000,
         .make_words = make_words_};
    b = {.width = std::ssize(given[0].problem.b.outer),
         .block = gemm::kernels().nr,
         .make_words = make_words_};
    // Several products share vectors of A. Those of B are read in the order of the sum.
    if (!gather(leaves, kA, Order::memory, a) || !gather(leaves, kB, Order::grains, b))
      return false;
    if (a.floats() + b.floats() <= most_floats) break;
    products = given;
  }
  for (Reads& product : products) product.problem.pieces = leaves == 0 ? 1 : leaves_ / leaves;
  return leaves > 0;
}

bool Gathering::gather(std::int64_t leaves, Operand operand, Order order, Copies& copies) {
  const gemm::Range range = range_of(products, operand.of);
  Numbering numbering(range.size() > 0 ? range : gemm::Range{0, 1}, copies.width);
  const auto source = [&](const Reads& product, std::int64_t i) {
    const GemmOperand& read = product.problem.*operand.of;
    const Offsets& second = product.*operand.second;
    const std::int64_t first = first_of(read);
    const bool is_alone = second.empty() || second[at(i)] == Source::kNone;
    return Source{first + read.k[at(i)], is_alone ? Source::kNone : first + second[at(i)]};
  };
  for (std::int64_t leaf = 0; leaf < leaves_; leaf += leaves) {
    numbering.begin_piece();
    for (std::int64_t one = leaf; one < leaf + leaves; ++one) {
      for (const Reads& product : products) {
        const GemmProblem& p = product.problem;
        for (std::int64_t i = begin_of(p, one); i < p.leaf_ends[at(one)]; ++i) {
          if (!numbering.add(source(product, i))) return false;
        }
      }
      if (order == Order::grains) numbering.sort();
    }
    numbering.sort();
    copies.add_piece(numbering.sources());
    for (Reads& product : products) {
      const GemmProblem& p = product.problem;
      const std::int64_t end = p.leaf_ends[at(leaf + leaves - 1)];
      for (std::int64_t i = begin_of(p, leaf); i < end; ++i)
        (product.problem.*operand.of).k[at(i)] =
            numbering.number_of(source(product, i)) * copies.block;
    }
  }
  for (Reads& product : products) {
    GemmOperand& read = product.problem.*operand.of;
    read.batch[0] = 0;
    for (std::int64_t i = 0; i < copies.width; ++i) read.outer[at(i)] = copies.place_of_column(i);
  }
  return true;
}

}  // namespace tessera::kernels::gather
