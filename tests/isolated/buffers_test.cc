// Models with buffers and one process per device: the state after some steps equals that of one
// process, whatever the layout.
#include <filesystem>
#include <gtest/gtest.h>
#include <stdexcept>

#include <tessera/checkpoint.h>
#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

#include "tests/isolated/reports.h"

namespace tessera {
namespace {

struct Net {
  nn::Conv conv;
  nn::BatchNorm norm;
  nn::Dense head;
  nn::Buffer calls;

  explicit Net(const nn::Scope& scope)
      : conv(scope / "conv", 3, 8, {.kernel_size = {3, 3}}),
        norm(scope / "norm", 8, {.momentum = 0.9}),
        head(scope / "head", 8, 4),
        calls(scope.buffer("calls", zeros({}, DType::i32))) {}
  Array operator()(const Array& images, const nn::Mode& mode) {
    calls = calls + 1;
    return head(mean(relu(norm(conv(images), mode)), {1, 2}));
  }
  TESSERA_MODULE(conv, norm, head, calls)
};
using State = TrainState<Net>;

State initial(const Key& key) { return State(Net(nn::Scope(key)), optim::adamw()); }

std::tuple<State, Array> train(const State& old, const Array& images, const Array& labels) {
  auto [loss, net, grads] = value_and_grad([&](Net model) {
    const Array logits = model(images, nn::Mode::train());
    return std::tuple(mean(cross_entropy(logits, labels)), model);
  })(old.params);
  return {old.apply_gradients(grads, net), loss};
}

/// The fingerprint of the state after three steps on `data=4`.
std::string trained(bool is_fsdp) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  const State shapes = eval_shape(initial, Key(0));
  const Shardings layout = is_fsdp ? fsdp_shardings(mesh, shapes) : replicated(mesh, shapes);
  State state = jit(initial, {.out_shardings = layout})(Key(0));
  const auto step = jit(train, {.donate_argnums = {0}});
  for (int i = 0; i < 3; ++i) {
    const Array images = device_put(random::normal(Key(10 + i), {8, 6, 6, 3}), P{"data"});
    const Array labels = device_put(random::randint(Key(20 + i), {8}, 0, 4), P{"data"});
    state = std::get<0>(step(std::move(state), images, labels));
  }
  if (state.params.calls.item<int>() != 3) throw std::runtime_error("the counter is not 3");
  return checkpoint::fingerprint(checkpoint::named_arrays(state));
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(IsolatedBuffers, HaveTheBitsOfOneProcess) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "tessera_isolated_buffers";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  testing::ReportingProgram alone([&] { std::ofstream(folder / "wanted") << trained(false); });
  ASSERT_EQ(testing::run_in_child(alone), 0);
  const std::string wanted = read_text(folder / "wanted");
  ASSERT_EQ(wanted.size(), 32U);
  for (const int processes : {2, 4}) {
    for (const bool is_fsdp : {false, true}) {
      testing::ReportingProgram program([&] {
        if (trained(is_fsdp) != wanted) throw std::runtime_error("other bits");
      });
      EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0)
          << processes << (is_fsdp ? " FSDP" : "");
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera
