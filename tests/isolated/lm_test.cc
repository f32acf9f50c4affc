// The language model with one process per device, and what happens when one of them fails.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "tests/cases/case_file.h"
#include "tests/errors/caught.h"
#include "tests/isolated/reports.h"
#include "tests/programs/lm_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

const std::string kSizes =
    "train lm --vocab 50 --seq 12 --d-model 32 --heads 4 --layers 2 --d-ff 48 --batch 8 --steps 3 "
    "--progress off --json - --log-every 1000000 ";

CommandOutcome tessera(const std::string& arguments) {
  return run_command(TESSERA_COMMAND, arguments, "", fs::temp_directory_path());
}

/// The JSON object at the end of the output.
nlohmann::json trained(const std::string& arguments) {
  const CommandOutcome outcome = tessera(kSizes + arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const std::size_t at = outcome.stdout_text.find('{');
  return at == std::string::npos ? nlohmann::json()
                                 : nlohmann::json::parse(outcome.stdout_text.substr(at));
}

TEST(IsolatedLm, TheSameBitsCollectivesAndBytes) {
  const nlohmann::json want = trained("--mesh none");
  for (const std::string mesh :
       {"data=1", "data=2", "data=3", "data=4", "data=2,model=2", "data=2,model=2@2,0,3,1"}) {
    for (const std::string params : {"replicated", "fsdp"}) {
      SCOPED_TRACE(mesh + " " + params);
      const std::string flags = "--mesh " + mesh + " --params " + params;
      const nlohmann::json shared = trained(flags);
      const nlohmann::json isolated = trained(flags + " --isolated --threads 2");
      for (const char* key : {"loss_bits", "params_hash"}) {
        EXPECT_EQ(isolated[key], want[key]) << key;
        EXPECT_EQ(shared[key], want[key]) << key;
      }
      EXPECT_EQ(isolated["collectives"], shared["collectives"]);
      double most = 0;
      for (const nlohmann::json& device : isolated["devices"]) {
        const double planned = device["planned_bytes"];
        EXPECT_NEAR(device["measured_bytes"].get<double>(), planned, 0.05 * planned);
        most = std::max(most, device["measured_bytes"].get<double>());
      }
      // The planned peak of one process for all devices is that of the largest device. A process
      // per device keeps a little more while it waits for messages.
      const double planned = shared["device_peak_mib"].get<double>() * 1024 * 1024;
      EXPECT_NEAR(most, planned, 0.07 * planned);
    }
  }
}

TEST(IsolatedLm, EveryOptimizer) {
  const std::string flags =
      " --clip 0.5 --accumulate 2 --lr-schedule cosine --warmup 1 --decay-steps 4 --optimizer ";
  for (const std::string name :
       {"sgd", "momentum", "adam", "adafactor", "lion", "muon", "lamb", "rmsprop"}) {
    SCOPED_TRACE(name);
    const nlohmann::json want = trained("--mesh none" + flags + name);
    EXPECT_EQ(want["config"]["optimizer"]["name"], name);
    const nlohmann::json isolated =
        trained("--mesh data=4 --params fsdp --isolated" + flags + name);
    for (const char* key : {"loss_bits", "params_hash"}) {
      EXPECT_EQ(isolated[key], want[key]) << key;
    }
  }
}

TEST(IsolatedLm, DotUnitsOfBf16) {
  for (const std::string unit : {"portable", "auto"}) {
    SCOPED_TRACE(unit);
    const std::string flags = " --dtype bf16 --dot-unit " + unit;
    const nlohmann::json want = trained("--mesh none" + flags);
    EXPECT_EQ(want["dot_unit"], unit == "auto" ? std::string(dot_unit()) : unit);
    const nlohmann::json isolated = trained("--mesh data=4 --params fsdp --isolated" + flags);
    for (const char* key : {"dot_unit", "loss_bits", "params_hash"}) {
      EXPECT_EQ(isolated[key], want[key]) << key;
    }
  }
  EXPECT_EQ(trained("--mesh none")["dot_unit"], "f32");
}

TEST(IsolatedLm, ExecutesTheCollectivesThatAreExplained) {
  const std::string flags = "--mesh data=4 --params fsdp";
  const CommandOutcome shown = tessera(
      "show lm --what collectives --json - --vocab 50 --seq 12 --d-model 32 --heads 4 "
      "--layers 2 --d-ff 48 --batch 8 " +
      flags);
  ASSERT_EQ(shown.exit_code, 0) << shown.stderr_text;
  const nlohmann::json explained = nlohmann::json::parse(shown.stdout_text).at("collectives");
  EXPECT_FALSE(explained.empty());
  EXPECT_EQ(trained(flags + " --isolated")["collectives"], explained);
}

TEST(IsolatedLm, MistakesAreToldOnce) {
  const CommandOutcome outcome =
      tessera("train lm --isolated --mesh data=4 --steps 1 --text /no/such/file");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.stderr_text.find("/no/such/file"), std::string::npos) << outcome.stderr_text;
  EXPECT_EQ(outcome.stderr_text.find("/no/such/file"), outcome.stderr_text.rfind("/no/such/file"))
      << outcome.stderr_text;
}

// --- tests

class IsolatedErrors : public ReportedRuns {
 protected:
  /// Trains without end with one process per device of `mesh`. In failing ranks, a thread
  /// calls `fail` soon after the first steps; in rank 1, `in_step` runs before each step. Returns
  /// the exit code.
  int train(
      const Mesh& mesh, double timeout_s, const std::function<void()>& fail,
      const std::function<void(int)>& in_step = [](int) {}) {
    const int count = static_cast<int>(mesh.num_devices());
    const Clock::time_point start = Clock::now();
    const int code = run({.num_processes = count, .timeout_s = timeout_s}, [&] {
      set_num_threads(2);
      const lm::Config config{
          .vocab = 50, .seq = 12, .d_model = 32, .heads = 4, .layers = 1, .d_ff = 48};
      const use_mesh scope(mesh);
      State state = make_state(config, mesh, Layout::fsdp);
      auto step = jit(
          [](State old, Array ids) {
            auto [loss, grads] = loss_and_grads(old.params, ids);
            return std::tuple(old.apply_gradients(grads), loss);
          },
          {.donate_argnums = {0}});
      const data::Tokens tokens = data::random_tokens(1234, 64, config.seq, 50);
      const Array ids = device_put(tokens.batch(0, 8), P{"data"});
      std::thread failing;
      for (int i = 0; i < 1000000; ++i) {
        if (i == 3 && failing_.contains(process_index())) {
          failing = std::thread([&] {
            std::this_thread::sleep_for(milliseconds(30));
            fail();
          });
          failing.detach();
        }
        if (process_index() == 1) in_step(i);
        Array loss;
        std::tie(state, loss) = step(std::move(state), ids);
      }
    });
    seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    return code;
  }

  /// Every rank but 1 must report what happened to rank 1, a collective, an op and a line of the
  /// model.
  void expect_reports(int count, const std::string& what) const {
    for (int rank = 0; rank < count; ++rank) {
      if (rank == 1) continue;
      const std::string text = report(std::to_string(rank));
      const std::regex form("rank 1 " + what + ".*; rank " + std::to_string(rank) +
                            " .* in [a-z_]+ [0-9]+ \\([a-z_]+ at .*\\.(h|cc):[0-9]+\\); these "
                            "arguments were donated to the call and are lost: 0/step, .*");
      EXPECT_TRUE(std::regex_match(text, form)) << "rank " << rank << ": " << text;
    }
  }

  std::set<int> failing_ = {1};
  double seconds_ = 0;
};

TEST_F(IsolatedErrors, AProcessIsKilled) {
  for (const Mesh& mesh : {make_mesh({{"data", 2}}), make_mesh({{"data", 4}})}) {
    EXPECT_EQ(train(mesh, 60, [] { raise(SIGKILL); }), 2);
    expect_reports(static_cast<int>(mesh.num_devices()), "has ended");
    EXPECT_NE(report("parent").find("rank 1 was ended by signal 9"), std::string::npos);
    EXPECT_LT(seconds_, 30) << "nobody waits for the timeout";
  }
}

TEST_F(IsolatedErrors, AProcessStops) {
  for (const Mesh& mesh : {make_mesh({{"data", 3}}), make_mesh({{"data", 2}, {"model", 2}})}) {
    EXPECT_EQ(train(mesh, 3, [] { kill(getpid(), SIGSTOP); }), 2);
    expect_reports(3, "did not answer within the timeout of 3 s");
    EXPECT_EQ(report("parent"), "rank 1 was stopped and was killed");
    EXPECT_LT(seconds_, 30);
  }
}

TEST_F(IsolatedErrors, SeveralProcessesStop) {
  failing_ = {1, 2};
  EXPECT_EQ(train(make_mesh({{"data", 4}}), 3, [] { kill(getpid(), SIGSTOP); }), 2);
  // The first of the two to stop is blamed.
  const std::string silent = "did not answer within the timeout of 3 s, nor did rank ";
  for (const char* rank : {"0", "3"}) {
    const std::string text = report(rank);
    EXPECT_TRUE(text.starts_with("rank 1 " + silent + "2; rank ") ||
                text.starts_with("rank 2 " + silent + "1; rank "))
        << text;
  }
  EXPECT_LT(seconds_, 30);
}

TEST_F(IsolatedErrors, AProcessThrows) {
  const int code = train(
      make_mesh({{"data", 3}}), 60, [] {},
      [](int step) {
        if (step == 5) throw std::runtime_error("disk full");
      });
  EXPECT_EQ(code, 3);
  expect_reports(3, "has failed: disk full");
  EXPECT_LT(seconds_, 30);
}

TEST_F(IsolatedErrors, OtherCallsInOneProcessAreNoticed) {
  const int code = run({.num_processes = 2, .timeout_s = 5}, [] {
    const use_mesh scope(make_mesh({{"data", 2}}));
    const Array x = device_put(array({1.F, 2.F, 3.F, 4.F}), P{"data"});
    if (process_index() == 0) x.to_vector<float>();
  });
  EXPECT_EQ(code, 2);
  EXPECT_NE(report("0").find("rank 1"), std::string::npos) << report("0");
}

TEST_F(IsolatedErrors, AMeshThatCannotBeDivided) {
  const std::string line = line_of(3);
  const int code = run({.num_processes = 2, .timeout_s = 5}, [] {
    const use_mesh scope(make_mesh({{"data", 3}}));
    ones({2});
  });
  EXPECT_EQ(code, 3);
  EXPECT_EQ(
      report("0"),
      "the devices of the mesh cannot be divided evenly among the processes of this run\n"
      "  where:  " +
          line +
          "\n"
          "  found:  data=3 with 3 devices, and 2 processes\n"
          "  wanted: a multiple of 2 devices\n"
          "  cure:   start a number of processes that divides the number of devices of the mesh");
}

}  // namespace
}  // namespace tessera::testing
