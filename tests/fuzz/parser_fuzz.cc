// tessera_fuzz_parser [--seed S] [--cases N] [--seconds T]
//
// Mutated IR texts must either throw UserError or parse to a valid function. Printing it and
// parsing again must give the same function. Each pass that accepts the function must give a valid
// one. Exit code 1: something else happened, or hardly any text parsed.
#include <fmt/format.h>

#include <tessera/error.h>

#include "differentiate/differentiate.h"
#include "ir/simplify.h"
#include "ir/text.h"
#include "partition/partition.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run_cases.h"

namespace {

using tessera::fuzz::Random;
using tessera::ir::Function;

constexpr std::size_t kMostEquations = 40;
constexpr int kCasesToJudge = 1000;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 60;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;

struct Counts {
  int parsed = 0;
  int rejected = 0;
  // Of those that parsed.
  int partitioned = 0, explained = 0, differentiated = 0;
};

std::string text_of(std::uint64_t seed, const std::vector<std::string>& corpus) {
  Random random(seed);
  std::string text = random.choose(corpus);
  for (std::int64_t n = random.between(0, 5); n > 0; --n) {
    text = tessera::fuzz::mutated(text, random.choose(corpus), random);
  }
  return text;
}

bool holds(tessera::ir::Verifier verifier, const Function& function) {
  try {
    verifier(function, "parse");
    return true;
  } catch (const tessera::InternalError&) {
    return false;
  }
}

/// Runs every pass that accepts the function.
void run_stages(const Function& function, Counts& counts) {
  const Function simple =
      tessera::ir::run_passes(tessera::ir::simplify_passes(), function, {.verify = true});
  if (function.equations.size() > kMostEquations) return;
  tessera::partition::PartitionOptions options;
  for (const tessera::ir::ValueId id : function.inputs) {
    const tessera::ir::Value& input = function.values[id];
    options.inputs.push_back(
        input.sharding.value_or(tessera::replicated_sharding(input.type.rank())));
    if (!options.inputs.back().partial.empty()) return;
  }
  const std::vector<tessera::ir::Pass> passes = tessera::partition::passes(options);
  if (holds(passes.front().takes, simple)) {
    tessera::ir::run_passes(passes, simple, {.verify = true});
    ++counts.partitioned;
  } else if (holds(passes.back().takes, simple)) {
    tessera::ir::run_passes({passes.back()}, simple, {.verify = true});
    tessera::partition::explain_text(simple);
    ++counts.explained;
  }
  std::vector<std::size_t> wrt;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    if (tessera::is_float(function.type(function.inputs[i]).dtype)) wrt.push_back(i);
  }
  if (function.outputs.empty()) return;
  tessera::ir::run_passes(tessera::differentiate::passes(wrt), function, {.verify = true});
  ++counts.differentiated;
}

/// What is wrong with the handling of the text; empty if nothing is.
std::string fault_of(const std::string& text, Counts& counts) {
  Function function;
  try {
    function = tessera::ir::parse(text);
  } catch (const tessera::UserError&) {
    ++counts.rejected;
    return {};
  }
  ++counts.parsed;
  tessera::ir::verify(function, "parse");
  const std::string printed = tessera::ir::print(function);
  try {
    if (tessera::ir::parse(printed) != function)
      return "prints as what parses to another:\n" + printed;
  } catch (const tessera::UserError& error) {
    return std::string("prints as what does not parse: ") + error.what() + "\n" + printed;
  }
  try {
    run_stages(function, counts);
  } catch (const tessera::UserError&) {
    // Not every function that parses has a gradient: its loss may not be a scalar, or an op may
    // have no derivative.
  }
  return {};
}

bool check(std::uint64_t seed, const std::vector<std::string>& corpus, Counts& counts) {
  const std::string text = text_of(seed, corpus);
  std::string fault;
  try {
    fault = fault_of(text, counts);
  } catch (const std::exception& error) {
    fault = std::string("throws what is no UserError: ") + error.what();
  }
  if (fault.empty()) return true;
  fmt::print("FAILED, seed {}: the text {}\n--- the text\n{}\n---\n", seed, fault, text);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_parser";
  const auto options =
      tessera::fuzz::read_options(program, argc, argv, {.cases = 1'000'000'000, .seconds = 30});
  const std::vector<std::string> corpus = tessera::fuzz::ir_texts(60);
  tessera::fuzz::limit_memory(kMostMemory);
  Counts counts;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase,
                               [&](std::uint64_t seed) { return check(seed, corpus, counts); });
  fmt::print("texts: {} parsed, {} rejected\n", counts.parsed, counts.rejected);
  fmt::print("parsed ones: {} partitioned, {} explained, {} differentiated\n", counts.partitioned,
             counts.explained, counts.differentiated);
  const int total = counts.parsed + counts.rejected;
  const bool is_covered =
      total < kCasesToJudge ||
      (counts.parsed > total / 20 && counts.rejected > total / 20 && counts.partitioned > 0 &&
       counts.explained > 0 && counts.differentiated > 0);
  if (!is_covered) fmt::print("FAILED: nearly all texts end alike\n");
  return is_good && is_covered ? 0 : 1;
}
