// docs/schedules.md has a table of the costs of schedules, and a picture. This test checks that
// both are correct. TESSERA_UPDATE_DOCS=1 rewrites them.

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <tessera/error.h>
#include <tessera/schedule.h>

#include "tests/cases/source_dir.h"

namespace tessera {
namespace {

const std::string kFolder = source_dir() / "docs/";
constexpr std::int64_t kRanks = 4, kMicrobatches = 12;

std::string read_file(const std::string& name) {
  std::ifstream file(kFolder + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// However many stages a rank has, its work on a microbatch is 3 and its memory is 1.
ScheduleCosts costs_of(std::int64_t num_stages, double transfer) {
  const double share = static_cast<double>(kRanks) / static_cast<double>(num_stages);
  return {.stages = {{share, share, share, share}}, .transfer = transfer};
}

std::string row(const std::string& name, std::int64_t num_stages, const ScheduleTasks& tasks) {
  const Simulation run = simulate(tasks, costs_of(num_stages, 0));
  const Simulation sent = simulate(tasks, costs_of(num_stages, 0.25));
  const double memory = *std::max_element(run.peak_memory.begin(), run.peak_memory.end());
  return fmt::format("| {} | {} | {:.1f} % | {:.1f} % | {:.6g} | {:.6g} |\n", name, num_stages,
                     100 * run.bubble, 100 * sent.bubble, run.longest_span, memory);
}

/// The number of stages: two per rank if the schedule supports that, else one.
std::int64_t stages_of(const std::string& name) {
  try {
    schedule_tasks(name, {2 * kRanks, kRanks}, kMicrobatches);
    return name == "Sequential" ? kRanks : 2 * kRanks;
  } catch (const UserError&) {
    return kRanks;
  }
}

std::string table() {
  std::string text =
      "| schedule | stages | bubble | with transfers | longest span | memory |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const std::string& name : schedule_names()) {
    const std::int64_t num_stages = stages_of(name);
    text += row("`" + name + "`", num_stages,
                schedule_tasks(name, {num_stages, kRanks}, kMicrobatches));
  }
  for (const double limit : {2.0, 4.0, 6.0, 8.0}) {
    const AutoSchedule schedule{.num_stages = 2 * kRanks,
                                .mpmd_dim = kRanks,
                                .costs = costs_of(2 * kRanks, 0.25),
                                .memory_limit = limit};
    text += row(fmt::format("`auto`, memory of {}, for these transfers", limit), 2 * kRanks,
                schedule.tasks(kMicrobatches));
  }
  return text;
}

/// Replaces the text between the two marks.
std::string with_table(const std::string& text) {
  const std::string begin = "<!-- table -->\n", end = "<!-- end -->";
  const std::size_t from = text.find(begin), to = text.find(end);
  if (from == std::string::npos || to == std::string::npos) return text + "no marks";
  return text.substr(0, from + begin.size()) + table() + text.substr(to);
}

TEST(ScheduleDocs, AreTrue) {
  const std::string page = read_file("schedules.md");
  const std::string wanted = with_table(page);
  const std::string svg =
      to_svg(simulate(ZBV{.num_stages = 2 * kRanks, .mpmd_dim = kRanks}.tasks(10)),
             "ZBV: 8 stages on 4 ranks, 10 microbatches");
  if (std::getenv("TESSERA_UPDATE_DOCS") != nullptr) {
    std::ofstream(kFolder + "schedules.md") << wanted;
    std::ofstream(kFolder + "schedules.svg") << svg;
  }
  EXPECT_EQ(page, wanted) << "run with TESSERA_UPDATE_DOCS=1 to rewrite docs/schedules.md";
  EXPECT_EQ(read_file("schedules.svg"), svg) << "run with TESSERA_UPDATE_DOCS=1 to draw it again";
}

}  // namespace
}  // namespace tessera
