// Cells of recurrent networks, with the parameters of Linen's.
#include <tessera/error.h>
#include <tessera/recurrent.h>

#include "nn/input.h"
#include "nn/line_of.h"

namespace tessera::nn {

namespace {

/// One layer per gate, named `prefix` and the letter of the gate.
std::vector<Dense> gates(const Scope& scope, const std::string& prefix, std::string_view letters,
                         std::int64_t inputs, std::int64_t features, std::string_view without_bias,
                         const Initializer& kernel_init) {
  std::vector<Dense> layers;
  for (const char letter : letters) {
    const bool use_bias = without_bias.find(letter) == std::string_view::npos;
    const ScopeName name(prefix + letter, line_of(scope));
    layers.emplace_back(scope / name, inputs, features, use_bias, kernel_init);
  }
  return layers;
}

/// What a cell reads. It is checked before the layers of the cell, whose errors name themselves.
Array input_of_cell(const char* cell, const Dense& layer, const Operand& x) {
  return input_of(cell, x, "[.., " + std::to_string(layer.kernel.dim(0)) + "]");
}

std::vector<Array> projections(const char* cell, const std::vector<Dense>& gates,
                               const Operand& x) {
  const CallScope call(x.where);
  const Array inputs = input_of_cell(cell, gates[0], x);
  std::vector<Array> result;
  for (const Dense& gate : gates) result.push_back(gate(inputs));
  return result;
}

/// Zeros for a cell whose gates have the dtype and the number of features of this one.
Array carry_for(const Dense& gate, std::int64_t batch, const std::source_location& where) {
  return zeros({batch, gate.kernel.dim(1)}, gate.dtype.value_or(gate.kernel.dtype()), where);
}

}  // namespace

namespace detail {

void check_sequence(const Operand& operand, const std::vector<Array>& carry,
                    const RnnOptions& options) {
  const Array& x = input_of("rnn", operand, "[batch, time, inputs]", 0);
  const auto fail = [&](const char* what, const Array& found, const std::string& wanted,
                        const char* cure) {
    throw UserError({.what = std::string("rnn: ") + what,
                     .where = operand.where,
                     .found = to_string(found.type()),
                     .wanted = wanted,
                     .cure = cure});
  };
  if (x.rank(operand.where) != 3) {
    fail("the array is not a batch of sequences", x, "[batch, time, inputs]",
         "add a dimension with expand_dims, or reorder the dimensions with transpose");
  }
  const std::int64_t batch = x.dim(0);
  for (const Array& leaf : carry) {
    if (leaf.rank() > 0 && leaf.dim(0) == batch) continue;
    fail("the carry does not match the batch", leaf, "[" + std::to_string(batch) + ", ..]",
         "begin with cell.initial_carry(x.dim(0))");
  }
  const Type wanted{DType::i32, {batch}};
  if (options.lengths && options.lengths->type() != wanted) {
    fail("the lengths do not match the batch", *options.lengths, to_string(wanted),
         "give the number of positions of each sequence");
  }
}

Array is_inside(const Array& x, const RnnOptions& options) {
  const Array position = iota({x.dim(1), x.dim(0), 1}, 0);
  if (!options.lengths) return position >= 0;
  return position < expand_dims(*options.lengths, 1);
}

Array rows_inside(const Array& is_inside, const Array& a, const Array& b) {
  Shape shape(static_cast<std::size_t>(a.rank()), 1);
  if (!shape.empty()) shape[0] = is_inside.dim(0);
  return where(reshape(is_inside, shape), a, b);
}

}  // namespace detail

SimpleCell::SimpleCell(const Scope& scope, std::int64_t inputs, std::int64_t features)
    : input(scope / "i", inputs, features),
      hidden(scope / "h", features, features, false, init::orthogonal()) {}

std::pair<Array, Array> SimpleCell::operator()(const Array& carry, Operand x) const {
  const CallScope call(x.where);
  return step(carry, project(x));
}

Array SimpleCell::project(Operand x) const {
  const CallScope call(x.where);
  return input(input_of_cell("SimpleCell", input, x));
}

std::pair<Array, Array> SimpleCell::step(const Array& carry, const Array& projected) const {
  const Array next = tanh(projected + hidden(carry));
  return {next, next};
}

Array SimpleCell::initial_carry(std::int64_t batch, std::source_location where) const {
  return carry_for(input, batch, where);
}

LSTMCell::LSTMCell(const Scope& scope, std::int64_t inputs, std::int64_t features)
    : input(gates(scope, "i", "ifgo", inputs, features, "ifgo", init::lecun_normal())),
      hidden(gates(scope, "h", "ifgo", features, features, "", init::orthogonal())) {}

std::pair<LSTMCell::Carry, Array> LSTMCell::operator()(const Carry& carry, Operand x) const {
  const CallScope call(x.where);
  return step(carry, project(x));
}

std::vector<Array> LSTMCell::project(Operand x) const { return projections("LSTMCell", input, x); }

std::pair<LSTMCell::Carry, Array> LSTMCell::step(const Carry& carry,
                                                 const std::vector<Array>& projected) const {
  const auto& [c, h] = carry;
  std::vector<Array> gate;
  for (std::size_t i = 0; i < input.size(); ++i) gate.push_back(projected[i] + hidden[i](h));
  const Array next_c = logistic(gate[1]) * c + logistic(gate[0]) * tanh(gate[2]);
  const Array next_h = logistic(gate[3]) * tanh(next_c);
  return {{next_c, next_h}, next_h};
}

LSTMCell::Carry LSTMCell::initial_carry(std::int64_t batch, std::source_location where) const {
  const Array start = carry_for(input[0], batch, where);
  return {start, start};
}

GRUCell::GRUCell(const Scope& scope, std::int64_t inputs, std::int64_t features)
    : input(gates(scope, "i", "rzn", inputs, features, "", init::lecun_normal())),
      hidden(gates(scope, "h", "rzn", features, features, "rz", init::orthogonal())) {}

std::pair<Array, Array> GRUCell::operator()(const Array& carry, Operand x) const {
  const CallScope call(x.where);
  return step(carry, project(x));
}

std::vector<Array> GRUCell::project(Operand x) const { return projections("GRUCell", input, x); }

std::pair<Array, Array> GRUCell::step(const Array& carry,
                                      const std::vector<Array>& projected) const {
  const Array r = logistic(projected[0] + hidden[0](carry));
  const Array z = logistic(projected[1] + hidden[1](carry));
  const Array n = tanh(projected[2] + r * hidden[2](carry));
  const Array next = (1.0 - z) * n + z * carry;
  return {next, next};
}

Array GRUCell::initial_carry(std::int64_t batch, std::source_location where) const {
  return carry_for(input[0], batch, where);
}

}  // namespace tessera::nn
