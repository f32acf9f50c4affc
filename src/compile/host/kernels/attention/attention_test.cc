// Every instruction set and every cut into ranges gives the same bits. The values are compared with
// the reference in tests/ops.
#include "compile/host/kernels/attention/attention.h"

#include <algorithm>

#include "compile/host/kernels/attention/attention_vectors.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::at;
using testing::Random;

struct Case {
  AttentionProblem problem;
  std::vector<float> q, k, v, bias, d_output, lse, delta;
  std::vector<std::int32_t> lengths;
  std::vector<std::uint32_t> dropout_keys;

  AttentionOperands operands() const {
    return {.q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .bias = bias.empty() ? nullptr : bias.data(),
            .lengths = lengths.empty() ? nullptr : lengths.data(),
            .dropout_keys = dropout_keys.data(),
            .d_output = d_output.data(),
            .lse = lse.data(),
            .delta = delta.data()};
  }
};

Case draw(Random& random) {
  Case c;
  AttentionProblem& p = c.problem;
  p.batch = random.integer(1, 2);
  p.queries = random.integer(1, 170);
  p.keys = p.all_keys = random.integer(1, random.one_in(3) ? 1300 : 150);
  p.group = random.integer(1, 2);
  p.heads = p.group * random.integer(1, 2);
  p.depth = random.integer(1, 50);
  p.value_depth = random.integer(1, 50);
  p.window = {.before = random.one_in(2) ? -1 : random.integer(0, p.keys),
              .after = random.one_in(2) ? -1 : random.integer(0, p.keys)};
  p.scale = 0.125F;
  const bool has_nonfinite = random.one_in(3);
  const auto values = [&](std::int64_t count) {
    return testing::random_values<float>(random, at(count), has_nonfinite);
  };
  const std::int64_t key_heads = p.heads / p.group;
  c.q = values(p.batch * p.queries * p.heads * p.depth);
  c.k = values(p.batch * p.keys * key_heads * p.depth);
  c.v = values(p.batch * p.keys * key_heads * p.value_depth);
  c.d_output = values(p.batch * p.queries * p.heads * p.value_depth);
  c.lse = values(p.batch * p.queries * p.heads);
  for (float& x : c.lse) x += 100.0F;
  c.delta = values(p.batch * p.queries * p.heads);
  if (random.one_in(2)) {
    c.bias = values(p.queries * p.keys);
    p.bias = {
        .batches = std::vector<std::int64_t>(at(p.batch), 0), .head = 0, .query = p.keys, .key = 1};
  }
  if (random.one_in(2)) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      c.lengths.push_back(static_cast<std::int32_t>(random.integer(0, p.keys)));
    }
  }
  if (random.one_in(2)) {
    p.dropout.emplace(0.3);
    p.all_queries = p.queries;
    for (std::int64_t i = 0; i < 2 * p.batch; ++i) {
      c.dropout_keys.push_back(static_cast<std::uint32_t>(random.integer(0, 1 << 30)));
    }
  }
  return c;
}

struct Results {
  std::vector<float> output, lse, q, k, v;

  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const auto* values : {&output, &lse, &q, &k, &v}) {
      for (float x : *values) {
        std::uint32_t word = 0x7fc00000;  // of all NaNs
        if (x == x) std::memcpy(&word, &x, sizeof(x));
        all.push_back(word);
      }
    }
    return all;
  }
};

/// With the queries, and the keys of derivatives, cut into this many ranges.
Results results_of(const Case& c, std::int64_t ranges) {
  const AttentionProblem& p = c.problem;
  const std::int64_t rows = p.batch * p.queries * p.heads;
  const std::int64_t key_rows = p.batch * p.keys * p.heads;
  Results r{.output = std::vector<float>(at(rows * p.value_depth)),
            .lse = std::vector<float>(at(rows)),
            .q = std::vector<float>(at(rows * p.depth)),
            .k = std::vector<float>(at(key_rows * p.depth)),
            .v = std::vector<float>(at(key_rows * p.value_depth))};
  const auto range = [&](std::int64_t i, std::int64_t size) {
    return PositionRange{i * size / ranges, (i + 1) * size / ranges};
  };
  const PositionRange queries{0, p.queries};
  const PositionRange keys{0, p.keys};
  for (std::int64_t head = 0; head < p.batch * p.heads; ++head) {
    if (ranges == 1) {
      attend_backward(p, c.operands(), {.q = r.q.data(), .k = r.k.data(), .v = r.v.data()}, head,
                      queries, keys);
    }
    for (std::int64_t i = 0; i < ranges; ++i) {
      attend(p, c.operands(), {.output = r.output.data(), .lse = r.lse.data()}, head,
             range(i, p.queries));
      if (ranges == 1) continue;
      attend_backward(p, c.operands(), {.q = r.q.data()}, head, range(i, p.queries), keys);
      attend_backward(p, c.operands(), {.k = r.k.data(), .v = r.v.data()}, head, queries,
                      range(i, p.keys));
    }
  }
  return r;
}

TEST(AttentionKernels, HaveTheSameBitsOnEveryInstructionSetAndInAllRanges) {
  Random random;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Case c = draw(random);
    const std::vector<std::uint32_t> wanted = results_of(c, 1).bits();
    testing::on_every_target([&](const char*) {
      EXPECT_TRUE(results_of(c, 1).bits() == wanted);
      EXPECT_TRUE(results_of(c, 3).bits() == wanted);
    });
  }
}

/// Counters of a few lanes, some of which are about to reach the next multiple of 2^32.
TEST(AttentionKernels, DrawTheBitsOfThreefry) {
  Random random;
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    constexpr std::int64_t kRows = 61;
    constexpr std::uint32_t kBelow = 5'000'000;
    const KeyData key{static_cast<std::uint32_t>(random.integer(0, 1 << 30)),
                      static_cast<std::uint32_t>(random.integer(0, 1 << 30))};
    std::vector<std::uint64_t> counters;
    std::vector<std::uint32_t> high, low;
    for (int lane = 0; lane < 32; ++lane) {
      counters.push_back((std::uint64_t{7} << 32U) - at(random.integer(0, 90)));
      high.push_back(static_cast<std::uint32_t>(counters.back() >> 32U));
      low.push_back(static_cast<std::uint32_t>(counters.back()));
    }
    testing::on_every_target([&](const char*) {
      const std::int64_t vector = gemm::kernels().lanes;
      for (const std::int64_t cols : {vector, 2 * vector}) {
        attention::KeptBits kept;
        attention::draw_kept({.key = key, .high = high.data(), .low = low.data()}, kBelow, kRows,
                             cols, kept);
        std::vector<float> wanted;
        for (std::int64_t n = 0; n < kRows * cols; ++n) {
          const std::uint64_t counter = counters[at(n % cols)] + at(n / cols);
          wanted.push_back(random_bits(key, counter) >> 9U < kBelow ? 6.0F : 0.0F);
        }
        alignas(64) float block[kRows * 32];
        std::fill_n(block, kRows * cols, 3.0F);
        attention::drop({.data = block, .stride = cols, .rows = kRows, .cols = cols}, kept, 2.0F);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), block)) << cols;
      }
    });
  }
}

TEST(AttentionKernels, UseMemoryThatGrowsLinearly) {
  AttentionProblem p{.keys = 4096, .heads = 1, .depth = 64, .value_depth = 64, .all_keys = 4096};
  float wanted = 0;
  const AttentionGradients all{.q = &wanted, .k = &wanted, .v = &wanted};
  const std::int64_t forward = attend_scratch_bytes(p, 256);
  const std::int64_t backward = attend_backward_scratch_bytes(p, all, 4096);
  p.keys = p.all_keys = 16384;
  EXPECT_LE(attend_scratch_bytes(p, 256), 2 * forward);
  EXPECT_LE(attend_backward_scratch_bytes(p, all, 16384), 4 * backward);
}

}  // namespace
}  // namespace tessera::kernels
