// tessera_fuzz_stablehlo [--seed S] [--cases N] [--seconds T]
//
// Damaged StableHLO modules must either throw UserError or be read. Those that are read are then
// printed and imported. All of this must take little time and memory, and what is imported must be
// valid. Exit code 1: something else happened, or all modules had the same outcome.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include <tessera/error.h>

#include "ir/text.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"
#include "tests/cases/source_dir.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/run_cases.h"

namespace {

namespace bytecode = tessera::stablehlo::bytecode;
using tessera::fuzz::Random;

constexpr int kCasesToJudge = 1000;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 10;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 29;

struct Counts {
  int read = 0, rejected = 0;
  int imported = 0;  // of those that were read
};

std::vector<std::string> modules() {
  std::vector<std::string> result;
  const auto folder = tessera::source_dir() / "tests/stablehlo/bytecode";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".mlirbc") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    result.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::ranges::sort(result);
  return result;
}

/// A byte that is likely to be mishandled in a number, a count or a flag.
char awkward_byte(Random& random) {
  constexpr std::array<unsigned char, 8> kBytes = {0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0xFE, 0xFF};
  return static_cast<char>(random.chance(50) ? kBytes.at(random.pick(kBytes.size()))
                                             : random.pick(256));
}

void mutate(std::string& bytes, const std::string& other, Random& random) {
  const std::size_t at = random.pick(bytes.size());
  const std::size_t length = 1 + random.pick(random.chance(80) ? 8 : bytes.size());
  switch (random.pick(7)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.pick(8)));
      break;
    case 1:
    case 2:
      bytes[at] = awkward_byte(random);
      break;
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, length % 8, awkward_byte(random));
      break;
    case 5:
      bytes.replace(at, length, other, random.pick(other.size()), length);
      break;
    default:
      bytes[at] = static_cast<char>(bytes[at] + (random.chance(50) ? 2 : -2));
      break;
  }
  if (bytes.empty()) bytes = "M";
}

bool check(std::uint64_t seed, const std::vector<std::string>& corpus, Counts& counts) {
  Random random(seed);
  std::string bytes = random.choose(corpus);
  for (std::int64_t n = random.between(1, 4); n > 0; --n) {
    mutate(bytes, random.choose(corpus), random);
  }
  try {
    const auto module = bytecode::read_module(bytes);
    bytecode::print(*module);
    ++counts.read;
    try {
      const tessera::ir::Function function = tessera::stablehlo::import_module(*module).function;
      tessera::ir::verify(function, "import");
      ++counts.imported;
    } catch (const tessera::UserError&) {
      // Not every module that can be read can be imported.
    }
  } catch (const tessera::UserError&) {
    ++counts.rejected;
  } catch (const std::exception& error) {
    fmt::print("FAILED, seed {}: throws what is no UserError: {}\n", seed, error.what());
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_stablehlo";
  const auto options =
      tessera::fuzz::read_options(program, argc, argv, {.cases = 1'000'000'000, .seconds = 30});
  const std::vector<std::string> corpus = modules();
  tessera::fuzz::limit_memory(kMostMemory);
  Counts counts;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase,
                               [&](std::uint64_t seed) { return check(seed, corpus, counts); });
  fmt::print("modules: {} read, {} of them imported, {} rejected\n", counts.read, counts.imported,
             counts.rejected);
  const int total = counts.read + counts.rejected;
  const bool is_covered =
      total < kCasesToJudge ||
      (counts.read > total / 20 && counts.imported > 0 && counts.rejected > total / 20);
  if (!is_covered) fmt::print("FAILED: nearly all modules end alike\n");
  return is_good && is_covered ? 0 : 1;
}
