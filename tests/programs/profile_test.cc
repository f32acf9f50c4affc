// Traces of programs, read from the files that they are written to.
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>
#include <zlib.h>

#include <tessera/data.h>
#include <tessera/functions.h>
#include <tessera/optim.h>
#include <tessera/profile.h>

#include "pipeline/model.h"
#include "tests/errors/caught.h"
#include "tests/programs/profile_reader.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 16, kInputs = 32, kHidden = 64, kOutputs = 8;
constexpr std::size_t kSteps = 3;

/// A temporary folder that is removed with the object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("profile_test_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

struct Mlp {
  nn::Dense first, second;
  explicit Mlp(const nn::Scope& scope)
      : first(scope / "first", kInputs, kHidden), second(scope / "second", kHidden, kOutputs) {}
  Array operator()(const Array& x) const { return second(relu(first(x))); }
  TESSERA_MODULE(first, second)
};

struct Recorded {
  std::string path;
  MemoryPlan memory;
};

/// Traces three steps on four devices that share a batch.
Recorded record_mlp(const std::string& folder) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  using State = TrainState<Mlp>;
  const auto init = [](Key key) {
    return State(Mlp(nn::Scope(key)), optim::adamw({.learning_rate = 1e-3}));
  };
  State state = jit(init, {.out_shardings = replicated(mesh, eval_shape(init, Key(0)))})(Key(0));
  const auto step = jit(
      [](State old, Array x) {
        auto [loss, grads] = value_and_grad([&](const Mlp& model) {
          const Array y = model(x);
          return mean(y * y);
        })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}, .name = "train_step"});
  const Array x =
      device_put(random::normal(Key(1), {kBatch, kInputs}), NamedSharding(mesh, P{"data"}));
  const MemoryPlan memory = step.lower(state, x).compile().memory();
  profile::start_trace(folder);
  for (std::size_t i = 0; i < kSteps; ++i) {
    const profile::Step mark(10 + static_cast<std::int64_t>(i));
    Array loss;
    std::tie(state, loss) = step(std::move(state), x);
  }
  return {profile::stop_trace(), memory};
}

class Profile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<Folder>();
    recorded_ = record_mlp(folder_->path());
    space_ = std::make_unique<SpaceReader>(bytes_of_file(recorded_.path));
  }
  static void TearDownTestSuite() {
    space_.reset();
    folder_.reset();
  }
  static const ReadPlane& device(int number) {
    return space_->plane("/device:TPU:" + std::to_string(number));
  }
  inline static std::unique_ptr<Folder> folder_;
  inline static Recorded recorded_;
  inline static std::unique_ptr<SpaceReader> space_;
};

TEST_F(Profile, EveryDeviceAndTheHostHaveAPlane) {
  std::vector<std::string> names;
  for (const ReadPlane& plane : space_->planes()) names.push_back(plane.name);
  EXPECT_EQ(names, (std::vector<std::string>{"/device:TPU:0", "/device:TPU:1", "/device:TPU:2",
                                             "/device:TPU:3", "/host:CPU", "/host:metadata"}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(device(i).stats.texts.at("device_type_string"), "Tessera virtual device");
    EXPECT_GT(device(i).stats.number("peak_teraflops_per_second"), 0);
    EXPECT_GT(device(i).stats.number("peak_hbm_bw_gigabytes_per_second"), 0);
  }
}

TEST_F(Profile, EventsHaveKindsAndOpsDoNotOverlap) {
  for (const ReadPlane& plane : space_->planes()) {
    for (const ReadLine& line : plane.lines) {
      std::int64_t end = 0;
      for (const ReadEvent& event : line.events) {
        ASSERT_EQ(plane.kinds.count(event.kind), 1U) << plane.name << ", " << line.name;
        if (line.name != "XLA Ops") continue;
        EXPECT_GE(event.start_ps, end) << plane.name;
        end = event.start_ps + event.length_ps;
      }
    }
  }
}

TEST_F(Profile, StepsAreThoseThatWereMarked) {
  for (int i = 0; i < 4; ++i) {
    const std::vector<ReadEvent> steps = device(i).events("Steps");
    ASSERT_EQ(steps.size(), kSteps);
    for (std::size_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(device(i).kinds.at(steps[step].kind).name, std::to_string(10 + step));
      EXPECT_EQ(steps[step].stats.number("group_id"), static_cast<double>(step));
    }
    for (const ReadEvent& op : device(i).events("XLA Ops")) {
      EXPECT_GE(op.stats.number("group_id"), 0);
    }
  }
}

TEST_F(Profile, FlopsOfProductsAreThoseOfTheProgram) {
  // Both products of the forward pass, the gradients of both kernels, and that of the hidden layer.
  const std::int64_t products = 2 * kBatch * (2 * kInputs * kHidden + 3 * kHidden * kOutputs);
  double found = 0;
  for (int i = 0; i < 4; ++i) {
    double of_device = 0;
    for (const ReadEvent& op : device(i).events("XLA Ops")) {
      const ReadKind& kind = device(i).kinds.at(op.kind);
      EXPECT_GT(kind.stats.number("symbol_id"), 0);
      if (kind.stats.texts.at("hlo_category") == "dot") of_device += kind.stats.number("flops");
    }
    EXPECT_EQ(of_device, static_cast<double>(std::int64_t{kSteps} * products) / 4)
        << "device " << i;
    found += of_device;
  }
  EXPECT_EQ(found, static_cast<double>(std::int64_t{kSteps} * products));
}

TEST_F(Profile, OpsAreNamedByModulesAndLines) {
  std::set<std::string> products;
  for (const auto& [id, kind] : device(0).kinds) {
    if (kind.stats.texts.count("hlo_category") == 0) continue;
    EXPECT_NE(kind.stats.texts.at("source").find(':'), std::string::npos) << kind.name;
    if (kind.stats.texts.at("hlo_category") == "dot") products.insert(kind.stats.texts.at("tf_op"));
  }
  EXPECT_EQ(products, (std::set<std::string>{"first/dot_general:dot_general",
                                             "second/dot_general:dot_general"}));
}

TEST_F(Profile, HeapTraceHasThePeakOfThePlan) {
  const ReadPlane& programs = space_->plane("/host:metadata");
  ASSERT_EQ(programs.kinds.size(), 1U);
  const ReadKind& program = programs.kinds.begin()->second;
  EXPECT_EQ(program.name, "train_step(1)");
  const ReadBuffers buffers = read_buffers(program.stats.texts.at("Hlo Proto"));
  EXPECT_GT(buffers.num_events, 10U);
  EXPECT_EQ(buffers.left, 0);
  EXPECT_EQ(buffers.peak, recorded_.memory.temporaries);
  EXPECT_EQ(buffers.arena, recorded_.memory.temporaries);
  EXPECT_EQ(buffers.ports + buffers.peak, recorded_.memory.peak);
}

TEST_F(Profile, BuffersComeAndGo) {
  const ReadPlane& host = space_->plane("/host:CPU");
  std::set<double> held;
  for (const ReadEvent& event : host.events("buffers")) {
    const bool comes = host.kinds.at(event.kind).name == "MemoryAllocation";
    const double address = event.stats.number("addr");
    if (comes) {
      EXPECT_TRUE(held.insert(address).second);
    } else {
      held.erase(address);
    }
    EXPECT_GE(event.stats.number("peak_bytes_in_use"), event.stats.number("bytes_allocated"));
  }
  EXPECT_FALSE(host.events("buffers").empty());
  EXPECT_FALSE(host.events("main thread").empty());
}

TEST_F(Profile, TheTraceForOtherViewersIsWhole) {
  const std::string path =
      recorded_.path.substr(0, recorded_.path.size() - std::string(".xplane.pb").size()) +
      ".trace.json.gz";
  gzFile file = gzopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  std::string text(std::size_t{1} << 24, '\0');
  const int size = gzread(file, text.data(), static_cast<unsigned>(text.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  ASSERT_GT(size, 0);
  text.resize(static_cast<std::size_t>(size));
  const auto json = nlohmann::json::parse(text);
  std::size_t num_events = 0;
  for (const ReadPlane& plane : space_->planes()) {
    for (const ReadLine& line : plane.lines) num_events += line.events.size();
  }
  std::size_t num_spans = 0;
  for (const auto& event : json["traceEvents"]) num_spans += event["ph"] == "X" ? 1U : 0U;
  EXPECT_EQ(num_spans, num_events);
}

TEST(ProfileOfPipeline, ArrowsLeadFromStageToStage) {
  constexpr std::int64_t kStages = 2;
  pipeline::Config config{.seq = 16, .d_model = 64, .layers = 4, .microbatches = 4};
  config.stages = kStages;
  const MpmdMesh mesh(make_mesh({{"stage", kStages}, {"fsdp", 2}}), "stage");
  const Schedule schedule = Interleaved1F1B{.num_stages = kStages, .mpmd_dim = kStages};
  using State = TrainState<pipeline::Transformer>;
  const auto step = mpmd_jit_with_loop(
      [&](State old, Array xs, Array targets) {
        auto [loss, grads] =
            pipeline::accumulate(old.params, xs, targets, config.microbatches, schedule);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      mesh, {.donate_argnums = {0}});
  const use_mesh scope(mesh.group_mesh());
  State state(pipeline::Transformer(nn::Scope(Key(0)), config),
              optim::adamw({.learning_rate = 1e-3}));
  const Array xs = random::normal(Key(1), {8, config.seq, config.d_model});
  const MemoryPlan memory = step.lower(state, xs, xs).compile().memory();
  const Folder folder;
  profile::start_trace(folder.path());
  std::tie(state, std::ignore) = step(std::move(state), xs, xs);
  const SpaceReader space(bytes_of_file(profile::stop_trace()));

  std::map<double, std::string> sent, received;
  std::set<std::string> tasks;
  for (const ReadPlane& plane : space.planes()) {
    for (const ReadEvent& event : plane.events("Transfers")) {
      if (event.stats.number("_p") > 0) {
        EXPECT_TRUE(sent.emplace(event.stats.number("_p"), plane.name).second);
      } else {
        EXPECT_TRUE(received.emplace(event.stats.number("_c"), plane.name).second);
      }
      // An event has one of the two stats; the reader gives -1 for the missing one.
      EXPECT_EQ(event.stats.number("_pt") + event.stats.number("_ct"), 7 - 1);
    }
    for (const ReadEvent& event : plane.events("XLA Modules")) {
      tasks.insert(plane.kinds.at(event.kind).name);
    }
  }
  // Activations are sent forward and their gradients back, for each microbatch and device.
  EXPECT_GE(sent.size(), 2U * 4U * 2U);
  ASSERT_EQ(sent.size(), received.size());
  for (const auto& [number, plane] : sent) {
    ASSERT_EQ(received.count(number), 1U);
    EXPECT_NE(received.at(number), plane);
  }
  EXPECT_EQ(
      tasks.count("p0_layer_0.fwd_0__3(1)") + tasks.count("p1_layer_1.fused_fwd_1_bwd_1__2(1)"),
      2U);
  const ReadPlane& programs = space.plane("/host:metadata");
  const ReadBuffers buffers =
      read_buffers(programs.kinds.begin()->second.stats.texts.at("Hlo Proto"));
  EXPECT_EQ(buffers.ports + buffers.peak, memory.peak);
}

// --- mistakes

TEST(SettingErrors, OneTraceAtATime) {
  const Folder folder;
  profile::start_trace(folder.path());
  const Caught error = caught([&] { profile::start_trace("elsewhere"); });
  EXPECT_EQ(error.text,
            "start_trace: a trace is already being recorded\n"
            "  where:  <this line>\n"
            "  found:  a trace that has not been stopped\n"
            "  wanted: one trace at a time\n"
            "  cure:   call profile::stop_trace() first");
  profile::stop_trace();
  EXPECT_FALSE(fs::exists("elsewhere"));
}

TEST(SettingErrors, NoTraceToStop) {
  const Caught error = caught([] { profile::stop_trace(); });
  EXPECT_EQ(error.text,
            "stop_trace: no trace is being recorded\n"
            "  where:  <this line>\n"
            "  found:  no start_trace() before it, or a stop_trace() since then\n"
            "  wanted: a trace that has been started\n"
            "  cure:   call profile::start_trace(folder) first");
}

TEST(ProfileFaults, FolderIsAFile) {
  const Folder folder;
  fs::create_directories(folder.path());
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "text";
  try {
    profile::start_trace(file);
    ADD_FAILURE() << "no RuntimeFault";
  } catch (const RuntimeFault& fault) {
    EXPECT_EQ(std::string(fault.what()),
              "profile: " + file + "/plugins/profile cannot be written: Not a directory");
  }
  profile::start_trace(folder.path());  // the failed start left no trace running
  profile::stop_trace();
}

TEST(ProfileFaults, FolderIsGoneAtTheEnd) {
  const Folder folder;
  profile::start_trace(folder.path());
  fs::remove_all(folder.path());
  std::ofstream(folder.path()) << "text";
  EXPECT_THROW(profile::stop_trace(), RuntimeFault);
  fs::remove(folder.path());
  profile::start_trace(folder.path());  // the failed stop has ended the trace
  profile::stop_trace();
}

}  // namespace
}  // namespace tessera::testing
