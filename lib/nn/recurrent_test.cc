// Recurrent networks over padded sequences have the bits of each sequence run alone, unpadded.
#include <gtest/gtest.h>
#include <vector>

#include <tessera/recurrent.h>
#include <tessera/tessera.h>

namespace tessera::nn {
namespace {

constexpr std::int64_t kBatch = 5, kTime = 7, kInputs = 3, kFeatures = 4;
const std::vector<std::int32_t> kLengths = {7, 3, 0, 5, 1};

struct Padded {
  Array x = random::normal(Key(1), {kBatch, kTime, kInputs});
  Array lengths = array(kLengths);
};

/// Sequence b of x without its padding: [1, length, inputs].
Array alone(const Array& x, std::size_t b) {
  const auto row = static_cast<std::int64_t>(b);
  return slice(slice(x, 0, row, row + 1), 1, 0, kLengths[b]);
}

/// The results of a sequence, followed by zeros up to the padded length.
Array padded(const Array& y) { return pad(y, {0, 0, 0}, {0, kTime - y.dim(1), 0}); }

/// Expects row b of each leaf of `all` to equal the only row of that leaf of `one`.
template <typename Tree>
void expect_rows(const Tree& all, const Tree& one, std::size_t b, const char* what) {
  const std::vector<Array> rows = tree_leaves(all), single = tree_leaves(one);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(b);
    EXPECT_TRUE(array_equal(slice(rows[i], 0, row, row + 1), single[i])) << what << " " << b;
  }
}

template <typename Cell>
void check_cell() {
  const Padded in;
  const Cell cell(Scope(Key(0)), kInputs, kFeatures);
  for (const bool reverse : {false, true}) {
    const auto run = jit([&](const Cell& c, const Array& x, const Array& lengths) {
      return rnn(c, c.initial_carry(x.dim(0)), x, {.reverse = reverse, .lengths = lengths});
    });
    const auto [carry, y] = run(cell, in.x, in.lengths);
    for (std::size_t b = 0; b < kLengths.size(); ++b) {
      if (kLengths[b] == 0) {
        expect_rows(carry, cell.initial_carry(1), b, "carry");
        continue;
      }
      Array x = alone(in.x, b);
      if (reverse) x = flip(x, 1);
      const auto [last, found] = rnn(cell, cell.initial_carry(1), x);
      expect_rows(y, padded(reverse ? flip(found, 1) : found), b, "y");
      expect_rows(carry, last, b, "carry");
    }
    const use_mesh scope(make_mesh({{"data", 2}, {"model", 2}}));
    const Array x = device_put(in.x, P{"data", none, "model"});
    const auto [mesh_carry, mesh_y] = run(cell, x, device_put(in.lengths, P{"data"}));
    EXPECT_TRUE(array_equal(y, mesh_y));
  }
}

TEST(Rnn, LeavesPaddingOut) {
  check_cell<SimpleCell>();
  check_cell<LSTMCell>();
  check_cell<GRUCell>();
}

/// Adds up its inputs; has no projections.
struct Sum {
  Array project = zeros({kInputs});  // a parameter of this name is not a projection
  std::pair<Array, Array> operator()(const Array& carry, const Array& x) const {
    const Array next = carry + x + project;
    return {next, next};
  }
};

/// Adds up its inputs in arrays of every rank.
struct Outer {
  using Carry = std::tuple<Array, Array, Array>;  // [batch], [batch, inputs], [batch, inputs, 5]
  std::pair<Carry, Array> operator()(const Carry& carry, const Array& x) const {
    const auto& [one, two, three] = carry;
    const Carry next = {one + sum(x, -1), two + x,
                        three + expand_dims(x, 2) * astype(arange(5), DType::f32)};
    return {next, x};
  }
};

TEST(Rnn, LeavesPaddingOutOfCarriesOfAnyRank) {
  const Padded in;
  const auto start = [](std::int64_t batch) {
    return Outer::Carry{zeros({batch}), zeros({batch, kInputs}), zeros({batch, kInputs, 5})};
  };
  const auto last = rnn(Outer(), start(kBatch), in.x, {.lengths = in.lengths}).first;
  for (std::size_t b = 0; b < kLengths.size(); ++b) {
    if (kLengths[b] == 0) continue;
    expect_rows(last, rnn(Outer(), start(1), alone(in.x, b)).first, b, "carry");
  }
}

TEST(Rnn, RunsCellsThatOnlyCompute) {
  const Array x = Padded().x;
  const auto [last, y] = rnn(Sum(), zeros({kBatch, kInputs}), x);
  Array sum = zeros({kBatch, kInputs});
  for (std::int64_t t = 0; t < kTime; ++t) {
    sum = sum + squeeze(slice(x, 1, t, t + 1), 1);
    EXPECT_TRUE(array_equal(squeeze(slice(y, 1, t, t + 1), 1), sum)) << t;
  }
  EXPECT_TRUE(array_equal(last, sum));
}

/// The network projects the inputs of all positions at once; a cell alone projects one position.
TEST(Rnn, HasTheBitsOfItsCellAtEachPosition) {
  const Array x = Padded().x;
  const LSTMCell cell(Scope(Key(0)), kInputs, kFeatures);
  LSTMCell::Carry carry = cell.initial_carry(kBatch);
  const auto [last, y] = rnn(cell, carry, x);
  for (std::int64_t t = 0; t < kTime; ++t) {
    const auto [next, h] = cell(carry, squeeze(slice(x, 1, t, t + 1), 1));
    EXPECT_TRUE(array_equal(squeeze(slice(y, 1, t, t + 1), 1), h)) << t;
    carry = next;
  }
  EXPECT_TRUE(array_equal(last.first, carry.first));
  EXPECT_TRUE(array_equal(last.second, carry.second));
}

TEST(Rnn, PaddingHasNoGradient) {
  const Padded in;
  const LSTMCell cell(Scope(Key(0)), kInputs, kFeatures);
  const auto loss = [&](const Array& x) {
    return sum(square(bidirectional(cell, cell, x, in.lengths)));
  };
  const Array gradient = grad(loss)(in.x);
  const Array is_padding = arange(kTime) >= expand_dims(in.lengths, 1);
  EXPECT_EQ(sum(abs(where(expand_dims(is_padding, -1), gradient, 0))).item<float>(), 0.0F);
  EXPECT_GT(sum(abs(gradient)).item<float>(), 0.0F);
}

TEST(Rnn, BothDirectionsSeeTheWholeSequence) {
  const Padded in;
  const GRUCell cell(Scope(Key(0)), kInputs, kFeatures), back(Scope(Key(2)), kInputs, kFeatures);
  const Array y = bidirectional(cell, back, in.x);
  const auto start = cell.initial_carry(kBatch);
  EXPECT_TRUE(array_equal(slice(y, 2, 0, kFeatures), rnn(cell, start, in.x).second));
  const Array turned = flip(rnn(back, start, flip(in.x, 1)).second, 1);
  EXPECT_TRUE(array_equal(slice(y, 2, kFeatures), turned));
}

}  // namespace
}  // namespace tessera::nn
