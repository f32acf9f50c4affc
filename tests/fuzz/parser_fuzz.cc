// tessera_fuzz_parser [--seed S] [--cases N] [--seconds T]
//
// Texts that are nearly IR either parse, to a function that holds the rules and prints as what
// parses to the same, or throw UserError. Exit code 1: something else happened, or hardly any text
// parsed.
#include <fmt/format.h>

#include <tessera/error.h>

#include "ir/simplify.h"
#include "ir/text.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run_cases.h"

namespace {

using tessera::fuzz::Random;
using tessera::ir::Function;

constexpr int kCasesToJudge = 1000;  // fewer say nothing about coverage
constexpr unsigned kSecondsPerCase = 20;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;

struct Counts {
  int parsed = 0;
  int rejected = 0;
};

std::string text_of(std::uint64_t seed, const std::vector<std::string>& corpus) {
  Random random(seed);
  std::string text = random.choose(corpus);
  for (std::int64_t n = random.between(0, 5); n > 0; --n) {
    text = tessera::fuzz::mutated(text, random.choose(corpus), random);
  }
  return text;
}

/// What is wrong with how the text is taken; empty: nothing.
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
  tessera::ir::run_passes(tessera::ir::simplify_passes(), function, {.verify = true});
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
  const int total = counts.parsed + counts.rejected;
  const bool is_covered =
      total < kCasesToJudge || (counts.parsed > total / 20 && counts.rejected > total / 20);
  if (!is_covered) fmt::print("FAILED: nearly all texts end alike\n");
  return is_good && is_covered ? 0 : 1;
}
