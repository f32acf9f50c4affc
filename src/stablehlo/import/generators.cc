// Generators of random bits whose state is a part of the program.
#include <algorithm>
#include <array>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

ValueId word(ir::Builder& b, std::uint32_t number, const Shape& shape) {
  return ops::full(b, number, {DType::u32, shape});
}

ValueId joined_bits(ir::Builder& b, const char* op, ValueId x, ValueId y) {
  return b.emit(op, {}, {x, y});
}

/// The high half of integers of 64 bits.
ValueId high_half(ir::Builder& b, ValueId x) {
  return ops::convert(b, shifted(b, "shift_right_logical", x, 32), DType::u32);
}

/// The high half of products of u32.
ValueId product_high(ir::Builder& b, ValueId x, ValueId y) {
  const ValueId wide = ops::convert(b, x, DType::u64);
  return high_half(b, ops::mul(b, wide, ops::convert(b, y, DType::u64)));
}

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
  const ValueId both = joined_bits(b, "xor", key[0], key[1]);
  const ValueId last = joined_bits(b, "xor", both, word(b, 0x1BD11BDA, shape));
  const Words keys = {key[0], key[1], last};
  x = {ops::add(b, x[0], keys[0]), ops::add(b, x[1], keys[1])};
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t turn = kTurns[std::size_t{4} * (group % 2) + i];
      x[0] = ops::add(b, x[0], x[1]);
      const ValueId high = shifted(b, "shift_left", x[1], turn);
      const ValueId low = shifted(b, "shift_right_logical", x[1], 32 - turn);
      const ValueId turned = joined_bits(b, "or", high, low);
      x[1] = joined_bits(b, "xor", turned, x[0]);
    }
    x[0] = ops::add(b, x[0], keys[(group + 1) % 3]);
    x[1] = ops::add(b, x[1], keys[(group + 2) % 3]);
    x[1] = ops::add(b, x[1], word(b, group + 1, shape));
  }
  return x;
}

/// Where the words of a step go: they are adjacent along dimension `dim` of `shape`. Words beyond
/// the end are cut off if `width` does not divide the dimension.
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
  /// `words`: as many per step as `width`.
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

/// The same as in XLA. Philox fills the array in row-major order. Threefry's two words are adjacent
/// along the first even dimension; if there is none, along the longest one. Elements of 64 bits
/// consist of two words and fill the array in row-major order, as Philox does.
Bits bits_of(const Shape& shape, bool is_threefry, bool is_long) {
  if (is_long) return {.shape = {num_elements(shape)}, .dim = 0, .width = is_threefry ? 1 : 2};
  if (!is_threefry) return {.shape = {num_elements(shape)}, .dim = 0, .width = 4};
  if (shape.empty()) return {.shape = {1}, .dim = 0, .width = 2};
  const auto is_even = [](std::int64_t size) { return size % 2 == 0; };
  auto dim = std::ranges::find_if(shape, is_even);
  if (dim == shape.end()) dim = std::ranges::max_element(shape);
  return {.shape = shape, .dim = static_cast<std::size_t>(dim - shape.begin()), .width = 2};
}

/// Words of 64 bits, each made of two successive words, the low one first.
Words in_pairs(ir::Builder& b, const Words& words) {
  Words result;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const ValueId high = shifted(b, "shift_left", ops::convert(b, words[i + 1], DType::u64), 32);
    result.push_back(joined_bits(b, "or", ops::convert(b, words[i], DType::u64), high));
  }
  return result;
}

/// The state is a key and a counter, which increases by one for each step. As in XLA, the upper
/// half of Philox's counter begins at the key.
Values rng_bit_generator(Context& c) {
  ir::Builder& b = c.b();
  const Type result = c.result(1);
  const std::string_view name = c.text("rng_algorithm");
  const bool is_threefry = name == "THREE_FRY";
  c.need(is_threefry || name == "PHILOX" || name == "DEFAULT",
         "a random generator other than Threefry and Philox");
  const ValueId state = c.operand(0);
  c.need(c.type(state) == Type{DType::u64, {2}},
         "a generator state that is not two 64-bit unsigned integers");
  c.need(is_integer(result.dtype) && !is_signed(result.dtype),
         "random bits that are not unsigned integers");
  if (num_elements(result.shape) == 0) return {state, ops::full(b, 0, result)};
  const bool is_long = result.dtype == DType::u64;
  const Bits layout = bits_of(result.shape, is_threefry, is_long);
  const std::int64_t steps = num_elements(layout.steps());
  c.need(steps < std::int64_t{1} << 32U, "too many random bits");
  const auto words = [&](std::int64_t i) {
    const ValueId one = ops::reshape(b, ops::slice(b, state, {i}, {i + 1}), {});
    return Words{ops::broadcast_scalar(b, ops::convert(b, one, DType::u32), {steps}),
                 ops::broadcast_scalar(b, high_half(b, one), {steps})};
  };
  const Words key = words(0);
  Words counter = words(1);
  if (!is_threefry) counter.insert(counter.end(), key.begin(), key.end());
  counter = sum(b, counter, ops::iota(b, DType::u32, {steps}, 0));
  Words bits = is_threefry ? threefry(b, counter, key) : philox(b, counter, key);
  if (is_long) bits = in_pairs(b, bits);
  // Narrow elements are the low bits of words.
  const ValueId output =
      ops::convert(b, ops::reshape(b, layout.joined(b, bits), result.shape), result.dtype);
  const ValueId step = ops::full(b, static_cast<double>(steps), {DType::u64, {1}});
  const ValueId taken = ops::pad(b, step, ops::scalar(b, 0, DType::u64), {1}, {0});
  return {ops::add(b, state, taken), output};
}

}  // namespace

const Handlers& generator_handlers() {
  static const Handlers kHandlers = {{"rng_bit_generator", rng_bit_generator}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
