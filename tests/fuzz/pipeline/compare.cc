#include "tests/fuzz/pipeline/compare.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <random>
#include <stdexcept>

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "tests/fuzz/pipeline/child.h"

namespace tessera::fuzz {

namespace {

using Params = std::vector<Array>;
using Batch = std::tuple<Array, Array>;
/// New parameters, gradients, sum of the losses, stacked values, largest loss.
using Outcome = std::tuple<Params, Params, Array, Array, Array>;

constexpr unsigned kSeconds = 100;

struct Tensor {
  std::string name;
  std::vector<float> values;
};

Array random_array(const Shape& shape, float size, std::mt19937_64& generator) {
  std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
  for (float& value : values) {
    value = size * (static_cast<float>(generator() % 2048) / 1024.0F - 1.0F);
  }
  return array(values, shape);
}

Params initial_params(const StagedCase& c) {
  std::mt19937_64 generator(c.seed);
  Params params;
  for (const Parameter& parameter : parameters_of(c.net)) {
    params.push_back(random_array(parameter.shape, 0.5F, generator));
  }
  return params;
}

Batch batch_of(const StagedCase& c) {
  std::mt19937_64 generator(c.seed + 1);
  Shape shape = c.net.activation();
  shape.insert(shape.begin(), c.microbatches);
  const Array xs = random_array(shape, 1.0F, generator);
  return {xs, random_array(shape, 1.0F, generator)};
}

struct Step {
  const StagedCase& c;
  Schedule schedule;

  Outcome operator()(const Params& params, const Batch& batch) const {
    const auto one = [&](const Array& x, const Array& targets) {
      const auto [loss, grads] = value_and_grad(
          [&](const Params& p) { return loss_of(c.net, p, x, targets, row_spec(c)); })(params);
      return std::tuple(loss, c.stacks_gradient ? grads[0] : loss, loss, grads);
    };
    const auto [loss, stack, greatest, grads] =
        treduce(one, batch, schedule, std::tuple(Add{}, Concat{}, Max{}, Add{}));
    // The learning rate depends on the gradient norm, which combines values of all groups.
    Array squares = zeros({});
    for (const Array& grad : grads) squares = squares + sum(square(grad));
    const Array rate = 0.1F / (sqrt(squares) + 1.0F);
    const auto update = [&](const Array& p, const Array& g) { return p - g * rate; };
    return {tree_map(update, params, grads), grads, loss, stack, greatest};
  }
};

template <typename F>
std::vector<Tensor> train(const StagedCase& c, Params params, const Batch& batch, F& step) {
  const std::vector<Parameter> parameters = parameters_of(c.net);
  std::vector<Tensor> tensors;
  for (int i = 0; i < c.steps; ++i) {
    const auto add = [&](const std::string& name, const Array& value) {
      tensors.push_back({fmt::format("step {}: {}", i, name), value.to_vector<float>()});
    };
    auto [next, grads, loss, stack, greatest] = step(std::move(params), batch);
    params = std::move(next);
    for (std::size_t k = 0; k < grads.size(); ++k) {
      add("gradient of " + parameters[k].name, grads[k]);
      add("new " + parameters[k].name, params[k]);
    }
    add("loss", loss);
    add("stack", stack);
    add("greatest loss", greatest);
  }
  return tensors;
}

std::vector<Tensor> train_on_one_device(const StagedCase& c) {
  set_grains(c.grains);
  auto step = jit(Step{c, Sequential{1}});
  return train(c, initial_params(c), batch_of(c), step);
}

Shardings param_shardings(const StagedCase& c, const Params& params) {
  const std::vector<std::string> paths = tree_paths(params);
  const std::vector<PartitionSpec> specs = param_specs(c);
  Shardings shardings;
  for (std::size_t i = 0; i < specs.size(); ++i) shardings.set(paths[i], specs[i]);
  return shardings;
}

/// The step on its groups, with its placed inputs.
class Staged {
 public:
  explicit Staged(const StagedCase& c, PassSettings passes = {})
      : c_(c), mesh_(mesh_of(c)), scope_(mesh_.group_mesh()), params_(initial_params(c)) {
    set_grains(c.grains);
    const Shardings shardings = param_shardings(c, params_);
    params_ = device_put(params_, shardings);
    std::vector<SpecEntry> entries = row_spec(c).entries();
    entries.insert(entries.begin(), none);
    batch_ = device_put(batch_of(c), c.splits_rows ? P(std::move(entries)) : P{});
    options_.passes = std::move(passes);
    if (c.donates) options_.donate_argnums = {0};
    if (!c.net.has_marks) options_.auto_stages = AutoStages{};
    if (!c.asks_for_layout) return;
    options_.out_shardings =
        Shardings::tuple({shardings, Shardings(), Shardings(), Shardings(), Shardings()});
  }

  std::vector<Tensor> train() {
    if (!c_.is_isolated) set_num_threads(c_.threads);
    set_threads_per_group(c_.threads_per_group);
    auto step = jitted();
    return fuzz::train(c_, std::move(params_), batch_, step);
  }
  void compile() { jitted().compile(params_, batch_); }

 private:
  Jitted<Step, Outcome, Params, Batch> jitted() const {
    const FixedSchedule schedule{.num_stages = c_.num_stages(),
                                 .mpmd_dim = c_.groups,
                                 .num_microbatches = c_.microbatches,
                                 .list = tasks_of(c_).value()};
    return mpmd_jit_with_loop(Step{c_, schedule}, mesh_, options_);
  }

  const StagedCase& c_;
  MpmdMesh mesh_;
  use_mesh scope_;
  Params params_;
  Batch batch_;
  JitOptions options_;
};

std::string to_bytes(const std::vector<Tensor>& tensors) {
  std::string bytes;
  const auto add = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  for (const Tensor& tensor : tensors) {
    for (const std::size_t size : {tensor.name.size(), tensor.values.size()}) {
      add(&size, sizeof(size));
    }
    bytes += tensor.name;
    add(tensor.values.data(), tensor.values.size() * sizeof(float));
  }
  return bytes;
}

std::vector<Tensor> from_bytes(const std::string& bytes) {
  std::vector<Tensor> tensors;
  std::size_t place = 0;
  const auto take = [&](void* data, std::size_t size) {
    if (place + size > bytes.size()) throw std::runtime_error("the tensors are cut off");
    std::memcpy(data, bytes.data() + place, size);
    place += size;
  };
  while (place < bytes.size()) {
    std::size_t name = 0;
    std::size_t count = 0;
    take(&name, sizeof(name));
    take(&count, sizeof(count));
    Tensor tensor{.name = std::string(name, ' '), .values = std::vector<float>(count)};
    take(tensor.name.data(), name);
    take(tensor.values.data(), count * sizeof(float));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// One line per tensor whose bits differ.
std::string compared(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  if (found.size() != wanted.size()) return "another number of tensors\n";
  std::string text;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, want] = wanted[i];
    const std::vector<float>& have = found[i].values;
    if (have.size() != want.size()) return name + ": another size\n";
    std::size_t first = want.size();
    std::size_t others = 0;
    for (std::size_t k = want.size(); k-- > 0;) {
      if (std::memcmp(&have[k], &want[k], sizeof(float)) == 0) continue;
      first = k;
      ++others;
    }
    if (others == 0) continue;
    text += fmt::format("{}: {} of {} elements, the first {} instead of {}\n", name, others,
                        want.size(), have[first], want[first]);
  }
  return text;
}

/// Compares the outputs in each process of an isolated run.
class Comparison final : public IsolatedProgram {
 public:
  Comparison(const StagedCase& c, const std::vector<Tensor>& wanted, int output)
      : c_(c), wanted_(wanted), output_(output) {}
  void run() override { write_all(output_, compared(Staged(c_).train(), wanted_)); }
  int report(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& what) {
      write_all(output_, fmt::format("rank {}: {}\n", process_index(), what.what()));
    }
    return 1;
  }

 private:
  const StagedCase& c_;
  const std::vector<Tensor>& wanted_;
  int output_;
};

void compare(const StagedCase& c, const std::vector<Tensor>& wanted, int output) {
  Comparison program(c, wanted, output);
  if (!c.is_isolated) return program.run();
  const auto processes = static_cast<int>(c.num_devices()) / c.devices_per_process;
  const int code = run_isolated(program, {.num_processes = processes,
                                          .timeout_s = kSeconds / 2.0,
                                          .num_groups = static_cast<int>(c.groups),
                                          .devices_per_group = c.num_devices() / c.groups});
  if (code != 0) throw std::runtime_error(fmt::format("the processes end with {}", code));
}

}  // namespace

std::optional<Failure> check(const StagedCase& c) {
  const ChildResult one =
      in_child([&](int output) { write_all(output, to_bytes(train_on_one_device(c))); }, kSeconds);
  if (!one.fault.empty()) return Failure{"it trains on one device", one.fault + "\n" + one.bytes};
  const std::vector<Tensor> wanted = from_bytes(one.bytes);
  const ChildResult staged = in_child([&](int output) { compare(c, wanted, output); }, kSeconds);
  if (!staged.fault.empty()) {
    return Failure{"it trains as a pipeline", staged.fault + "\n" + staged.bytes};
  }
  if (staged.bytes.empty()) return std::nullopt;
  return Failure{"a pipeline has the bits of one device", staged.bytes};
}

std::string task_program(const StagedCase& c) {
  std::string text;
  const auto keep_last = [&](const PassReport& pass) { text = pass.ir_after(); };
  Staged(c, {.observe = keep_last}).compile();
  return text;
}

StagedCase minimised(StagedCase failing, const std::string& rule, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto breaks_rule = [&](const StagedCase& c) {
    const auto failure = tasks_of(c) ? check(c) : std::nullopt;
    return failure && failure->rule == rule;
  };
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (const StagedCase& c : smaller_cases(failing)) {
      if (passed() > seconds) return failing;
      if (!breaks_rule(c)) continue;
      failing = c;
      is_smaller = true;
      break;
    }
  }
  return failing;
}

}  // namespace tessera::fuzz
