// Attention whose keys are split into whole leaves, or read in windows: random shapes, masks,
// dtypes and meshes, with the bits of one device and of the reference engine, and the bytes that
// plans move.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "api/test_support.h"
#include "tests/sharding/placed.h"

namespace tessera::testing {
namespace {

using Arrays = std::vector<Array>;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, std::ssize(list) - 1))];
  }
  /// Numbers of magnitudes that make scores differ much from leaf to leaf. Some are -0.
  Array numbers(const Shape& shape, DType dtype) {
    std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
    for (float& x : values) {
      x = one_in(8) ? -0.0F : static_cast<float>(between(-4000, 4000)) / 1000.0F;
    }
    return astype(array(values, shape), dtype);
  }

 private:
  std::mt19937 engine_;
};

/// q, k, v, and then a bias or lengths.
struct Case {
  Mesh mesh;
  Arrays arrays;
  std::vector<P> specs;
  AttentionMask mask;  // without arrays
  bool has_bias = false, has_lengths = false;

  Array operator()(const Arrays& in) const {
    AttentionMask all = mask;
    if (has_bias) all.bias = in[3];
    if (has_lengths) all.lengths = in.back();
    if (mask.dropout) all.dropout = AttentionDropout{mask.dropout->rate, random::Key(5)};
    return astype(attention(in[0], in[1], in[2], all), DType::f32);
  }
};

/// A spec with these entries; empty ones are not split.
P spec_of(const std::vector<std::string>& entries) {
  std::vector<SpecEntry> list;
  for (const std::string& axis : entries) {
    list.emplace_back(none);
    if (!axis.empty()) list.back().axes = {axis};
  }
  return P(std::move(list));
}

void draw_mask(Random& random, std::int64_t keys, Case& c) {
  // With limits on both sides, devices would exchange halos.
  c.mask.is_causal = random.one_in(3);
  if (!c.mask.is_causal && random.one_in(3)) c.mask.before = random.between(0, keys);
  if (c.mask.before < 0 && random.one_in(3)) c.mask.after = random.between(0, keys);
  if (random.one_in(4)) c.mask.dropout = AttentionDropout{0.3, random::Key(5)};
}

struct Sizes {
  std::int64_t batch, queries, keys, heads, key_heads, depth, value_depth;
};

/// Few queries, so that partial results are small, or as many as keys.
Sizes draw_sizes(Random& random, std::int64_t parts, bool has_many_queries) {
  Sizes s{};
  s.batch = has_many_queries ? 1 : random.between(1, 3);
  s.keys = parts * random.between(257, has_many_queries || parts == 8 ? 300 : 600);
  s.queries = has_many_queries ? parts * random.between(170, 250) : parts * random.between(1, 9);
  s.key_heads = random.between(1, has_many_queries ? 2 : 3);
  s.heads = s.key_heads * (has_many_queries ? 1 : random.between(1, 2));
  s.depth = random.one_of<std::int64_t>(has_many_queries ? Shape{32, 56} : Shape{1, 3, 8, 12});
  s.value_depth = random.one_of<std::int64_t>(has_many_queries ? Shape{5, 8} : Shape{1, 5, 32});
  return s;
}

/// Keys are split over x, and queries over x or nothing; another dimension may be split over y.
Case draw_case(Random& random) {
  Case c{.mesh = make_mesh(random.one_of<std::vector<MeshAxis>>(
             {{{"x", 2}, {"y", 2}}, {{"x", 4}, {"y", 2}}, {{"x", 4}, {"y", 1}}, {{"x", 8}}})),
         .arrays = {},
         .specs = {},
         .mask = {}};
  const bool has_y = c.mesh.axes().size() > 1;
  const bool has_many_queries = !random.one_in(3);
  const bool is_paired = has_many_queries || random.one_in(3);
  const auto [batch, queries, keys, heads, key_heads, depth, value_depth] =
      draw_sizes(random, c.mesh.axes()[0].size, has_many_queries);
  const DType dtype = random.one_in(3) ? DType::bf16 : DType::f32;
  draw_mask(random, keys, c);
  const std::string of_batch = has_y && batch > 1 && random.one_in(2) ? "y" : "";
  const std::string of_heads = has_y && key_heads > 1 && of_batch.empty() ? "y" : "";
  c.arrays = {random.numbers({batch, queries, heads, depth}, dtype),
              random.numbers({batch, keys, key_heads, depth}, dtype),
              random.numbers({batch, keys, key_heads, value_depth}, dtype)};
  c.specs = {spec_of({of_batch, is_paired ? "x" : "", of_heads, ""}),
             spec_of({of_batch, "x", of_heads, ""}), spec_of({of_batch, "x", of_heads, ""})};
  if (random.one_in(3)) {
    c.has_bias = true;
    Shape shape = {batch, heads, queries, keys};
    for (std::int64_t& size : shape) size = random.one_in(2) ? 1 : size;
    const bool is_split = shape[3] == keys && random.one_in(2);
    c.arrays.push_back(random.numbers(shape, DType::f32));
    c.specs.push_back(spec_of({"", "", "", is_split ? "x" : ""}));
  }
  if (random.one_in(3)) {
    c.has_lengths = true;
    std::vector<std::int32_t> lengths;
    for (std::int64_t i = 0; i < batch; ++i) {
      lengths.push_back(static_cast<std::int32_t>(random.between(0, keys + 1)));
    }
    c.arrays.push_back(array(lengths, {batch}));
    c.specs.push_back(spec_of({""}));
  }
  return c;
}

/// Returns the plan of a function of the arrays of a case.
template <typename F>
std::string expect_bits_of_one_device(const Case& c, const F& of_arrays) {
  const use_context own{Context()};
  const std::vector<std::byte> wanted = bits_of(of_arrays(c.arrays));
  const auto f = jit([&](const Arrays& in) { return of_arrays(in); }, {.passes = {.verify = true}});
  const auto place = [&] {
    Arrays placed;
    for (std::size_t i = 0; i < c.arrays.size(); ++i) {
      placed.push_back(device_put(c.arrays[i], NamedSharding(c.mesh, c.specs[i])));
    }
    return placed;
  };
  std::string plan = f.lower(place()).partitioned_ir();
  EXPECT_EQ(bits_of(f(place())), wanted) << plan;
  const use_context reference{Context()};
  set_engine("reference");
  const auto again = jit([&](const Arrays& in) { return of_arrays(in); });
  EXPECT_EQ(bits_of(again(place())), wanted) << plan;
  return plan;
}

TEST(SplitKeys, HaveTheBitsOfOneDevice) {
  constexpr int kCases = 32;
  Random random(1);
  int exchanged = 0, stepped = 0;
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Case c = draw_case(random);
    const std::string plan = expect_bits_of_one_device(c, c);
    if (plan.find("permute[") != std::string::npos) ++stepped;
    if (plan.find("partner=-1") != std::string::npos) ++exchanged;
  }
  EXPECT_GT(exchanged, kCases / 4) << "too few of the plans are those that this tests";
  EXPECT_GT(stepped, kCases / 10) << "too few of the plans are those that this tests";
}

// --- bytes

Uses uses_with(const Mesh& mesh, const Shape& q, const Shape& k, const std::vector<P>& specs,
               const AttentionMask& mask = {}) {
  return run_placed(
      mesh, [&](const Arrays& in) { return attention(in[0], in[1], in[2], mask); },
      {numbers(q, 1), numbers(k, 2), numbers(k, 3)}, specs);
}

/// One query over a long cache: 8 heads of o, m and l are exchanged, then the heads are joined.
TEST(SplitKeys, OfOneQueryMovePartialResults) {
  const P keys{none, "x"};
  const Mesh mesh = make_mesh({{"x", 4}});
  EXPECT_EQ(uses_with(mesh, {1, 1, 8, 16}, {1, 4096, 8, 16}, {P{}, keys, keys}),
            (Uses{"all_to_all x1: 432 bytes"}));
}

/// If queries are split as well, as many bytes move as if the keys were gathered.
TEST(SplitKeys, OfSplitQueriesVisitTheQueries) {
  const P split{none, "x"};
  const Mesh mesh = make_mesh({{"x", 4}});
  EXPECT_EQ(uses_with(mesh, {1, 2048, 1, 8}, {1, 2048, 1, 8}, {split, split, split}),
            (Uses{"permute x6: 98304 bytes"}));
}

/// Partners whose keys no query sees are left out. Without the bias, a halo would do.
TEST(SplitKeys, OfAWindowWithABiasVisitNeighbours) {
  const P split{none, "x"};
  const Mesh mesh = make_mesh({{"x", 4}});
  EXPECT_EQ(uses_with(mesh, {1, 2048, 1, 8}, {1, 2048, 1, 8}, {split, split, split},
                      {.is_causal = true, .before = 100, .bias = numbers({1, 1, 1, 2048}, 4)}),
            (Uses{"permute x4: 65536 bytes"}));
}

/// With a window, a device needs the keys and values of 100 positions of its neighbour.
TEST(SplitKeys, OfAWindowAreExchangedAsAHalo) {
  const P split{none, "x"};
  const Mesh mesh = make_mesh({{"x", 4}});
  EXPECT_EQ(uses_with(mesh, {1, 2048, 1, 8}, {1, 2048, 1, 8}, {split, split, split},
                      {.is_causal = true, .before = 100}),
            (Uses{"halo_exchange x2: 6400 bytes"}));
}

// --- windows

/// Queries and keys are split over x. Their numbers, and so their shards, are of any size.
Case draw_window(Random& random) {
  Case c{.mesh = make_mesh(random.one_of<std::vector<MeshAxis>>(
             {{{"x", 2}, {"y", 2}}, {{"x", 3}}, {{"x", 4}, {"y", 2}}, {{"x", 5}}})),
         .arrays = {},
         .specs = {},
         .mask = {}};
  const bool has_y = c.mesh.axes().size() > 1;
  const bool is_long = random.one_in(4);
  const std::int64_t queries = random.between(10, is_long ? 700 : 60);
  const std::int64_t keys = random.one_in(2) ? queries : random.between(10, is_long ? 1500 : 60);
  const std::int64_t key_heads = random.between(1, 2);
  const std::int64_t heads = key_heads * random.between(1, 2);
  const DType dtype = random.one_in(3) ? DType::bf16 : DType::f32;
  c.mask.before = random.between(0, keys / 4);
  c.mask.after = random.between(0, keys / 4);
  c.mask.is_causal = random.one_in(3);
  if (c.mask.is_causal) c.mask.after = -1;
  if (random.one_in(4)) c.mask.dropout = AttentionDropout{0.3, random::Key(5)};
  const std::string of_heads = has_y && key_heads == 2 ? "y" : "";
  c.arrays = {random.numbers({1, queries, heads, 5}, dtype),
              random.numbers({1, keys, key_heads, 5}, dtype),
              random.numbers({1, keys, key_heads, 3}, dtype)};
  c.specs.assign(3, spec_of({"", "x", of_heads, ""}));
  if (random.one_in(4)) {
    c.has_bias = true;
    Shape shape = {1, heads, queries, keys};
    for (std::int64_t& size : shape) size = random.one_in(2) ? 1 : size;
    c.arrays.push_back(random.numbers(shape, DType::f32));
    c.specs.push_back(spec_of({"", "", "", ""}));
  }
  if (random.one_in(4)) {
    c.has_lengths = true;
    c.arrays.push_back(array(std::vector{static_cast<std::int32_t>(random.between(0, keys))}, {1}));
    c.specs.push_back(spec_of({""}));
  }
  return c;
}

/// The output and the gradients of q, k and v, concatenated.
Array with_gradients(const Case& c, const Arrays& in) {
  const auto loss = [&](const Array& q, const Array& k, const Array& v) {
    Arrays all = in;
    all[0] = q;
    all[1] = k;
    all[2] = v;
    const Array y = c(all);
    return std::pair(sum(y * y), y);
  };
  const auto [value, y, gradients] = value_and_grad<0, 1, 2>(loss)(in[0], in[1], in[2]);
  Arrays flat;
  for (const Array& x :
       {y, std::get<0>(gradients), std::get<1>(gradients), std::get<2>(gradients)}) {
    flat.push_back(astype(reshape(x, {num_elements(x.shape())}), DType::f32));
  }
  return concatenate(flat, 0);
}

TEST(SplitKeys, OfAWindowHaveTheBitsOfOneDeviceWithGradients) {
  constexpr int kCases = 120;
  Random random(2);
  int halos = 0;
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    const Case c = draw_window(random);
    const std::string plan =
        expect_bits_of_one_device(c, [&](const Arrays& in) { return with_gradients(c, in); });
    if (plan.find("halo_exchange") != std::string::npos) ++halos;
  }
  EXPECT_GT(halos, kCases / 2) << "too few of the plans are those that this tests";
}

/// Some of q, k and v are split over x, the others are whole. There are few keys or few queries.
Case draw_partly_split(Random& random) {
  Case c{.mesh = make_mesh({{"x", random.between(2, 3)}, {"y", 2}}),
         .arrays = {},
         .specs = {},
         .mask = {}};
  const std::int64_t batch = random.between(1, 3);
  const bool has_few_keys = random.one_in(2);
  const std::int64_t few = random.between(3, 9), many = random.between(20, 300);
  const std::int64_t keys = has_few_keys ? few : many, queries = has_few_keys ? many : few;
  c.mask.before = random.between(0, 9);
  c.mask.after = random.between(0, 9);
  c.arrays = {random.numbers({batch, queries, 1, 2}, DType::f32),
              random.numbers({batch, keys, 1, 2}, DType::f32),
              random.numbers({batch, keys, 1, 4}, DType::f32)};
  for (int i = 0; i < 3; ++i) {
    c.specs.push_back(spec_of({"", random.one_in(2) ? "x" : "", "", random.one_in(3) ? "y" : ""}));
  }
  return c;
}

TEST(SplitKeys, OfSomeOperandsHaveTheBitsOfOneDeviceWithGradients) {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const Case c = draw_partly_split(random);
    expect_bits_of_one_device(c, [&](const Arrays& in) { return with_gradients(c, in); });
  }
}

// --- others

/// The derivatives need all keys in any case.
TEST(SplitKeys, OfATrainingStepAreGatheredOnce) {
  const P split{none, "x"};
  const use_mesh scope(make_mesh({{"x", 4}}));
  Arrays placed;
  for (std::uint32_t i = 0; i < 3; ++i) {
    placed.push_back(device_put(numbers({1, 2048, 1, 8}, i), split));
  }
  const auto step = jit([](const Arrays& in) {
    return grad<0, 1, 2>([](const Array& q, const Array& k, const Array& v) {
      return sum(square(attention(q, k, v)));
    })(in[0], in[1], in[2]);
  });
  const std::string plan = step.lower(placed).partitioned_ir();
  EXPECT_EQ(plan.find("attention_parts"), std::string::npos) << plan;
}

/// The table of collectives names what was exchanged and why.
TEST(SplitKeys, AreExplained) {
  const P split{none, "x"};
  const use_mesh scope(make_mesh({{"x", 4}}));
  Arrays placed;
  for (std::uint32_t i = 0; i < 3; ++i) {
    placed.push_back(device_put(numbers({1, 2048, 1, 8}, i), split));
  }
  const auto f = jit([](const Arrays& in) { return attention(in[0], in[1], in[2]); });
  const std::string text = f.lower(placed).explain();
  EXPECT_NE(text.find("needs the keys of the other devices, one after another"), std::string::npos)
      << text;
  EXPECT_NE(text.find("is split over {x}"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::testing
