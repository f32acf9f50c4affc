// Trains the transformer of model.h in three ways: as one program whose state is split over four
// devices, and as pipelines of four and eight stages on four groups. All losses have equal bits.

#include <cstdio>
#include <sstream>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "model.h"

using namespace tessera;
using State = TrainState<pipeline::Transformer>;

namespace {

constexpr int kSteps = 6;

pipeline::Config config_of(std::int64_t stages) {
  return {.seq = 32, .d_model = 64, .stages = stages};
}

State init_state(std::int64_t stages) {
  return {pipeline::Transformer(nn::Scope(Key(0)), config_of(stages)),
          optim::adamw({.learning_rate = 1e-3})};
}

std::tuple<Array, Array> make_batch() {
  data::RandomState random(0);
  const Shape shape = {8, config_of(1).seq, config_of(1).d_model};
  const Array xs = random.standard_normal(shape);
  return {xs, random.standard_normal(shape)};
}

template <typename Step>
State train(const Step& step, State state) {
  const auto [xs, targets] = make_batch();
  Array loss;
  for (int i = 0; i < kSteps; ++i) {
    std::tie(state, loss) = step(std::move(state), xs, targets);
    if (i % 2 == 1) std::printf("  loss after step %d: %.9g\n", i + 1, loss.item<double>());
  }
  return state;
}

void one_program() {
  std::puts("One program, its state split over four devices:");
  const Mesh mesh = make_mesh({{"fsdp", 4}});
  const use_mesh scope(mesh);
  const auto step = [](State old, Array xs, Array targets) {
    auto [loss, grads] = pipeline::accumulate(old.params, xs, targets, config_of(1).microbatches);
    return std::tuple(old.apply_gradients(grads), loss);
  };
  const State state = init_state(1);
  const Shardings shardings = fsdp_shardings(mesh, state, "fsdp");
  train(jit(step, {.out_shardings = {shardings, P{}}, .donate_argnums = {0}}),
        device_put(state, shardings));
}

/// The first lines of the list of tasks, beginning with the first task of that name.
void print_tasks(const std::string& text, const std::string& name, int num_lines) {
  std::istringstream lines(text.substr(text.find("task[name=" + name)));
  std::string line;
  for (int i = 0; i < num_lines && std::getline(lines, line); ++i) {
    std::printf("  %.100s\n", line.c_str());
  }
}

void print_places(const State& state) {
  for (std::size_t i = 0; i < state.params.blocks.size(); ++i) {
    const MpmdArray kernel(state.params.blocks[i].up.kernel);
    std::printf("  block_%zu %s\n", i, to_string(kernel).c_str());
  }
  std::printf("  step    %s\n", to_string(MpmdArray(state.step)).c_str());
}

void staged(std::int64_t stages) {
  std::printf("\n%ld stages on four groups:\n", static_cast<long>(stages));
  const MpmdMesh mesh(make_mesh({{"stage", 4}, {"fsdp", 1}}), "stage");
  const use_mesh scope(mesh.group_mesh());
  const Interleaved1F1B schedule{.num_stages = stages, .mpmd_dim = mesh.mpmd_dim()};
  const auto step = [&](State old, Array xs, Array targets) {
    auto [loss, grads] =
        pipeline::accumulate(old.params, xs, targets, config_of(stages).microbatches, schedule);
    return std::tuple(old.apply_gradients(grads), loss);
  };
  const auto [xs, targets] = make_batch();
  const State state = init_state(stages);
  const auto compiled =
      mpmd_jit_with_loop(step, mesh, {.donate_argnums = {0}}).compile(state, xs, targets);
  const State trained = train(compiled, state);
  print_places(trained);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{3}}) {
    std::printf("  tasks of rank %zu: %s\n", rank, to_string(schedule.tasks(4)[rank]).c_str());
  }
  print_tasks(compiled.task_ir(), "fwd_0", 6);
  std::puts(to_picture(simulate(schedule.tasks(4))).c_str());
}

}  // namespace

int main() {
  one_program();
  staged(4);
  staged(8);
}
