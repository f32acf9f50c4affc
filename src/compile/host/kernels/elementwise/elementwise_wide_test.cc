// Tests of kernels with operands of 8 bytes: their stages, and that every target gives the same
// bits.
#include <algorithm>
#include <bit>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"
#include "compile/host/kernels/on_every_target.h"
#include "ops/record.h"

namespace tessera::kernels {
namespace {

using elementwise::Entry;
using Bytes = std::vector<std::byte>;

struct Signature {
  std::vector<DType> inputs;
  DType output;
};

Signature signature(const Entry& entry) {
  const std::string name(entry.name);
  const DType t = entry.dtype;
  if (name.starts_with("convert_")) {
    for (const DType to : kAllDTypes) {
      if (name.ends_with(std::string("_").append(tessera::name(to)))) return {{t}, to};
    }
  }
  if (name.starts_with("compare_")) return {{t, t}, DType::boolean};
  if (name == "select") return {{DType::boolean, t, t}, t};
  if (name == "is_finite") return {{t}, DType::boolean};
  if (name == "copy") return {{t}, t};
  return {std::vector<DType>(ir::op_named(name).samples->front().operands.size(), t), t};
}

/// Calls body(entry, signature) for each kernel that is a stage of wide chains.
template <class Body>
void for_each_kernel(const Body& body) {
  std::vector<Entry> entries;
  for (const auto& families :
       {std::vector(elementwise::kFamilies), std::vector(elementwise::kWideFamilies),
        std::vector(elementwise::kOtherFamilies)}) {
    for (const auto family : families) {
      for (const Entry& entry : family()) entries.push_back(entry);
    }
  }
  for (const Entry& entry : entries) {
    if (!entry.kernel.is_stage(true)) continue;
    SCOPED_TRACE(std::string(entry.name).append(" of ").append(name(entry.dtype)));
    body(entry, signature(entry));
  }
}

std::uint64_t random_word(DType dtype, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const auto small = static_cast<std::int64_t>(random() % 200) - 100;
  const bool is_small = bits % 2 == 0;
  switch (dtype) {
    case DType::boolean:
      return bits >> 1 & 1U;
    case DType::f64: {
      constexpr double kInf = std::numeric_limits<double>::infinity();
      constexpr double kSpecial[] = {0.0, -0.0, 0.5, -0.5, 1.5, 2.5, kInf, -kInf, 1e-310, 0x1p52};
      if (bits % 16 == 1) return std::bit_cast<std::uint64_t>(kSpecial[bits / 16 % 10]);
      return is_small ? std::bit_cast<std::uint64_t>(static_cast<double>(small) * 0.125) : random();
    }
    case DType::f32:
      return is_small ? std::bit_cast<std::uint32_t>(static_cast<float>(small) * 0.125F)
                      : bits >> 32;
    default: {
      using Limits = std::numeric_limits<std::int64_t>;
      constexpr std::int64_t kSpecial[] = {Limits::min(), Limits::max(), 0, -1};
      if (bits % 16 == 1) return static_cast<std::uint64_t>(kSpecial[bits / 16 % 4]);
      return is_small ? static_cast<std::uint64_t>(small) : random();
    }
  }
}

Bytes operand(DType dtype, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t size = size_bytes(dtype);
  Bytes bytes(n * size);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t word = random_word(dtype, random);
    std::memcpy(bytes.data() + i * size, &word, size);
  }
  return bytes;
}

std::vector<Bytes> operands(const Signature& s, std::size_t n) {
  std::vector<Bytes> all;
  for (const DType dtype : s.inputs) all.push_back(operand(dtype, n, all.size() + 7));
  return all;
}

template <class Float>
void unify_nans(Bytes& bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Float)) {
    Float x;
    std::memcpy(&x, bytes.data() + at, sizeof(x));
    if (x == x) continue;
    x = std::numeric_limits<Float>::quiet_NaN();
    std::memcpy(bytes.data() + at, &x, sizeof(x));
  }
}

/// The bits of a NaN do not count.
Bytes comparable(DType dtype, Bytes bytes) {
  if (dtype == DType::f64) unify_nans<double>(bytes);
  if (dtype == DType::f32) unify_nans<float>(bytes);
  return bytes;
}

/// The first element of operands in the bit set `scalars` is used throughout.
Bytes run(const Entry& entry, const Signature& s, const std::vector<Bytes>& in, std::size_t n,
          unsigned scalars = 0) {
  std::vector<TileInput> inputs;
  for (std::size_t k = 0; k < in.size(); ++k)
    inputs.push_back({in[k].data(), (scalars >> k & 1U) != 0});
  Bytes result(n * size_bytes(s.output));
  find_tile_kernel(entry.name, entry.dtype)->run(inputs.data(), result.data(), n);
  return comparable(s.output, std::move(result));
}

/// The kernel as a stage that gets input `place` from memory or from the stage before. Blocks of
/// operands in the bit set `scalars` are full of the first element.
Bytes run_staged(const Entry& entry, const Signature& s, const std::vector<Bytes>& in,
                 std::size_t n, ChainForm form, std::size_t place, bool is_handed_on,
                 unsigned scalars) {
  const ChainKernels& chain = chain_kernels(form);
  const std::size_t blocks = (n + chain.block - 1) / chain.block;
  std::vector<Bytes> memory;
  std::vector<StageOperand> from;
  for (std::size_t k = 0; k < in.size(); ++k) {
    const bool is_scalar = (scalars >> k & 1U) != 0;
    const std::size_t size = size_bytes(s.inputs[k]);
    memory.emplace_back(blocks * chain.block * size);
    std::copy_n(in[k].begin(), (is_scalar ? 1 : n) * size, memory.back().begin());
    if (is_scalar) chain.repeat(s.inputs[k], in[k].data(), memory.back().data());
    from.push_back({.base = memory.back().data(), .mask = is_scalar ? 0 : ~std::size_t{0}});
  }
  Bytes result(blocks * chain.block * size_bytes(s.output));
  std::vector<Stage> stages(3);
  stages[0].function = chain.copies[static_cast<std::size_t>(s.inputs[place])];
  stages[0].from = from[place];
  stages[1].function = find_tile_kernel(entry.name, entry.dtype)->stages[form.index()][place];
  std::size_t other = 0;
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (k != place) stages[1].others[other++] = from[k];
  }
  stages[1].to = {.base = result.data(), .mask = ~std::size_t{0}};
  if (blocks == 1) stages[1].num_wanted = n;
  if (!is_handed_on) stages[1].from = from[place];
  stages[2].function = chain.end;
  chain.run(is_handed_on ? stages.data() : &stages[1], 0, blocks);
  result.resize(n * size_bytes(s.output));
  return comparable(s.output, std::move(result));
}

TEST(ElementwiseWide, StagesGiveTheBitsOfRuns) {
  testing::on_every_target([](const char* /*name*/) {
    for_each_kernel([](const Entry& entry, const Signature& s) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{5}, std::size_t{300}}) {
        const std::vector<Bytes> in = operands(s, n);
        for (unsigned scalars = 0; scalars < 1U << in.size(); ++scalars) {
          const Bytes want = run(entry, s, in, n, scalars);
          for (std::size_t place = 0; place < in.size(); ++place) {
            for (const bool is_short : {false, true}) {
              const ChainForm form{.is_wide = true, .is_short = is_short};
              ASSERT_EQ(run_staged(entry, s, in, n, form, place, true, scalars), want) << n;
              ASSERT_EQ(run_staged(entry, s, in, n, form, place, false, scalars), want) << n;
            }
          }
        }
      }
    });
  });
}

TEST(ElementwiseWide, EveryTargetGivesTheSameBits) {
  std::map<std::pair<std::string, DType>, Bytes> first;
  testing::on_every_target([&](const char* /*name*/) {
    for_each_kernel([&](const Entry& entry, const Signature& s) {
      constexpr std::size_t kCount = 3000;
      const Bytes got = run(entry, s, operands(s, kCount), kCount);
      const auto [known, is_new] = first.try_emplace({std::string(entry.name), entry.dtype}, got);
      ASSERT_EQ(known->second, got);
    });
  });
  EXPECT_GT(first.size(), 120U);
}

// In a chain of one block, the lanes after the wanted ones have the result of the last wanted one.
TEST(ElementwiseWide, OneElementFillsItsBlock) {
  testing::on_every_target([](const char* /*name*/) {
    const ChainKernels& chain = chain_kernels({.is_wide = true, .is_short = true});
    std::vector<double> x(chain.block), y(chain.block);
    const double two = 2;
    chain.repeat(DType::f64, reinterpret_cast<const std::byte*>(&two),
                 reinterpret_cast<std::byte*>(x.data()));
    std::vector<Stage> stages(2);
    stages[0].function = find_tile_kernel("sin", DType::f64)->stages[chain.form.index()][0];
    stages[0].from = {.base = reinterpret_cast<const std::byte*>(x.data()), .mask = 0};
    stages[0].to = {.base = reinterpret_cast<const std::byte*>(y.data()), .mask = 0};
    stages[0].num_wanted = 1;
    stages[1].function = chain.end;
    chain.run(stages.data(), 0, 1);
    for (const double value : y) EXPECT_EQ(value, y[0]);
  });
}

}  // namespace
}  // namespace tessera::kernels
