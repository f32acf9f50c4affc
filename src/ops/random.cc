// Random bits: functions of a key and of global positions, so the same on every mesh.
#include "base/threefry.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

void expect_key(const ShapeContext& c, std::size_t num_operands) {
  expect_operands(c, num_operands);
  if (c.operands[0] == u32({2})) return;
  c.fail("the first operand is no key", "a key, u32[2]",
         "make one with random::key(seed), split or fold_in");
}

std::vector<Type> bits_shape(const ShapeContext& c) {
  expect_key(c, 1);
  return {u32(shape_of(c, "shape"))};
}

std::vector<Type> split_shape(const ShapeContext& c) {
  expect_key(c, 1);
  const std::int64_t num = integer_of(c, "num");
  if (num < 0) c.fail("a negative number of keys", "num >= 0", "ask for at least 0 keys");
  return {u32({num, 2})};
}

std::vector<Type> fold_in_shape(const ShapeContext& c) {
  expect_key(c, 2);
  if (c.operands[1] != u32({})) {
    c.fail("the data is no u32 scalar", "a scalar of dtype u32",
           "fold in one number at a time, converted with astype(n, DType::u32)");
  }
  return {u32({2})};
}

KeyData key_of(const ReferenceContext& c) {
  const auto words = c.operands[0]->data<std::uint32_t>();
  return {words[0], words[1]};
}

std::vector<HostArray> bits_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto out = result.data<std::uint32_t>();
  const KeyData key = key_of(c);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tessera::random_bits(key, i);
  return one_result(std::move(result));
}

std::vector<HostArray> split_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto out = result.data<std::uint32_t>();
  const KeyData key = key_of(c);
  for (std::size_t i = 0; i < out.size() / 2; ++i) {
    const KeyData child = split_at(key, i);
    out[2 * i] = child.hi;
    out[2 * i + 1] = child.lo;
  }
  return one_result(std::move(result));
}

std::vector<HostArray> fold_in_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const KeyData child = fold_in(key_of(c), c.operands[1]->data<std::uint32_t>()[0]);
  result.data<std::uint32_t>()[0] = child.hi;
  result.data<std::uint32_t>()[1] = child.lo;
  return one_result(std::move(result));
}

/// Results can be computed anywhere; keys stay whole.
Factors bits_factors(const Attributes&, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
  Factors factors;
  factors.results = {add_dims(factors, results[0].shape)};
  factors.operands = {add_dims(factors, operands[0].shape, FactorKind::replicate)};
  return factors;
}

Factors split_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  Factors factors = bits_factors(attributes, operands, results);
  factors.factors[1].kind = FactorKind::replicate;  // the two words of each new key
  return factors;
}

Factors fold_in_factors(const Attributes&, const std::vector<Type>& operands,
                        const std::vector<Type>& results) {
  Factors factors;
  factors.results = {add_dims(factors, results[0].shape, FactorKind::replicate)};
  factors.operands = {add_dims(factors, operands[0].shape, FactorKind::replicate), {}};
  return factors;
}

SampleOperand key_operand() { return {u32({2}), 0.0, 4294967295.0}; }

Sample bits_sample(Shape shape) {
  return {.operands = {key_operand()}, .attributes = {{"shape", std::move(shape)}}};
}

Sample split_sample(std::int64_t num) {
  return {.operands = {key_operand()}, .attributes = {{"num", num}}};
}

Sample fold_in_sample(double high) { return {.operands = {key_operand(), {u32({}), 0.0, high}}}; }

}  // namespace

const OpRecord random_bits_op{
    .name = "random_bits",
    .doc =
        "32 random bits per element: y0 ^ y1 of threefry2x32(key, (hi, lo)), where hi and lo "
        "are the words of the element's row-major index in the whole array.",
    .source = "jax.random.bits, partitionable",
    .attributes = AttributeNames{"shape"},
    .types = TypeSet::integers,
    .shape = bits_shape,
    .vjp = zero_vjp,
    .batch = unrolled_batch,
    .factors = bits_factors,
    .host = generator("random_bits"),
    .reference = bits_reference,
    .cost = flops_per_element(100),
    .samples = Samples{bits_sample({5, 6}), bits_sample({12, 1}), bits_sample({3, 2, 10}),
                       bits_sample({})},
};

const OpRecord random_fold_in_op{
    .name = "random_fold_in",
    .doc = "A key made of a key and a number: threefry2x32(key, (0, data)).",
    .source = "jax.random.fold_in",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = fold_in_shape,
    .vjp = zero_vjp,
    .batch = unrolled_batch,
    .factors = fold_in_factors,
    .host = kernel("random_keys"),
    .reference = fold_in_reference,
    .cost = flops_per_element(100),
    .samples = Samples{fold_in_sample(10.0), fold_in_sample(4294967295.0)},
};

const OpRecord random_split_op{
    .name = "random_split",
    .doc = "`num` keys: row i holds both words of threefry2x32(key, (hi, lo) of i).",
    .source = "jax.random.split, partitionable",
    .attributes = AttributeNames{"num"},
    .types = TypeSet::integers,
    .shape = split_shape,
    .vjp = zero_vjp,
    .batch = unrolled_batch,
    .factors = split_factors,
    .host = kernel("random_keys"),
    .reference = split_reference,
    .cost = flops_per_element(50),
    .samples = Samples{split_sample(5), split_sample(1), split_sample(12)},
};

}  // namespace tessera::ops
