// Random bits. They depend only on a key and on global positions, so they are the same on every
// mesh.
#include "base/threefry.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

void expect_key(const ShapeContext& c, std::size_t num_operands) {
  expect_operands(c, num_operands);
  const Type& key = c.operands[0];
  if (key.dtype == DType::u32 && key.rank() > 0 && key.shape.back() == 2) return;
  c.fail("the first operand is not a key", "a key, u32[2], or an array of keys, u32[..,2]",
         "make one with Key(seed), split or fold_in");
}

/// The dimensions of `keys` before the last one, which holds the two words of each key.
Shape batch_of(const Type& keys) { return {keys.shape.begin(), keys.shape.end() - 1}; }

Type per_key(const Type& keys, const Shape& shape) {
  Type type = u32(batch_of(keys));
  type.shape.insert(type.shape.end(), shape.begin(), shape.end());
  return type;
}

std::vector<Type> bits_shape(const ShapeContext& c) {
  expect_key(c, 1);
  return {per_key(c.operands[0], shape_of(c, "shape"))};
}

std::vector<Type> split_shape(const ShapeContext& c) {
  expect_key(c, 1);
  const std::int64_t num = integer_of(c, "num");
  if (num < 0) c.fail("the number of keys is negative", "num >= 0", "pass a num of 0 or more");
  return {per_key(c.operands[0], {num, 2})};
}

std::vector<Type> fold_in_shape(const ShapeContext& c) {
  expect_key(c, 2);
  if (c.operands[1] != u32(batch_of(c.operands[0]))) {
    c.fail("the data is not one u32 for each key", "a scalar of dtype u32 for a key u32[2]",
           "fold in one number at a time, converted with astype(n, DType::u32)");
  }
  return {c.operands[0]};
}

/// Calls `make(key, results for this key)` for each key.
template <typename Make>
std::vector<HostArray> for_each_key(const ReferenceContext& c, Make make) {
  HostArray result(c.results[0]);
  const auto out = result.data<std::uint32_t>();
  const auto words = c.operands[0]->data<std::uint32_t>();
  const std::size_t num_keys = words.size() / 2;
  for (std::size_t i = 0; i < num_keys; ++i) {
    const std::size_t count = out.size() / num_keys;
    make(i, KeyData{words[2 * i], words[2 * i + 1]}, out.subspan(i * count, count));
  }
  return one_result(std::move(result));
}

using Words = std::span<std::uint32_t>;

std::vector<HostArray> bits_reference(const ReferenceContext& c) {
  return for_each_key(c, [](std::size_t, KeyData key, Words out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = tessera::random_bits(key, i);
  });
}

std::vector<HostArray> split_reference(const ReferenceContext& c) {
  return for_each_key(c, [](std::size_t, KeyData key, Words out) {
    for (std::size_t i = 0; i < out.size() / 2; ++i) {
      const KeyData child = split_at(key, i);
      out[2 * i] = child.hi;
      out[2 * i + 1] = child.lo;
    }
  });
}

std::vector<HostArray> fold_in_reference(const ReferenceContext& c) {
  const auto data = c.operands[1]->data<std::uint32_t>();
  return for_each_key(c, [&](std::size_t i, KeyData key, Words out) {
    const KeyData child = fold_in(key, data[i]);
    out[0] = child.hi;
    out[1] = child.lo;
  });
}

/// Any device can compute any part of the result; the words of a key must not be split.
Factors bits_factors(const Attributes&, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
  Factors factors;
  factors.results = {add_dims(factors, results[0].shape)};
  const auto first = factors.results[0].begin();
  factors.operands = {Factors::Dims(first, first + operands[0].rank() - 1)};
  factors.operands[0].push_back({add_factor(factors, 2, FactorKind::replicate)});
  return factors;
}

Factors split_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  Factors factors = bits_factors(attributes, operands, results);
  // The two words of each new key stay together.
  factors.factors[results[0].shape.size() - 1].kind = FactorKind::replicate;
  return factors;
}

Factors fold_in_factors(const Attributes&, const std::vector<Type>& operands,
                        const std::vector<Type>&) {
  Factors factors;
  factors.operands = {{}, add_dims(factors, operands[1].shape)};
  for (Factors::Dims* keys : {&factors.results.emplace_back(), &factors.operands[0]}) {
    *keys = factors.operands[1];
    keys->push_back({add_factor(factors, 2, FactorKind::replicate)});
  }
  return factors;
}

SampleOperand key_operand(Shape batch) {
  batch.push_back(2);
  return {u32(std::move(batch)), 0.0, 4294967295.0};
}

Sample bits_sample(Shape shape, Shape batch = {}) {
  return {.operands = {key_operand(std::move(batch))}, .attributes = {{"shape", std::move(shape)}}};
}

Sample split_sample(std::int64_t num, Shape batch = {}) {
  return {.operands = {key_operand(std::move(batch))}, .attributes = {{"num", num}}};
}

Sample fold_in_sample(double high, const Shape& batch = {}) {
  return {.operands = {key_operand(batch), {u32(batch), 0.0, high}}};
}

// --- StableHLO

/// One word of each key, for every element of `shape`, which begins with the dimensions of the
/// keys.
hlo::Value key_word(hlo::Writer& w, const hlo::Value& keys, std::int64_t word, const Shape& shape) {
  const Shape lead = batch_of(keys.type);
  const hlo::Value words = w.slice_dim(keys, lead.size(), word, word + 1);
  return w.broadcast(w.reshape(words, lead), dims_from(0, lead.size()), shape);
}

std::pair<hlo::Value, hlo::Value> encrypted(hlo::Writer& w, const hlo::Value& keys,
                                            const hlo::Value& counter) {
  const Shape& shape = counter.type.shape;
  const hlo::Value high = key_word(w, keys, 0, shape);
  const hlo::Value low = key_word(w, keys, 1, shape);
  return hlo::threefry(w, high, low, w.constant(0, counter.type), counter);
}

/// Both words of keys in a new last dimension.
hlo::Value joined_words(hlo::Writer& w, const std::pair<hlo::Value, hlo::Value>& words) {
  Shape shape = words.first.type.shape;
  shape.push_back(1);
  return w.concatenate({w.reshape(words.first, shape), w.reshape(words.second, shape)},
                       shape.size() - 1);
}

/// The positions of a result's elements along dimension `dim` in the whole array.
hlo::Value positions(hlo::FormContext& c, std::size_t dim, const Shape& shape) {
  const hlo::Value own = c.w.iota(static_cast<std::int64_t>(dim), DType::u32, shape);
  if (!c.is_split(c.equation.results[0], dim)) return own;
  const hlo::Value start = c.w.convert(c.start(c.equation.results[0], dim), DType::u32);
  return c.w.binary("add", own, c.w.fill(start, shape));
}

hlo::Values bits_form(hlo::FormContext& c) {
  const Shape& whole = c.attributes().ints("shape");
  if (num_elements(whole) > std::int64_t{1} << 32) {
    c.fail("more than 2^32 elements for one key", "split the key and draw smaller arrays");
  }
  const Type& type = c.results[0];
  const std::size_t lead = type.shape.size() - whole.size();
  const auto strides = row_major_strides(whole);
  hlo::Value index = c.w.constant(0, type);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const hlo::Value stride = c.w.constant(static_cast<double>(strides[i]), type);
    const hlo::Value place = positions(c, lead + i, type.shape);
    index = c.w.binary("add", index, c.w.binary("multiply", place, stride));
  }
  const auto [y0, y1] = encrypted(c.w, c.x(), index);
  return {c.w.binary("xor", y0, y1)};
}

hlo::Values fold_in_form(hlo::FormContext& c) {
  return {joined_words(c.w, encrypted(c.w, c.x(0), c.x(1)))};
}

hlo::Values split_form(hlo::FormContext& c) {
  const Shape shape = batch_of(c.results[0]);
  const hlo::Value index = positions(c, shape.size() - 1, shape);
  return {joined_words(c.w, encrypted(c.w, c.x(), index))};
}

}  // namespace

const OpRecord random_bits_op{
    .name = "random_bits",
    .doc =
        "32 random bits per element: y0 ^ y1 of threefry2x32(key, (hi, lo)), where hi and lo are "
        "the two words of the element's row-major index in an array of `shape`. Keys [a.., 2] give "
        "one such array per key: [a.., shape..].",
    .source = "jax.random.bits, partitionable",
    .attributes = AttributeNames{"shape"},
    .types = TypeSet::integers,
    .shape = bits_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = bits_factors,
    .pattern = Pattern::generator,
    .host = "random_bits",
    .stablehlo = bits_form,
    .reference = bits_reference,
    .cost = flops_per_element(100),
    .samples = Samples{bits_sample({5, 6}), bits_sample({12, 1}), bits_sample({3, 2, 10}),
                       bits_sample({}), bits_sample({3, 10}, {4}), bits_sample({}, {2, 5})},
};

const OpRecord random_fold_in_op{
    .name = "random_fold_in",
    .doc =
        "A new key from a key and a number: threefry2x32(key, (0, data)), for each of the keys "
        "[a.., 2].",
    .source = "jax.random.fold_in",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = fold_in_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = fold_in_factors,
    .pattern = Pattern::opaque,
    .host = "random_fold_in",
    .stablehlo = fold_in_form,
    .reference = fold_in_reference,
    .cost = flops_per_element(100),
    .samples =
        Samples{fold_in_sample(10.0), fold_in_sample(4294967295.0), fold_in_sample(10.0, {5, 2})},
};

const OpRecord random_split_op{
    .name = "random_split",
    .doc =
        "`num` keys: row i holds both words of threefry2x32(key, (hi, lo)), where hi and lo are "
        "the two words of i. Keys [a.., 2] give [a.., num, 2].",
    .source = "jax.random.split, partitionable",
    .attributes = AttributeNames{"num"},
    .types = TypeSet::integers,
    .shape = split_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = split_factors,
    .pattern = Pattern::opaque,
    .host = "random_split",
    .stablehlo = split_form,
    .reference = split_reference,
    .cost = flops_per_element(50),
    .samples = Samples{split_sample(5), split_sample(1), split_sample(12), split_sample(6, {4}),
                       split_sample(3, {2, 5})},
};

OpFamily random_ops() { return {&random_bits_op, &random_fold_in_op, &random_split_op}; }

}  // namespace tessera::ops
