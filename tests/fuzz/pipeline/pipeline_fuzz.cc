// tessera_fuzz_pipelines [--seed S] [--cases N] [--seconds T]
//
// Random networks on random groups of devices under random schedules must have the same gradients,
// losses and new parameters, bit for bit, as one program on one device. Case i has seed S + i. Exit
// code 1: too little was covered, or a case failed; the case and a minimised one are printed.
#include <fmt/format.h>
#include <map>
#include <string>

#include "tests/fuzz/pipeline/compare.h"
#include "tests/fuzz/pipeline/random_tasks.h"
#include "tests/fuzz/run_cases.h"

namespace {

using tessera::fuzz::StagedCase;

constexpr int kCasesToJudge = 300;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 600;
constexpr double kSecondsToMinimise = 90;

using Coverage = std::map<std::string, int>;

/// Features that some case must have, besides each schedule and each kind of layer.
const char* const kNeeded[] = {"several processes",
                               "processes with several devices",
                               "cut by what it costs",
                               "several groups",
                               "weight gradients behind later microbatches",
                               "shards that no leaf has",
                               "two axes",
                               "parameters donated",
                               "two steps",
                               "a layout asked for",
                               "replicated",
                               "fsdp",
                               "any layout",
                               "transformer",
                               "tied",
                               "skips",
                               "random"};

void count(const StagedCase& c, Coverage& coverage) {
  using tessera::fuzz::ParamLayout;
  const auto add = [&](const std::string& what, bool holds = true) {
    if (holds) ++coverage[what];
  };
  add("cases");
  add(c.model);
  add("schedule " + c.schedule);
  for (const auto& layer : c.net.layers) {
    for (const auto& [kind, name] : tessera::fuzz::layer_kinds()) {
      add("layer " + name, kind == layer.kind);
    }
  }
  add("several processes", c.is_isolated);
  add("processes with several devices", c.is_isolated && c.devices_per_process > 1);
  add("cut by what it costs", !c.net.has_marks);
  add("several groups", c.groups > 1);
  add("weight gradients behind later microbatches",
      tessera::fuzz::delays_weight_gradients(*tasks_of(c)));
  add("shards that no leaf has", c.grains % c.axes[0].size != 0);
  add("two axes", c.axes.size() > 1);
  add("parameters donated", c.donates);
  add("two steps", c.steps > 1);
  add("bf16", c.net.dtype == tessera::DType::bf16);
  add("a gradient stacked", c.stacks_gradient);
  add("a layout asked for", c.asks_for_layout);
  add(c.layout == ParamLayout::replicated ? "replicated"
      : c.layout == ParamLayout::fsdp     ? "fsdp"
                                          : "any layout");
}

bool is_covered(const Coverage& coverage) {
  for (const auto& [what, number] : coverage) fmt::print("{}={}; ", what, number);
  fmt::print("\n");
  if (!coverage.contains("cases") || coverage.at("cases") < kCasesToJudge) return true;
  std::vector<std::string> needed(std::begin(kNeeded), std::end(kNeeded));
  for (const std::string& name : tessera::schedule_names()) needed.push_back("schedule " + name);
  for (const char* other : {"schedule auto", "schedule random"}) needed.emplace_back(other);
  for (const auto& [kind, name] : tessera::fuzz::layer_kinds()) needed.push_back("layer " + name);
  bool is_enough = true;
  for (const std::string& what : needed) {
    if (coverage.contains(what)) continue;
    fmt::print("FAILED: no case has: {}\n", what);
    is_enough = false;
  }
  return is_enough;
}

void report(const StagedCase& failing, const tessera::fuzz::Failure& failure) {
  fmt::print("FAILED: {}not so: {}\n{}\n", to_string(failing), failure.rule, failure.detail);
  std::fflush(stdout);
  const StagedCase small = minimised(failing, failure.rule, kSecondsToMinimise);
  const auto again = check(small);
  fmt::print("minimised: {}{}\n", to_string(small), again ? again->detail : "not every time");
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_pipelines";
  const auto options = tessera::fuzz::read_options(program, argc, argv, {});
  Coverage coverage;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase, [&](std::uint64_t seed) {
        const StagedCase c = tessera::fuzz::make_staged_case(seed);
        count(c, coverage);
        const auto failure = tessera::fuzz::check(c);
        if (failure) report(c, *failure);
        return !failure;
      });
  return is_good && is_covered(coverage) ? 0 : 1;
}
