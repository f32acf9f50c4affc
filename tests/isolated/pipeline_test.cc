// Pipelines in several processes: bits, bytes, memory, faults, checkpoints.
#include <csignal>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include <tessera/checkpoint.h>

#include "tests/cases/case_file.h"
#include "tests/errors/caught.h"
#include "tests/isolated/reports.h"
#include "tests/programs/pipeline_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Batch = PipelineBatch;
using Net = PipelineNet;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Runs `body` with `devices` devices per group, of which each process owns `per_process`.
int in_groups(std::int64_t num_groups, std::int64_t devices, std::function<void()> body,
              std::int64_t per_process = 1) {
  ReportingProgram program(std::move(body));
  return run_isolated(program,
                      {.num_processes = static_cast<int>(num_groups * devices / per_process),
                       .num_groups = static_cast<int>(num_groups),
                       .devices_per_group = devices});
}

int in_one_process(std::function<void()> body) {
  ReportingProgram program(std::move(body));
  return run_in_child(program);
}

void expect_same(const Array& found, const Array& wanted, const std::string& what) {
  const std::vector<float> x = found.to_vector<float>();
  const std::vector<float> y = wanted.to_vector<float>();
  expect(x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0,
         "other bits: " + what);
}

using Result = std::tuple<Net, Array, Array>;

/// The result of two steps as one program on one device.
Result wanted_of(std::int64_t microbatches) {
  const auto step = jit([&](Net net, Batch batch) { return step_of(net, batch, Sequential{1}); });
  auto [net, loss, losses] = step(make_net(), make_batch(microbatches));
  return step(net, make_batch(microbatches));
}

void expect_same(const Result& found, const Result& wanted) {
  const std::vector<Array> x = tree_leaves(found);
  const std::vector<Array> y = tree_leaves(wanted);
  for (std::size_t i = 0; i < x.size(); ++i) {
    expect_same(x[i], y[i], "leaf " + std::to_string(i));
  }
}

/// The step on its groups. place() puts the arguments where the step reads them.
class Piped {
 public:
  struct Step {
    Schedule schedule;
    Result operator()(const Net& net, const Batch& batch) const {
      return step_of(net, batch, schedule);
    }
  };

  Piped(const Schedule& schedule, const MpmdMesh& mesh, std::int64_t microbatches)
      : mesh_(mesh),
        scope_(mesh.group_mesh()),
        step_(mpmd_jit_with_loop(Step{schedule}, mesh, {.donate_argnums = {0}})),
        net_(device_put(make_net(), P{})),
        batch_(device_put(make_batch(microbatches), P{none, "data"})) {}

  auto lowered() { return step_.lower(net_, batch_); }
  void place() {
    std::tie(net_, batch_) = step_.compile(net_, batch_).place(std::move(net_), std::move(batch_));
  }
  Result operator()() {
    auto [net, loss, losses] = step_(std::move(net_), batch_);
    net_ = net;
    return {net, loss, losses};
  }
  const Net& net() const { return net_; }
  void set_net(Net net) { net_ = std::move(net); }
  void set_batch(const Batch& batch) { batch_ = device_put(batch, P{none, "data"}); }
  std::int64_t own_group() const { return process_index() / (process_count() / mesh_.mpmd_dim()); }

 private:
  MpmdMesh mesh_;
  use_mesh scope_;
  Jitted<Step, Result, Net, Batch> step_;
  Net net_;
  Batch batch_;
};

/// Only the processes of an array's groups must hold tiles of it.
void expect_held_by_their_groups(const Result& result, std::int64_t own_group) {
  for (const Array& leaf : tree_leaves(result)) {
    const std::vector<std::int64_t> groups = MpmdArray(leaf).mpmd_idxs();
    const bool is_here = std::binary_search(groups.begin(), groups.end(), own_group);
    expect(leaf.addressable_shards().empty() != is_here, "held by its groups");
  }
}

/// Collectives of all kinds must have moved as often, and as many bytes, as planned.
void expect_planned(const std::vector<CollectiveUse>& planned) {
  const std::vector<CollectiveUse> moved = collective_counts();
  expect(moved.size() == planned.size() && !moved.empty(), "kinds of collectives");
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const std::string text = moved[i].kind + ": " + std::to_string(moved[i].count) + " times, " +
                             std::to_string(moved[i].bytes) + " bytes instead of " +
                             std::to_string(planned[i].count) + " and " +
                             std::to_string(planned[i].bytes);
    expect(moved[i].kind == planned[i].kind && moved[i].count == planned[i].count &&
               moved[i].bytes == planned[i].bytes,
           text);
  }
}

void check_bits(const Schedule& schedule, const MpmdMesh& mesh, std::int64_t microbatches) {
  const Result wanted = wanted_of(microbatches);
  Piped piped(schedule, mesh, microbatches);
  const std::vector<CollectiveUse> planned = piped.lowered().collectives();
  piped.place();
  piped();
  reset_collective_counts();
  const Result found = piped();
  expect_planned(planned);
  expect_held_by_their_groups(found, piped.own_group());
  expect_same(found, wanted);
}

struct Setting {
  Schedule schedule;
  std::int64_t groups;
  std::int64_t data;
  std::int64_t microbatches;
};

TEST(IsolatedPipeline, TheSameBitsAndThePlannedBytes) {
  const std::vector<Setting> settings = {
      {Std1F1B{2}, 2, 1, 4},    {GPipe{2}, 2, 2, 4},
      {Std1F1B{2}, 2, 4, 4},    {Interleaved1F1B{8, 4}, 4, 1, 4},
      {ZBV{4, 2}, 2, 1, 4},     {DualPipeV{4, 2}, 2, 2, 4},
      {ZeroBubble{4}, 4, 2, 4}, {DualPipeV{8, 4}, 4, 1, 8},
  };
  for (const auto& [schedule, count, data, microbatches] : settings) {
    const MpmdMesh mesh = groups(count, data);
    for (const std::int64_t per_process : {1, 2, 4}) {
      if (data % per_process != 0) continue;
      EXPECT_EQ(in_groups(
                    count, data, [&] { check_bits(schedule, mesh, microbatches); }, per_process),
                0)
          << to_string(mesh) << " " << schedule.num_stages() << " " << per_process;
    }
  }
}

/// The peak of a process during a step must equal the planned peak of its device.
TEST(IsolatedPipeline, ProcessesHoldWhatIsPlanned) {
  for (const std::int64_t data : {1, 2}) {
    const int code = in_groups(2, data, [&] {
      Piped piped(Std1F1B{2}, groups(2, data), 4);
      // Create the arrays without a compiled program, since the arena of one might determine the
      // peak.
      const auto rows = [] {
        return array(std::vector<float>(4 * 64 * kWidth, 0.5F), {4, 64, kWidth});
      };
      piped.set_batch({rows(), rows()});
      const auto compiled = piped.lowered().compile();
      piped.place();
      piped();
      reset_peak_buffer_bytes();
      piped();
      const std::int64_t found = peak_buffer_bytes();
      const std::int64_t planned = compiled.memory().peak;
      expect(found == planned,
             std::to_string(found) + " bytes instead of " + std::to_string(planned));
    });
    EXPECT_EQ(code, 0) << data;
  }
}

/// A state that is made or restored where the step reads it is never held elsewhere.
TEST(IsolatedPipeline, StatesAreMadeInTheirGroups) {
  const std::string folder = (fs::path(::testing::TempDir()) / "tessera_made_in_groups").string();
  for (const std::int64_t per_process : {1, 2}) {
    fs::remove_all(folder);
    const auto body = [&] {
      const MpmdMesh mesh = groups(2, 2);
      const use_mesh scope(mesh.group_mesh());
      const auto init = [] {
        Net net = make_net();
        for (Array& layer : net.layers) {
          layer = with_sharding_constraint(layer * 1.5F, P{"data"});
        }
        return net;
      };
      const auto step = mpmd_jit_with_loop(
          [](const Net& net, const Batch& batch) { return step_of(net, batch, Std1F1B{2}); }, mesh);
      const auto shapes = eval_shape(init);
      const Shardings places = Shardings::of(
          step.lower(shapes, eval_shape([] { return make_batch(4); })).arguments())["0"];
      const Net wanted = jit(init)();
      const Net made = jit(init, {.out_shardings = places})();
      checkpoint::save(folder, made);
      const Net restored = checkpoint::restore(folder, shapes, places);
      const std::int64_t own = process_index() / (process_count() / 2);
      for (const Net& net : {made, restored}) {
        for (std::size_t i = 0; i < tree_leaves(net).size(); ++i) {
          const Array leaf = tree_leaves(net)[i];
          const std::vector<std::int64_t> holders = MpmdArray(leaf).mpmd_idxs();
          const bool is_here = std::binary_search(holders.begin(), holders.end(), own);
          expect(leaf.addressable_shards().empty() != is_here, "held by its groups only");
          expect_same(leaf, tree_leaves(wanted)[i], "leaf " + std::to_string(i));
        }
      }
      // Nor are the layers of the other group held while a process makes its own layers.
      const auto peak_of = [&](const Shardings& shardings) {
        return jit(init, {.out_shardings = shardings}).compile().memory().peak;
      };
      Shardings everywhere;
      for (const Shardings::Entry& entry : places.entries()) {
        everywhere.set(entry.path, NamedSharding(entry.mesh, entry.spec));
      }
      const std::int64_t few = peak_of(places);
      const std::int64_t all = peak_of(everywhere);
      expect(few < all * 3 / 4, std::to_string(few) + " bytes instead of " + std::to_string(all));
    };
    EXPECT_EQ(in_groups(2, 2, body, per_process), 0) << per_process;
  }
}

TEST(IsolatedPipeline, OtherProgramsRunWhereTheirArraysAre) {
  const int code = in_groups(2, 2, [] {
    const Result wanted = wanted_of(4);
    Piped piped(Std1F1B{2}, groups(2, 2), 4);
    piped();
    const Net net = std::get<0>(piped());
    const Net& same = std::get<0>(wanted);
    const auto groups_of = [](const Array& x) { return MpmdArray(x).mpmd_idxs(); };
    using Groups = std::vector<std::int64_t>;
    expect(groups_of(net.layers[0]) == Groups{0} && groups_of(net.layers[7]) == Groups{1},
           "layers live in the groups of their stages");
    expect(groups_of(net.tied) == Groups{0, 1}, "shared weights live in both groups");
    const Array one = net.layers[0] * 2.0F;
    expect(groups_of(one) == Groups{0}, "a result lives where its operands do");
    expect_same(one, same.layers[0] * 2.0F, "one group");
    expect_same(net.layers[7] + net.tied, same.layers[7] + same.tied, "the common group");
    const auto norm = jit([](std::vector<Array> leaves) {
      Array squares = zeros({});
      for (const Array& leaf : leaves) squares = squares + sum(square(leaf));
      return sqrt(squares);
    });
    expect_same(norm(tree_leaves(net)), norm(tree_leaves(same)), "operands of both groups");
    const Array split = device_put(net.layers[7], P{"data"});
    expect(groups_of(split) == Groups{1}, "device_put stays in the groups");
    expect_same(split, same.layers[7], "split in its group");
    expect_same(dot(split, split), dot(same.layers[7], same.layers[7]), "a product in a group");
    expect(array_equal(split, same.layers[7]), "array_equal");
    expect(to_string(split) == to_string(same.layers[7]), "to_string");
    expect(checkpoint::fingerprint(checkpoint::named_arrays(net)) ==
               checkpoint::fingerprint(checkpoint::named_arrays(same)),
           "fingerprint");
    expect_same(split.local_data(1), slice(same.layers[7], 0, 8, 16), "local_data");
  });
  EXPECT_EQ(code, 0);
}

TEST(IsolatedPipeline, TimelinesHaveTheTasksOfAllGroups) {
  const int code = in_groups(2, 2, [] {
    const ScheduleTasks tasks = Std1F1B{2}.tasks(4);
    Piped piped(Std1F1B{2}, groups(2, 2), 4);
    piped();
    start_timeline();
    piped();
    const std::vector<TaskTime> times = stop_timeline();
    const Simulation run = measured(tasks, times);
    expect(run.ranks.size() == 2, "two ranks");
    for (std::size_t rank = 0; rank < 2; ++rank) {
      expect(run.ranks[rank].size() == tasks[rank].size(), "all tasks");
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto find = [&](const std::string& name, std::int64_t group) {
        for (const TaskTime& time : times) {
          if (time.name == name && time.group == group && time.microbatch == i) return time;
        }
        throw std::runtime_error(name + " was not recorded");
      };
      expect(find("fwd_0", 0).end <= find("fwd_1", 1).start, "one clock");
    }
    const ScheduleCosts costs = measured_costs(times, 2);
    expect(costs.stages[0].fwd > 0 && costs.stages[1].bwd_input > 0, "costs");
  });
  EXPECT_EQ(code, 0);
}

/// Saved by a pipeline on two groups of two devices, restored on other groups and on one device.
TEST(IsolatedPipeline, CheckpointsMoveToOtherMeshes) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_isolated_pipeline";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string path = (folder / "saved").string();
  EXPECT_EQ(in_groups(2, 2,
                      [&] {
                        Piped piped(Std1F1B{2}, groups(2, 2), 4);
                        piped();
                        checkpoint::save(path, piped.net());
                      }),
            0);
  const auto resume = [&](const Schedule& schedule, const MpmdMesh& mesh) {
    Piped piped(schedule, mesh, 4);
    piped.set_net(
        checkpoint::restore(path, piped.net(), Shardings(NamedSharding(mesh.group_mesh(), P{}))));
    expect_same(piped(), wanted_of(4));
  };
  EXPECT_EQ(in_groups(4, 1, [&] { resume(GPipe{4}, groups(4)); }), 0);
  EXPECT_EQ(in_groups(2, 2, [&] { resume(ZBV{4, 2}, groups(2, 2)); }), 0);
  EXPECT_EQ(in_one_process([&] { resume(Std1F1B{2}, groups(2, 2)); }), 0);
  EXPECT_EQ(in_one_process([&] {
              expect(checkpoint::verify(path).empty(), "the checkpoint is whole");
              const auto one = checkpoint::restore(path, make_net());
              const auto step = jit(Piped::Step{Sequential{1}});
              expect_same(step(one, make_batch(4)), wanted_of(4));
            }),
            0);
}

// --- the command

nlohmann::json trained(const std::string& arguments) {
  const CommandOutcome outcome =
      run_command(TESSERA_COMMAND,
                  "train pipeline --d-model 32 --heads 4 --seq 8 --layers 4 --batch 8 "
                  "--microbatches 4 --progress off --json - " +
                      arguments,
                  "", fs::temp_directory_path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const std::size_t at = outcome.stdout_text.find('{');
  return at == std::string::npos ? nlohmann::json()
                                 : nlohmann::json::parse(outcome.stdout_text.substr(at));
}

TEST(IsolatedPipeline, TheCommandTrainsSavesAndRecords) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_isolated_command";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const nlohmann::json wanted = trained("--mesh none --steps 3");
  const std::string saved = " --checkpoint " + (folder / "run").string();
  trained("--mesh stage=4 --stages 4 --isolated --threads 2 --steps 2" + saved);
  const std::string picture = (folder / "step.svg").string();
  const std::string flags = "--mesh stage=2,fsdp=2 --stages 4 --schedule ZBV --steps 3";
  const nlohmann::json found =
      trained(flags + " --isolated --resume --timeline " + picture + saved);
  EXPECT_EQ(found["params_hash"], wanted["params_hash"]);
  EXPECT_EQ(found["loss_bits"][0], wanted["loss_bits"][2]);
  EXPECT_EQ(found["devices"].size(), 4U);
  EXPECT_GT(found["bubble"]["measured"].get<double>(), 0);
  EXPECT_TRUE(fs::exists(picture));
  EXPECT_EQ(found["collectives"], trained(flags)["collectives"]);
}

// --- faults

class IsolatedPipelineFaults : public ReportedRuns {};

TEST_F(IsolatedPipelineFaults, AProcessThatIsKilledInAStepIsNamed) {
  const auto start = std::chrono::steady_clock::now();
  const int code = run({.num_processes = 4, .timeout_s = 60, .num_groups = 2}, [] {
    Piped piped(Std1F1B{2}, groups(2, 2), 4);
    std::thread killer;
    for (int i = 0; i < 1000000; ++i) {
      if (i == 3 && process_index() == 3) {
        killer = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          raise(SIGKILL);
        });
        killer.detach();
      }
      piped();
    }
  });
  EXPECT_EQ(code, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(report("parent"), "rank 3 (group 1, process 1) was ended by signal 9 (Killed)");
  for (int rank = 0; rank < 3; ++rank) {
    const std::regex form("rank 3 \\(group 1, process 1\\) has ended.*; rank " +
                          std::to_string(rank) + " \\(group [01], process [01]\\) .* in .*");
    const std::string text = report(std::to_string(rank));
    EXPECT_TRUE(std::regex_match(text, form)) << text;
  }
}

TEST_F(IsolatedPipelineFaults, AMeshThatNoGroupHas) {
  const std::string line = line_of(3);
  const auto work = [] {
    const use_mesh scope(make_mesh({{"data", 3}}));
    ones({2});
  };
  EXPECT_EQ(run({.num_processes = 4, .timeout_s = 5, .num_groups = 2}, work), 3);
  EXPECT_EQ(report("0"),
            "the devices of the mesh cannot be divided evenly among the processes of this run\n"
            "  where:  " +
                line +
                "\n"
                "  found:  data=3 with 3 devices, and 4 processes in 2 groups of 2 devices\n"
                "  wanted: 2 devices (one group) or 4 devices (all groups)\n"
                "  cure:   set num_groups to the number of groups of the MpmdMesh");
}

TEST_F(IsolatedPipelineFaults, MoreGroupsThanTheRunHas) {
  const auto step = mpmd_jit_with_loop([](Array x) { return x; }, groups(4));
  const std::string line = line_of(1);
  const auto work = [&] { step(ones({2})); };
  EXPECT_EQ(run({.num_processes = 2, .timeout_s = 5, .num_groups = 2}, work), 3);
  EXPECT_EQ(
      report("0"),
      "jit: the MpmdMesh has more groups than this run\n"
      "  where:  " +
          line +
          "\n"
          "  found:  MpmdMesh(stage=4,data=1, groups along 'stage') and groups of the run: 2\n"
          "  wanted: a process for each device of each group\n"
          "  cure:   start the processes with num_groups = 4");
}

}  // namespace
}  // namespace tessera::testing
