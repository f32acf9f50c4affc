// Linen's recurrent cells: (carry, x [batch, inputs]) -> (next carry, y [batch, features]).
//
// A cell may compute what depends only on x, such as x times a matrix, in `project`, and the rest
// in `step`. `rnn` then projects all positions at once. A carry has the dtype of the parameters.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tessera/nn.h>

namespace TESSERA_EXPORT tessera {
namespace nn {

struct SimpleCell {
  Dense input, hidden;
  SimpleCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Array, Array> operator()(const Array& carry, Operand x) const;
  Array project(Operand x) const;  // [.., inputs] -> [.., features]
  std::pair<Array, Array> step(const Array& carry, const Array& projected) const;
  Array initial_carry(std::int64_t batch,
                      std::source_location where = std::source_location::current()) const;
  TESSERA_MODULE(input, hidden)
};

struct LSTMCell {                    // the carry is (c, h)
  std::vector<Dense> input, hidden;  // of the gates i, f, g, o
  using Carry = std::pair<Array, Array>;
  LSTMCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Carry, Array> operator()(const Carry& carry, Operand x) const;
  std::vector<Array> project(Operand x) const;  // per gate: [.., inputs] -> [.., features]
  std::pair<Carry, Array> step(const Carry& carry, const std::vector<Array>& projected) const;
  Carry initial_carry(std::int64_t batch,
                      std::source_location where = std::source_location::current()) const;
  TESSERA_MODULE(input, hidden)
};

struct GRUCell {
  std::vector<Dense> input, hidden;  // of the gates r, z, n
  GRUCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Array, Array> operator()(const Array& carry, Operand x) const;
  std::vector<Array> project(Operand x) const;  // per gate: [.., inputs] -> [.., features]
  std::pair<Array, Array> step(const Array& carry, const std::vector<Array>& projected) const;
  Array initial_carry(std::int64_t batch,
                      std::source_location where = std::source_location::current()) const;
  TESSERA_MODULE(input, hidden)
};

struct RnnOptions {
  bool reverse = false;  // from the last position to the first; results keep their positions
  /// i32 [batch]: the number of positions; later ones are padding. Padding leaves the carry
  /// unchanged and gives zeros, as in PyTorch's packed sequences.
  std::optional<Array> lengths = {};
};

namespace detail {
/// Throws UserError unless x is [batch, time, inputs], the lengths are i32 [batch], and the carry
/// fits the batch.
void check_sequence(const Operand& x, const std::vector<Array>& carry, const RnnOptions& options);
/// bool [time, batch, 1]: whether the position belongs to the sequence. Without lengths: true.
Array is_inside(const Array& x, const RnnOptions& options);
/// Rows of `a` [batch, ..] where `is_inside` [batch, 1] is true, rows of `b` elsewhere.
Array rows_inside(const Array& is_inside, const Array& a, const Array& b);

template <typename Cell, typename Carry>
concept Projects = requires(const Cell& cell, const Carry& carry, const Array& x) {
  cell.step(carry, cell.project(x));
};

/// What the cell reads at each position of x [time, batch, inputs].
template <typename Cell, typename Carry>
auto projected(const Cell& cell, const Carry&, const Array& x) {
  if constexpr (Projects<Cell, Carry>) {
    return cell.project(x);
  } else {
    return x;
  }
}

/// Computes one position; `x` is a slice of what `projected` returned.
template <typename Cell, typename Carry, typename X>
auto step(const Cell& cell, const Carry& carry, const X& x) {
  if constexpr (Projects<Cell, Carry>) {
    return cell.step(carry, x);
  } else {
    return cell(carry, x);
  }
}
}  // namespace detail

/// Runs a cell over all positions of x [batch, time, inputs], starting with `carry` -> (last carry,
/// y [batch, time, features]).
template <typename Cell, typename Carry>
std::pair<Carry, Array> rnn(const Cell& cell, const Carry& carry, Operand x,
                            const RnnOptions& options = {}) {
  const CallScope call(x.where);
  detail::check_sequence(x, tree_leaves(carry), options);
  const auto inputs = detail::projected(cell, carry, transpose(x, {1, 0, 2}));
  using Slice = std::pair<std::remove_cvref_t<decltype(inputs)>, Array>;
  const auto step = [&](const Carry& now, const Slice& slice) {
    auto [next, y] = detail::step(cell, now, slice.first);
    if (!options.lengths) return std::pair<Carry, Array>(std::move(next), std::move(y));
    const auto kept = [&](const Array& a, const Array& b) {
      return detail::rows_inside(slice.second, a, b);
    };
    return std::pair<Carry, Array>(tree_map(kept, next, now), where(slice.second, y, 0));
  };
  const Slice slices(inputs, detail::is_inside(x.array, options));
  auto [last, y] = tessera::scan(step, carry, slices, {.reverse = options.reverse});
  return {std::move(last), transpose(y, {1, 0, 2})};
}

/// Runs two cells over x, each starting with its initial carry: concatenates y of `forward` and y
/// of `backward`, which reads from the end -> [batch, time, features of both].
template <typename Forward, typename Backward>
Array bidirectional(const Forward& forward, const Backward& backward, Operand x,
                    const std::optional<Array>& lengths = {}) {
  const CallScope call(x.where);
  const std::int64_t batch = x.array.dim(0);
  const Array first = rnn(forward, forward.initial_carry(batch), x, {.lengths = lengths}).second;
  const Array second =
      rnn(backward, backward.initial_carry(batch), x, {.reverse = true, .lengths = lengths}).second;
  return concatenate({first, second}, -1);
}

}  // namespace nn
}  // namespace tessera
