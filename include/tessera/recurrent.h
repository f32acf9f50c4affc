// Linen's recurrent cells: (carry, x [batch, inputs]) -> (next carry, y [batch, features]).
#pragma once

#include <utility>
#include <vector>

#include <tessera/nn.h>

namespace TESSERA_EXPORT tessera {
namespace nn {

struct SimpleCell {
  Dense input, hidden;
  SimpleCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Array, Array> operator()(const Array& carry, Operand x) const;
  Array initial_carry(std::int64_t batch) const;
  TESSERA_MODULE(input, hidden)
};

struct LSTMCell {                    // the carry is (c, h)
  std::vector<Dense> input, hidden;  // of the gates i, f, g, o
  using Carry = std::pair<Array, Array>;
  LSTMCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Carry, Array> operator()(const Carry& carry, Operand x) const;
  Carry initial_carry(std::int64_t batch) const;
  TESSERA_MODULE(input, hidden)
};

struct GRUCell {
  std::vector<Dense> input, hidden;  // of the gates r, z, n
  GRUCell(const Scope& scope, std::int64_t inputs, std::int64_t features);
  std::pair<Array, Array> operator()(const Array& carry, Operand x) const;
  Array initial_carry(std::int64_t batch) const;
  TESSERA_MODULE(input, hidden)
};

/// A cell at all positions of x [batch, time, inputs], beginning with this carry -> (last carry, y
/// [batch, time, features]).
template <typename Cell, typename Carry>
std::pair<Carry, Array> rnn(const Cell& cell, const Carry& carry, Operand x) {
  const CallScope call(x.where);
  const auto step = [&](const Carry& now, const Array& slice) { return cell(now, slice); };
  auto [last, y] = tessera::scan(step, carry, transpose(x, {1, 0, 2}));
  return {std::move(last), transpose(y, {1, 0, 2})};
}

}  // namespace nn
}  // namespace tessera
