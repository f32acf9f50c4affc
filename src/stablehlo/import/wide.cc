// Integers of 64 bits, and the generators of random bits whose state they are.
//
// The program has ui64 as u32. Where elements may reach 2^32, the frame remembers the high half
// beside it, and only the operations here take such values.
#include <algorithm>
#include <array>

#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

constexpr std::uint64_t kLimit = std::uint64_t{1} << 32U;

ValueId word(ir::Builder& b, std::uint32_t number, const Shape& shape) {
  return ops::full(b, number, {DType::u32, shape});
}

ValueId joined_bits(ir::Builder& b, const char* op, ValueId x, ValueId y) {
  return b.emit(op, {}, {x, y});
}

ValueId shifted(ir::Builder& b, const char* op, ValueId x, std::uint32_t bits) {
  return b.emit(op, {}, {x, word(b, bits, b.type(x).shape)});
}

/// The high 32 bits of a product of u32, from products of 16 bits.
ValueId product_high(ir::Builder& b, ValueId x, ValueId y) {
  const ValueId mask = word(b, 0xFFFF, b.type(x).shape);
  const auto low = [&](ValueId value) { return ops::bitwise_and(b, value, mask); };
  const auto high = [&](ValueId value) { return shifted(b, "shift_right_logical", value, 16); };
  const ValueId first = ops::mul(b, low(x), low(y));
  const ValueId second = ops::add(b, ops::mul(b, high(x), low(y)), high(first));
  const ValueId third = ops::add(b, ops::mul(b, low(x), high(y)), low(second));
  return ops::add(b, ops::mul(b, high(x), high(y)), ops::add(b, high(second), high(third)));
}

ValueId high_of(Context& c, std::size_t i) {
  const auto found = c.frame.highs.find(c.op.operands[i]);
  const ValueId low = c.operand(i);
  return found == c.frame.highs.end() ? ops::full_like(c.b(), 0, low) : found->second;
}

bool has_high(const Context& c, std::size_t i = 0) {
  c.operand(i);  // there is one
  return c.frame.highs.contains(c.op.operands[i]);
}

Values multiply(Context& c) {
  const ValueId x = c.operand(0);
  const ValueId y = c.operand(1);
  c.need(c.result() == c.type(x) && !has_high(c, 0) && !has_high(c, 1), "integers of 64 bits");
  std::uint64_t greatest = 0;
  if (__builtin_mul_overflow(c.frame.bound_of(x), c.frame.bound_of(y), &greatest) ||
      greatest >= kLimit) {
    c.frame.highs[c.op.results[0]] = product_high(c.b(), x, y);
  }
  return {ops::mul(c.b(), x, y)};
}

Values shift_right(Context& c) {
  if (!has_high(c)) return {c.b().emit("shift_right_logical", {}, c.operands)};
  const auto bits = c.frame.splats.find(c.operand(1));
  c.need(bits != c.frame.splats.end() && bits->second >= 32 && bits->second < 64,
         "integers of 64 bits");
  const auto rest = static_cast<std::uint32_t>(bits->second) - 32;
  return {shifted(c.b(), "shift_right_logical", high_of(c, 0), rest)};
}

Values convert(Context& c) {
  const DType dtype = c.result().dtype;
  c.need(!has_high(c) || dtype == DType::u32 || dtype == DType::i32, "integers of 64 bits");
  return {ops::convert(c.b(), c.operand(0), dtype)};
}

/// u32[.., 2] is ui64[..]: the low half comes first.
Values bitcast(Context& c) {
  ir::Builder& b = c.b();
  const Shape shape = c.result().shape;
  const Type given = c.type(c.operand(0));
  if (!is_wide(c.frame.context().module, c.op.results[0])) {
    c.need(c.result().dtype == DType::u32 && shape.size() == given.shape.size() + 1,
           "integers of 64 bits");
    Shape half = shape;
    half.back() = 1;
    return {ops::concatenate(
        b, {ops::reshape(b, c.operand(0), half), ops::reshape(b, high_of(c, 0), half)},
        static_cast<std::int64_t>(given.shape.size()))};
  }
  c.need(given.dtype == DType::u32 && given.shape.size() == shape.size() + 1 &&
             given.shape.back() == 2,
         "integers of 64 bits");
  const auto half = [&](std::int64_t i) {
    const auto last = static_cast<std::int64_t>(shape.size());
    return ops::reshape(b, ops::slice_dim(b, c.operand(0), last, i, i + 1), shape);
  };
  c.frame.highs[c.op.results[0]] = half(1);
  return {half(0)};
}

// --- generators

/// Numbers of any number of words, low first.
using Words = std::vector<ValueId>;

/// x + y modulo 2^(32 n).
Words sum(ir::Builder& b, const Words& x, ValueId y) {
  Words result;
  ValueId carry = y;
  for (const ValueId each : x) {
    result.push_back(ops::add(b, each, carry));
    carry = ops::convert(b, ops::compare(b, "lt", result.back(), carry), DType::u32);
  }
  return result;
}

/// Philox 4x32 with ten rounds.
Words philox(ir::Builder& b, Words x, Words key) {
  constexpr std::array<std::uint32_t, 2> kFactors = {0xD2511F53, 0xCD9E8D57};
  constexpr std::array<std::uint32_t, 2> kSteps = {0x9E3779B9, 0xBB67AE85};
  const Shape shape = b.type(x[0]).shape;
  for (int round = 0; round < 10; ++round) {
    std::array<ValueId, 2> low{};
    std::array<ValueId, 2> high{};
    for (std::size_t i = 0; i < 2; ++i) {
      const ValueId factor = word(b, kFactors[i], shape);
      low[i] = ops::mul(b, x[2 * i], factor);
      high[i] = product_high(b, x[2 * i], factor);
    }
    x = {joined_bits(b, "xor", joined_bits(b, "xor", high[1], x[1]), key[0]), low[1],
         joined_bits(b, "xor", joined_bits(b, "xor", high[0], x[3]), key[1]), low[0]};
    for (std::size_t i = 0; i < 2; ++i) key[i] = ops::add(b, key[i], word(b, kSteps[i], shape));
  }
  return x;
}

/// Threefry 2x32 with twenty rounds.
Words threefry(ir::Builder& b, Words x, const Words& key) {
  constexpr std::array<std::uint32_t, 8> kTurns = {13, 15, 26, 6, 17, 29, 16, 24};
  const Shape shape = b.type(x[0]).shape;
  const ValueId last =
      joined_bits(b, "xor", joined_bits(b, "xor", key[0], key[1]), word(b, 0x1BD11BDA, shape));
  const Words keys = {key[0], key[1], last};
  x = {ops::add(b, x[0], keys[0]), ops::add(b, x[1], keys[1])};
  for (std::size_t group = 0; group < 5; ++group) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t turn = kTurns[4 * (group % 2) + i];
      x[0] = ops::add(b, x[0], x[1]);
      const ValueId turned = joined_bits(b, "or", shifted(b, "shift_left", x[1], turn),
                                         shifted(b, "shift_right_logical", x[1], 32 - turn));
      x[1] = joined_bits(b, "xor", turned, x[0]);
    }
    x[0] = ops::add(b, x[0], keys[(group + 1) % 3]);
    x[1] = ops::add(b, ops::add(b, x[1], keys[(group + 2) % 3]),
                    word(b, static_cast<std::uint32_t>(group) + 1, shape));
  }
  return x;
}

/// Where the words of a step lie: next to each other along dimension `dim` of `shape`, which is cut
/// off if `width` does not divide it.
struct Bits {
  Shape shape;
  std::size_t dim = 0;
  std::int64_t width = 1;

  /// The steps: `shape` with fewer elements along `dim`.
  Shape steps() const {
    Shape result = shape;
    result[dim] = (shape[dim] + width - 1) / width;
    return result;
  }
  ValueId joined(ir::Builder& b, const Words& words) const {
    Shape column = steps();
    Shape padded = column;
    padded[dim] *= width;
    column.insert(column.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
    Words columns;
    for (const ValueId each : words) columns.push_back(ops::reshape(b, each, column));
    const ValueId all = ops::concatenate(b, columns, static_cast<std::int64_t>(dim) + 1);
    return ops::slice(b, ops::reshape(b, all, padded), Ints(shape.size(), 0), shape);
  }
};

/// As XLA has them: Philox fills the array in its order. Threefry's two words follow each other
/// along the first even dimension; if there is none, along the longest one.
Bits bits_of(const Shape& shape, bool is_threefry) {
  if (!is_threefry) return {.shape = {num_elements(shape)}, .dim = 0, .width = 4};
  if (shape.empty()) return {.shape = {1}, .dim = 0, .width = 2};
  const auto is_even = [](std::int64_t size) { return size % 2 == 0; };
  auto dim = std::ranges::find_if(shape, is_even);
  if (dim == shape.end()) dim = std::ranges::max_element(shape);
  return {.shape = shape, .dim = static_cast<std::size_t>(dim - shape.begin()), .width = 2};
}

/// The state is a key and a counter of 64 bits, which goes up by one for each step. As in XLA, the
/// upper half of Philox's counter begins at the key.
Values rng_bit_generator(Context& c) {
  ir::Builder& b = c.b();
  const Type result = c.result(1);
  const std::string_view name = c.text("rng_algorithm");
  const bool is_threefry = name == "THREE_FRY";
  c.need(is_threefry || name == "PHILOX" || name == "DEFAULT", "another generator");
  c.need(
      is_wide(c.frame.context().module, c.op.operands[0]) && c.type(c.operand(0)).shape == Shape{2},
      "a state of another type");
  c.need(result.dtype == DType::u32 && !is_wide(c.frame.context().module, c.op.results[1]),
         "random bits of another type");
  const Bits layout = bits_of(result.shape, is_threefry);
  const std::int64_t steps = num_elements(layout.steps());
  c.need(steps > 0 && steps < static_cast<std::int64_t>(kLimit), "another number of random bits");
  const std::array<ValueId, 2> halves = {c.operand(0), high_of(c, 0)};
  // Word i of the state.
  const auto state = [&](std::int64_t i) {
    const ValueId one =
        ops::slice(b, halves[static_cast<std::size_t>(i % 2)], {i / 2}, {i / 2 + 1});
    return ops::reshape(b, one, {});
  };
  const auto spread = [&](std::int64_t i) { return ops::broadcast_scalar(b, state(i), {steps}); };
  const Words key = {spread(0), spread(1)};
  Words counter = {spread(2), spread(3)};
  if (!is_threefry) counter.insert(counter.end(), key.begin(), key.end());
  counter = sum(b, counter, ops::iota(b, DType::u32, {steps}, 0));
  const Words bits = is_threefry ? threefry(b, counter, key) : philox(b, counter, key);
  const ValueId output = ops::reshape(b, layout.joined(b, bits), result.shape);
  const Words next =
      sum(b, {state(2), state(3)}, word(b, static_cast<std::uint32_t>(steps), Shape()));
  const auto both = [&](ValueId first, ValueId second) {
    return ops::concatenate(b, {ops::reshape(b, first, {1}), ops::reshape(b, second, {1})}, 0);
  };
  c.frame.highs[c.op.results[0]] = both(state(1), next[1]);
  return {both(state(0), next[0]), output};
}

}  // namespace

const Handlers& wide_handlers() {
  static const Handlers kHandlers = {{"bitcast_convert", bitcast},
                                     {"convert", convert},
                                     {"multiply", multiply},
                                     {"rng_bit_generator", rng_bit_generator},
                                     {"shift_right_logical", shift_right}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
