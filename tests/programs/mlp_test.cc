// The perceptron, with mesh axes and with logical names, as a scan and as a loop. Compares layouts
// and numbers with those of JAX, Flax and Optax, and bits on different meshes.

#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include <tessera/optim.h>

#include "mlp/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {
namespace {

const LogicalRules& rules() {
  static const LogicalRules all{{"batch", "data"}, {"hidden", "model"}};
  return all;
}

const Mesh& grid() {
  static const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  return mesh;
}

template <typename Model>
auto init_of(const mlp::Config& config) {
  return [config](Key key) {
    return TrainState(Model(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
  };
}

template <typename Model>
Shardings raw_specs(const mlp::Config& config) {
  return get_partition_spec(eval_shape(init_of<Model>(config), Key(0)));
}

/// Creates the state on the mesh in scope.
template <typename Model>
TrainState<Model> make_state(const mlp::Config& config) {
  Shardings specs;
  if (!current_mesh().axes().empty()) specs = logical_to_mesh(raw_specs<Model>(config), rules());
  return jit(init_of<Model>(config), {.out_shardings = specs})(Key(0));
}

template <typename Model>
auto make_step() {
  return jit([](TrainState<Model> old, Array x) {
    auto [loss, grads] =
        value_and_grad([&](const Model& model) { return sum(model(x)); })(old.params);
    return std::tuple(old.apply_gradients(grads), loss);
  });
}

Array inputs(const mlp::Config& config) {
  const Array x = ones({8, config.depth});
  return current_mesh().axes().empty() ? x : device_put(x, P{"data", none});
}

template <typename Model>
TrainingRun train(const mlp::Config& config, const Mesh& mesh, int steps) {
  const use_mesh on_mesh(mesh);
  const logical_axis_rules scope(rules());
  TrainState<Model> state = make_state<Model>(config);
  const Array x = inputs(config);
  const auto step = make_step<Model>();
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(state, x);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

// --- the four programs

template <typename ModelType, bool kScan>
struct Variant {
  using Model = ModelType;
  static constexpr bool kIsLogical = std::is_same_v<Model, mlp::LogicalMLP>;
  static constexpr bool kUseScan = kScan;
  static mlp::Config config(std::int64_t depth = 1024) {
    return {.depth = depth, .use_scan = kScan};
  }
  static std::string name() {
    return std::string(kIsLogical ? "logical" : "plain") + (kScan ? "_scan" : "_loop");
  }
};

struct VariantName {
  template <typename V>
  static std::string GetName(int /*number*/) {
    return V::name();
  }
};

template <typename V>
class Mlp : public ::testing::Test {};
using Variants = ::testing::Types<Variant<mlp::MLP, true>, Variant<mlp::MLP, false>,
                                  Variant<mlp::LogicalMLP, true>, Variant<mlp::LogicalMLP, false>>;
TYPED_TEST_SUITE(Mlp, Variants, VariantName);

// --- layouts

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// Translates a path: `.opt_state[0].mu['A']['W1']` -> `opt_state/slots/mu/A/W1`;
/// `['A']['W1'].value` -> `A/W1`.
std::string path_of(std::string peer) {
  for (const char* text : {"']", "[0]", ".value"}) replace_all(peer, text, "");
  for (const char* text : {"['", "."}) replace_all(peer, text, "/");
  for (const char* slot : {"/mu", "/nu"}) replace_all(peer, slot, "/slots" + std::string(slot));
  return peer.substr(1);
}

std::map<std::string, std::string> texts_of(const Shardings& specs) {
  std::map<std::string, std::string> texts;
  for (const Shardings::Entry& entry : specs.entries()) texts[entry.path] = to_string(entry.spec);
  return texts;
}

std::map<std::string, std::string> texts_of(const nlohmann::json& peer) {
  std::map<std::string, std::string> texts;
  for (const auto& item : peer) texts[path_of(item[0])] = item[1];
  return texts;
}

TYPED_TEST(Mlp, SpecsAreFlaxs) {
  const auto golden = read_golden("mlp_state_spec.json")[TypeParam::name()];
  const Shardings raw = raw_specs<typename TypeParam::Model>(TypeParam::config());
  EXPECT_EQ(texts_of(raw), texts_of(golden["raw_spec"]));
  EXPECT_EQ(texts_of(logical_to_mesh(raw, rules())), texts_of(golden["mesh_spec"]));
}

TYPED_TEST(Mlp, LogicalNamesGiveTheSpecsOfMeshAxes) {
  const mlp::Config config = TypeParam::config(16);
  const std::string layer = config.use_scan ? "ScanDotReluDot_0" : "DotReluDot_3";
  const std::string logical_layer =
      config.use_scan ? "ScanLogicalDotReluDot_0" : "LogicalDotReluDot_3";
  const Shardings logical = logical_to_mesh(raw_specs<mlp::LogicalMLP>(config), rules());
  const Shardings plain = raw_specs<mlp::MLP>(config);
  for (const char* tree : {"params/", "opt_state/slots/mu/", "opt_state/slots/nu/"}) {
    EXPECT_EQ(logical[tree + logical_layer], plain[tree + layer]);
  }
}

/// `P(None, 'model', None)` -> `P(None, 'model')` and `P('model', None)` -> `P('model',)`, the form
/// in which arrays report their specs.
std::string without_trailing_none(std::string spec) {
  replace_all(spec, ", None)", ")");
  const bool has_one_entry = spec != "P()" && spec.find(", ") == std::string::npos;
  if (has_one_entry) replace_all(spec, ")", ",)");
  return spec;
}

void expect_leaf(const Param& leaf, const nlohmann::json& want) {
  SCOPED_TRACE(want["path"]);
  EXPECT_EQ(leaf.shape(), want["shape"].get<Shape>());
  EXPECT_EQ(leaf.dtype(), want["dtype"] == "int32" ? DType::i32 : DType::f32);
  EXPECT_EQ(to_string(leaf.sharding().spec), without_trailing_none(want["sharding"]));
  EXPECT_EQ(leaf.is_annotated(), want["box"] != "ArrayImpl");
  EXPECT_EQ(leaf.is_logical(), want["box"] == "LogicallyPartitioned");
  const std::string names = to_string(leaf.spec()).substr(1);
  EXPECT_EQ(leaf.is_annotated() ? names : "None", want["names"].get<std::string>());
  for (std::int64_t device = 0; device < grid().num_devices(); ++device) {
    EXPECT_EQ(leaf.local_data(device).shape(), want["local_shape"].get<Shape>());
  }
}

TYPED_TEST(Mlp, ArraysLiveWhereJaxsDo) {
  const auto golden = read_golden("mlp_state_spec.json")[TypeParam::name()];
  const use_mesh on_mesh(grid());
  const auto state = make_state<typename TypeParam::Model>(TypeParam::config());
  const std::vector<std::string> paths = tree_paths(state);
  const std::vector<Param> leaves = tree_params(state);
  ASSERT_EQ(leaves.size(), golden["after_init"].size());
  for (const auto& want : golden["after_init"]) {
    const std::string path = path_of(want["path"]);
    const auto at = std::find(paths.begin(), paths.end(), path) - paths.begin();
    ASSERT_LT(static_cast<std::size_t>(at), leaves.size()) << path;
    expect_leaf(leaves[static_cast<std::size_t>(at)], want);
  }
}

/// The slice x[start..limit, ...] with a [start, limit] per dimension.
Array box_of(Array x, const nlohmann::json& ranges) {
  for (std::size_t dim = 0; dim < ranges.size(); ++dim) {
    x = x.slice(static_cast<std::int64_t>(dim), ranges[dim][0], ranges[dim][1]);
  }
  return x;
}

TEST(MlpMesh, DevicesHoldTheTilesOfJax) {
  const auto golden = read_golden("mlp_state_spec.json")["device_ids_per_shard"];
  const std::map<std::string, PartitionSpec> specs{
      {"P(None, None, 'model')", {none, none, "model"}},
      {"P(None, 'model', None)", {none, "model", none}},
      {"P('data', None)", {"data", none}},
      {"P(('data', 'model'),)", P{SpecEntry({"data", "model"})}},
      {"P(('model', 'data'),)", P{SpecEntry({"model", "data"})}},
      {"P()", {}}};
  ASSERT_EQ(golden.size(), specs.size());
  for (const auto& [text, spec] : specs) {
    SCOPED_TRACE(text);
    const auto& want = golden[text];
    const Shape shape = want["shape"].get<Shape>();
    const Array x = reshape(arange(num_elements(shape)), shape);
    const Array placed = device_put(x, NamedSharding(grid(), spec));
    std::size_t num_devices = 0;
    for (const auto& [ranges, devices] : want["index_to_device_ids"].items()) {
      for (const auto& device : devices) {
        ++num_devices;
        EXPECT_TRUE(
            array_equal(placed.local_data(device), box_of(x, nlohmann::json::parse(ranges))));
      }
    }
    EXPECT_EQ(num_devices, 8U);
  }
}

std::int64_t bytes_of(const LeafPlacement& leaf) {
  return num_elements(leaf.local_shape) * static_cast<std::int64_t>(size_bytes(leaf.type.dtype));
}

TYPED_TEST(Mlp, InitMakesEachDevicesTilesOnly) {
  const use_mesh on_mesh(grid());
  const mlp::Config config = TypeParam::config(512);
  const Shardings specs = logical_to_mesh(raw_specs<typename TypeParam::Model>(config), rules());
  auto init = jit(init_of<typename TypeParam::Model>(config), {.out_shardings = specs});
  const auto compiled = init.lower(Key(0)).compile();
  std::int64_t tiles = 0;
  for (const LeafPlacement& leaf : compiled.results()) tiles += bytes_of(leaf);
  const std::int64_t weights = 2 * config.layers * config.depth * config.depth * 4;
  EXPECT_EQ(tiles, 3 * weights / 4 + 2 * 4);  // step and count are scalars
  // Drawing the random numbers must not need more memory than a device's tiles of the weights.
  const MemoryPlan plan = compiled.memory();
  EXPECT_EQ(plan.results, tiles);
  EXPECT_LE(plan.temporaries, weights / 4 + 64);
  EXPECT_EQ(plan.arguments, 8);  // the key
  EXPECT_TRUE(compiled.collectives().empty());
}

// --- numbers

/// The numbers of the peer, with parameters named by their paths.
template <typename V>
nlohmann::json numbers() {
  const char* scan = V::kUseScan ? "scan" : "loop";
  if (V::kIsLogical) return read_golden("mlp_logical.json")[scan];
  auto all = read_golden("seed_numbers.json")[std::string("seed002_") + scan];
  for (const char* when : {"params_after_init", "params_after_step"}) {
    nlohmann::json by_path;
    for (const auto& [name, sums] : all[when].items()) by_path[path_of(name)] = sums;
    all[when] = by_path;
  }
  all["losses"] = {all["y_after_init"]["sum"], all["y_after_step"]["sum"]};
  return all;
}

void expect_output(const Array& y, const nlohmann::json& want) {
  const std::vector<float> values = y.to_vector<float>();
  const double sum = want["sum"];
  EXPECT_NEAR(sums_of(values).sum, sum, 1e-4 * std::fabs(sum));
  for (std::size_t i = 0; i < want["row0_first4"].size(); ++i) {
    const double x = want["row0_first4"][i];
    EXPECT_NEAR(static_cast<double>(values[i]), x, 1e-4 * std::fabs(x));
  }
}

template <typename Model>
void expect_sums(const Model& model, const nlohmann::json& want_all, double relative) {
  const auto arrays = checkpoint::named_arrays(model);
  EXPECT_EQ(arrays.size(), want_all.size());
  for (const checkpoint::NamedArray& item : arrays) {
    SCOPED_TRACE(item.name);
    ASSERT_TRUE(want_all.contains(item.name));
    const auto& want = want_all[item.name];
    const Sums sums = sums_of(item.array.to_vector<float>());
    const double abs_sum = want[1];
    EXPECT_NEAR(sums.abs_sum, abs_sum, relative * abs_sum);
    EXPECT_NEAR(sums.sum, want[0], relative * abs_sum);
  }
}

TYPED_TEST(Mlp, OutputsAndParametersAreFlaxs) {
  using Model = typename TypeParam::Model;
  const mlp::Config config = TypeParam::config();
  const auto golden = numbers<TypeParam>();
  const use_mesh on_mesh(grid());
  const logical_axis_rules scope(rules());
  const TrainState<Model> state = make_state<Model>(config);
  const Array x = inputs(config);
  const auto apply = jit([](Model model, Array input) { return model(input); });
  expect_sums(state.params, golden["params_after_init"], 1e-6);
  expect_output(apply(state.params, x), golden["y_after_init"]);
  const TrainState<Model> next = std::get<0>(make_step<Model>()(state, x));
  expect_sums(next.params, golden["params_after_step"], 1e-5);
  expect_output(apply(next.params, x), golden["y_after_step"]);
}

TYPED_TEST(Mlp, LossesAreFlaxs) {
  const auto golden = numbers<TypeParam>()["losses"];
  const TrainingRun run = train<typename TypeParam::Model>(TypeParam::config(), grid(),
                                                           static_cast<int>(golden.size()));
  expect_losses(run, golden, 1e-4);
}

TYPED_TEST(Mlp, ParametersStartAsFlaxs) {
  const auto want = read_golden("mlp_state_spec.json")[TypeParam::name()]["first_param_stats"];
  const std::string path = want["path"];
  const auto state = make_state<typename TypeParam::Model>(TypeParam::config());
  for (const checkpoint::NamedArray& item : checkpoint::named_arrays(state.params)) {
    if (item.name != path_of(path)) continue;
    const std::vector<float> values = item.array.to_vector<float>();
    for (std::size_t i = 0; i < want["first8"].size(); ++i) {
      const double x = want["first8"][i];
      EXPECT_NEAR(static_cast<double>(values[i]), x, 1e-6 * std::fabs(x));
    }
    return;
  }
  ADD_FAILURE() << "no parameter " << path;
}

TYPED_TEST(Mlp, SameBitsOnEveryMesh) {
  using Model = typename TypeParam::Model;
  mlp::Config config = TypeParam::config(48);
  config.layers = 3;
  const TrainingRun want = train<Model>(config, Mesh(), 3);
  expect_same_bits(train<Model>(config, grid(), 3), want);
  expect_same_bits(train<Model>(config, make_mesh({{"data", 1}, {"model", 8}}), 3), want);
  expect_same_bits(train<Model>(config, make_mesh({{"data", 3}, {"model", 1}}), 3), want);
}

}  // namespace
}  // namespace tessera::testing
