// Compares layers with their gradients and state, and losses, with numbers that Flax and Optax
// printed. On meshes they must have the same bits as without one.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>

#include <tessera/nn.h>
#include <tessera/recurrent.h>
#include <tessera/tessera.h>

#include "tests/peers/golden.h"

namespace tessera::nn {
namespace {

using Json = nlohmann::json;

Array array_of(const Json& packed) {
  return array(packed["values"].get<std::vector<float>>(), packed["shape"].get<Shape>());
}

/// Expects equality up to a few f32 roundings of the largest element, or of `largest`.
void expect_near(const Array& found, const Json& wanted, const std::string& name,
                 float largest = 1) {
  ASSERT_EQ(found.shape(), wanted["shape"].get<Shape>()) << name;
  const auto values = found.to_vector<float>();
  const auto numbers = wanted["values"].get<std::vector<float>>();
  for (const float number : numbers) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], numbers[i], 4e-6F * largest) << name << ", element " << i;
  }
}

Array weighted(const Array& x) { return sum(reshape(x, {-1}) * cos(arange(x.size(), DType::f32))); }

/// The layer with the recorded parameters in place of its own.
template <typename Layer>
Layer with_recorded(const Layer& layer, const Json& c) {
  return tree_map_with_path(
      [&](const std::string& path, const Array& leaf) {
        for (const char* collection : {"params", "stats"}) {
          if (c.contains(collection) && c[collection].contains(path)) {
            return array_of(c[collection][path]);
          }
        }
        ADD_FAILURE() << "no numbers for " << path;
        return leaf;
      },
      layer);
}

/// The result of a layer and its derivatives.
template <typename Layer, typename Input>
struct Result {
  Array y;
  Layer after, gradients;
  Input x_gradient;
  TESSERA_TREE(y, after, gradients, x_gradient)
};

template <typename Layer, typename Input, typename F>
Result<Layer, Input> evaluate(const Layer& layer, const Input& x, const F& apply) {
  const auto loss = [&](Layer l, const Input& a) {
    Array y = apply(l, a);
    return std::tuple(weighted(y), std::move(y), std::move(l));
  };
  const auto run = jit([&](const Layer& l, const Input& a) {
    auto [value, y, after, gradients] = value_and_grad<0, 1>(loss)(l, a);
    return Result<Layer, Input>{y, after, std::get<0>(gradients), std::get<1>(gradients)};
  });
  return run(layer, x);
}

template <typename T>
void expect_same_bits(const T& found, const T& wanted, const std::string& name) {
  const std::vector<std::string> paths = tree_paths(wanted);
  const std::vector<Array> a = tree_leaves(found);
  const std::vector<Array> b = tree_leaves(wanted);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(array_equal(a[i], b[i])) << name << ": " << paths[i];
  }
}

template <typename Layer>
void expect_near_gradients(const Layer& found, const Json& c, const std::string& name,
                           float largest = 1) {
  const std::vector<Param> gradients = tree_params(found);
  std::size_t num_trained = 0;
  for (const Param& gradient : gradients) {
    if (!gradient.is_trained()) continue;
    ++num_trained;
    expect_near(gradient, c["gradients"][gradient.path()], name + " " + gradient.path(), largest);
  }
  EXPECT_EQ(num_trained, c["gradients"].size());
}

/// Compares the layer with the recorded numbers, and its results on several meshes with those on
/// none.
template <typename Layer, typename F>
void check(const Layer& made, const Json& c, const F& apply) {
  const std::string name = c["name"].get<std::string>() + " " + c["options"].dump();
  const Layer layer = with_recorded(made, c);
  const Array x = array_of(c["x"]);
  const auto alone = evaluate(layer, x, apply);
  expect_near(alone.y, c["y"], name);
  expect_near(alone.x_gradient, c["x_gradient"], name);
  expect_near_gradients(alone.gradients, c, name);
  for (const std::int64_t devices : {2, 4}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    for (const P& spec : {P{"data"}, P{none, "data"}}) {
      const Layer placed = device_put(layer, fsdp_shardings(mesh, layer, "data"));
      const Array split = device_put(x, NamedSharding(mesh, spec));
      expect_same_bits(evaluate(placed, split, apply), alone,
                       name + " on " + std::to_string(devices) + " devices " + to_string(spec));
    }
  }
}

BatchNorm batch_norm(const Json& c) {
  const Json& o = c["options"];
  return BatchNorm(Scope(Key(0)), c["x"]["shape"].back(),
                   {.momentum = o["momentum"],
                    .epsilon = o["epsilon"],
                    .use_bias = o["use_bias"],
                    .use_scale = o["use_scale"]});
}

template <typename Layer>
void check_plain(const Layer& layer, const Json& c) {
  check(layer, c, [](const Layer& l, const Array& x) { return l(x); });
}

template <typename Cell>
void check_cell(const Json& c) {
  const std::int64_t inputs = c["x"]["shape"].back();
  // A cell is one scope of a model: parameter names of Linen's RNN begin with the name of its cell.
  const Cell made(Scope(Key(5)) / "cell", inputs, c["options"]["features"]);
  for (const Param& param : tree_params(made)) {
    const std::string path = param.path().substr(std::string("cell/").size());
    expect_near(param, c["initial"][path], "initial " + path);
  }
  check(Cell(Scope(Key(0)), inputs, c["options"]["features"]), c,
        [](const Cell& cell, const Array& x) {
          return rnn(cell, cell.initial_carry(x.dim(0)), x).second;
        });
}

void check_transposed(const Json& c) {
  const Json& o = c["options"];
  check_plain(ConvTranspose(Scope(Key(0)), c["x"]["shape"].back(), o["features"],
                            {.kernel_size = o["kernel"],
                             .strides = o["strides"],
                             .padding = o["padding"] == "SAME" ? "SAME" : "VALID",
                             .kernel_dilation = o["dilation"]}),
              c);
}

void check_layer(const Json& c) {
  const std::string name = c["name"];
  const std::int64_t features = c["x"]["shape"].back();
  if (name == "BatchNorm") {
    check(batch_norm(c), c, [](BatchNorm& l, const Array& x) { return l(x, Mode::train()); });
  } else if (name == "GroupNorm") {
    check_plain(GroupNorm(Scope(Key(0)), features, c["options"]["groups"]), c);
  } else if (name == "RMSNorm") {
    check_plain(RMSNorm(Scope(Key(0)), features, c["options"]["epsilon"].get<double>()), c);
  } else if (name == "ConvTranspose") {
    check_transposed(c);
  } else if (name == "SimpleCell") {
    check_cell<SimpleCell>(c);
  } else if (name == "LSTMCell") {
    check_cell<LSTMCell>(c);
  } else if (name == "GRUCell") {
    check_cell<GRUCell>(c);
  } else {
    FAIL() << name;
  }
}

TEST(LayersGolden, ValuesAndGradients) {
  std::map<std::string, int> counts;
  const Json golden = read_golden("layers.json");
  for (const Json& c : golden["layers"]) {
    check_layer(c);
    ++counts[c["name"]];
  }
  EXPECT_EQ(counts.size(), 7U);
}

/// The input from which queries are made, and the input that they attend to.
struct Inputs {
  Array x, seen;
  TESSERA_TREE(x, seen)
};

void check_attention(const Json& c) {
  const Json& o = c["options"];
  const std::string name = "attention " + o.dump();
  const Inputs inputs{array_of(c["x"]), array_of(c["seen"])};
  const MultiHeadAttention layer =
      with_recorded(MultiHeadAttention(Scope(Key(0)), {.num_heads = o["heads"],
                                                       .features = inputs.x.dim(2),
                                                       .qkv_features = o["qkv"],
                                                       .use_bias = o["use_bias"],
                                                       .kv_features = inputs.seen.dim(2)}),
                    c);
  AttentionMask mask{.is_causal = o["causal"]};
  if (o["padded"]) {
    mask.lengths = array(c["lengths"].get<std::vector<std::int32_t>>(), {inputs.x.dim(0)});
  }
  const auto apply = [&](const MultiHeadAttention& l, const Inputs& in) {
    return o["cross"] ? l.attend(in.x, in.seen, mask) : l(in.x, mask);
  };
  const auto apply_read = [&](const MultiHeadAttention& l, const Inputs& in) {
    return l.attend(in.x, l.read(o["cross"] ? in.seen : in.x), mask);
  };
  const auto alone = evaluate(layer, inputs, apply);
  const auto after_reading = evaluate(layer, inputs, apply_read);
  constexpr float kTerms = 16;  // of the scores, which cancel where a query sees only one key
  for (const auto* found : {&alone, &after_reading}) {
    expect_near(found->y, c["y"], name);
    expect_near(found->x_gradient.x, c["x_gradient"], name, kTerms);
    expect_near(found->x_gradient.seen, c["seen_gradient"], name, kTerms);
    expect_near_gradients(found->gradients, c, name, kTerms);
  }
  const Mesh mesh = make_mesh({{"data", 2}});
  const MultiHeadAttention placed = device_put(layer, fsdp_shardings(mesh, layer, "data"));
  for (const P& spec : {P{"data"}, P{none, "data"}}) {
    const Inputs split = device_put(inputs, NamedSharding(mesh, spec));
    expect_same_bits(evaluate(placed, split, apply), alone, name + " " + to_string(spec));
  }
}

TEST(LayersGolden, AttentionToOtherArrays) {
  const Json golden = read_golden("layers.json");
  EXPECT_EQ(golden["attention"].size(), 12U);
  for (const Json& c : golden["attention"]) check_attention(c);
}

TEST(LayersGolden, OrthogonalMatrices) {
  const Json golden = read_golden("layers.json");
  EXPECT_EQ(golden["orthogonal"].size(), 5U);
  for (const Json& c : golden["orthogonal"]) {
    const auto make = [&](const Key& key) {
      return init::orthogonal(1.5)(key, c["shape"].get<Shape>());
    };
    const Key key(c["seed"].get<std::int64_t>());
    const Array found = make(key);
    const auto values = found.to_vector<float>();
    const auto wanted = c["values"]["values"].get<std::vector<float>>();
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 2e-5) << c;
    const Mesh mesh = make_mesh({{"data", 2}});
    const Array split = jit(make, {.out_shardings = NamedSharding(mesh, P{"data"})})(key);
    EXPECT_TRUE(array_equal(split, found)) << c;
  }
}

TEST(LayersGolden, RunningStatistics) {
  const Json golden = read_golden("layers.json");
  int count = 0;
  for (const Json& c : golden["layers"]) {
    if (c["name"] != "BatchNorm") continue;
    ++count;
    const BatchNorm before = with_recorded(batch_norm(c), c);
    const Array x = array_of(c["x"]);
    const auto train = [](BatchNorm norm, const Array& a) {
      norm(a, Mode::train());
      return norm;
    };
    const BatchNorm after = jit(train)(before, x);
    expect_near(after.mean, c["new_stats"]["mean"], "mean");
    expect_near(after.var, c["new_stats"]["var"], "var");
    BatchNorm in_eval = before;
    expect_near(in_eval(x, Mode::eval()), c["evaluated"], "evaluated");
    expect_near(before(x), c["evaluated"], "evaluated");
    expect_same_bits(in_eval, before, "eval mode changes nothing");
    expect_same_bits(train(before, x), after, "without jit");
    const Mesh mesh = make_mesh({{"data", 2}});
    const auto placed = device_put(before, replicated(mesh));
    expect_same_bits(jit(train)(placed, device_put(x, NamedSharding(mesh, P{"data"}))), after,
                     "on a mesh");
  }
  EXPECT_EQ(count, 5);
}

Array loss_of(const Json& c, const Array& x) {
  const Array targets = array_of(c["targets"]);
  if (c["name"] == "cross_entropy") {
    return cross_entropy(x, astype(targets, DType::i32), c["options"]["smoothing"].get<double>());
  }
  if (c["name"] == "binary") return sigmoid_binary_cross_entropy(x, targets);
  return huber_loss(x, targets, c["options"]["delta"].get<double>());
}

TEST(LayersGolden, Losses) {
  const Json golden = read_golden("layers.json");
  EXPECT_EQ(golden["losses"].size(), 7U);
  for (const Json& c : golden["losses"]) {
    const std::string name = c["name"].get<std::string>() + c["options"].dump();
    const Array x = array_of(c["x"]);
    expect_near(loss_of(c, x), c["y"], name);
    expect_near(grad([&](const Array& a) { return weighted(loss_of(c, a)); })(x), c["x_gradient"],
                name);
  }
}

}  // namespace
}  // namespace tessera::nn
