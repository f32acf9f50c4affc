// No program moves more bytes than XLA's version of the same program, with all iterations of loops
// counted.

#include <gtest/gtest.h>

#include "lm_support.h"
#include "mlp/model.h"

namespace tessera::testing {
namespace {

using MlpState = TrainState<mlp::MLP>;

/// The bytes of a type such as `f32[4,1024]`.
std::int64_t bytes_of(const std::string& type) {
  if (!type.starts_with("f32[")) throw std::runtime_error("not an array of floats: " + type);
  std::int64_t bytes = 4;
  for (std::size_t at = 4; type[at] != ']';) {
    std::size_t length = 0;
    bytes *= std::stoll(type.substr(at), &length);
    at += length + (type[at + length] == ',' ? 1 : 0);
  }
  return bytes;
}

/// `{{0,1},{2,3}}` -> 2. If the recording has no groups, all devices are one group.
std::int64_t group_size(const nlohmann::json& groups, std::int64_t num_devices) {
  if (groups.is_null()) return num_devices;
  const std::string text = groups;
  const std::string first = text.substr(2, text.find('}') - 2);
  return 1 + std::count(first.begin(), first.end(), ',');
}

/// Bytes that a device receives, by the ring model. A recording counts collectives in a loop's body
/// once, so they are multiplied by `trips`.
std::int64_t xla_wire_bytes(const std::string& program, std::int64_t num_devices,
                            std::int64_t trips) {
  std::int64_t total = 0;
  const nlohmann::json golden = read_golden("xla_collectives.json");
  for (const auto& collective : golden.at("programs").at(program)) {
    const std::int64_t n = group_size(collective["replica_groups"], num_devices);
    const std::string kind = collective["kind"];
    if (kind != "all-reduce" && kind != "all-gather") throw std::runtime_error(kind);
    std::int64_t bytes = 0;
    for (const std::string shape : collective["shapes"]) bytes += bytes_of(shape);
    const std::string computation = collective["computation"];
    const bool is_in_loop = !computation.starts_with("ENTRY");
    total += bytes * (n - 1) / n * (kind == "all-reduce" ? 2 : 1) * (is_in_loop ? trips : 1);
  }
  return total;
}

std::int64_t wire_bytes(const LoweredProgram& program) {
  std::int64_t total = 0;
  for (const CollectiveUse& use : program.collectives()) total += use.wire_bytes;
  return total;
}

struct MlpPrograms {
  LoweredProgram init, train_step, apply;
};

MlpPrograms lower_mlp(bool use_scan, const Mesh& mesh) {
  const mlp::Config config{.use_scan = use_scan};
  const auto init_of = [&](Key key) {
    return MlpState(mlp::MLP(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
  };
  const auto init = jit(init_of, {.out_shardings = from_annotations(mesh)});
  const auto state = init(Key(0));
  const Array x = device_put(ones({8, config.depth}), P{"data", none});
  const auto step = jit([](MlpState old, Array input) {
    auto [loss, grads] =
        value_and_grad([&](const mlp::MLP& model) { return sum(model(input)); })(old.params);
    return std::tuple(old.apply_gradients(grads), loss);
  });
  const auto apply = jit([](mlp::MLP model, Array input) { return model(input); });
  return {init.lower(Key(0)), step.lower(state, x), apply.lower(state.params, x)};
}

class XlaCollectives : public ::testing::TestWithParam<bool> {};

TEST_P(XlaCollectives, ThePerceptronMovesNoMore) {
  const std::string form = GetParam() ? "scan" : "loop";
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  const MlpPrograms programs = lower_mlp(GetParam(), mesh);
  EXPECT_LE(wire_bytes(programs.init), xla_wire_bytes("seed002_init_" + form, 8, 4));
  EXPECT_LE(wire_bytes(programs.apply), xla_wire_bytes("seed002_apply_" + form, 8, 4));
  EXPECT_LE(wire_bytes(programs.train_step), xla_wire_bytes("seed002_train_step_" + form, 8, 4))
      << programs.train_step.explain();
  EXPECT_GT(wire_bytes(programs.train_step), 0);
}
INSTANTIATE_TEST_SUITE_P(LoopAndScan, XlaCollectives, ::testing::Bool());

LoweredProgram lower_lm(Layout layout, std::vector<int> donated = {0}) {
  const Mesh mesh = make_mesh({{"data", 8}});
  const use_mesh scope(mesh);
  const lm::Config config;
  const State state = make_state(config, mesh, layout);
  const Array ids = device_put(zeros({32, config.seq}, DType::i32), P{"data"});
  const auto step = jit(
      [](State old, Array batch) {
        auto [loss, grads] = loss_and_grads(old.params, batch);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = std::move(donated)});
  return step.lower(state, ids);
}

TEST(XlaLanguageModel, DonatingTheStateChangesNothingThatIsMoved) {
  for (const Layout layout : {Layout::replicated, Layout::fsdp}) {
    const LoweredProgram donated = lower_lm(layout);
    const LoweredProgram kept = lower_lm(layout, {});
    EXPECT_EQ(donated.explain(), kept.explain());
    EXPECT_EQ(sharding_table(donated.results()), sharding_table(kept.results()));
    EXPECT_EQ(wire_bytes(donated), wire_bytes(kept));
  }
}

TEST(XlaLanguageModel, TheLanguageModelMovesNoMore) {
  const std::int64_t ours = wire_bytes(lower_lm(Layout::replicated));
  EXPECT_GT(ours, 0);
  EXPECT_LE(ours, xla_wire_bytes("seed003_replicated", 8, 1));
}

/// XLA gathers weights and all-reduces whole gradients; Tessera reduce-scatters the gradients.
TEST(XlaLanguageModel, TheLanguageModelWithSplitStateMovesAThirdLess) {
  const std::int64_t ours = wire_bytes(lower_lm(Layout::fsdp));
  const std::int64_t theirs = xla_wire_bytes("seed003_fsdp", 8, 1);
  std::printf("bytes received per device and step: %lld, XLA %lld\n", static_cast<long long>(ours),
              static_cast<long long>(theirs));
  EXPECT_GT(ours, 0);
  EXPECT_LE(static_cast<double>(ours), 0.7 * static_cast<double>(theirs));
}

}  // namespace
}  // namespace tessera::testing
