// tessera_fuzz_checkpoint [--seed S] [--cases N] [--seconds T]
//
// Damages checkpoints in three ways: mutated files, an index with wrong contents but the right
// checksum, and runs whose folders and files were moved. Reading must either give the saved arrays
// or throw UserError. Exit code 1: something else happened, or all reads had the same outcome.
#include <array>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <xxhash.h>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run_cases.h"

namespace {

namespace fs = std::filesystem;
namespace checkpoint = tessera::checkpoint;

using tessera::Array;
using tessera::fuzz::Random;

constexpr int kCasesToJudge = 1000;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 60;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;

using Tree = std::map<std::string, Array>;
using Files = std::map<std::string, std::string>;

struct Counts {
  int refused = 0, restored = 0;  // checkpoints
  int resealed = 0;               // refused although their checksum was right
  int rejected = 0, read = 0;     // single files
  int lost = 0, kept = 0;         // steps of runs
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  fs::remove(path);  // avoids truncation: file systems flush a truncated and rewritten file at once
  std::ofstream(path, std::ios::binary) << text;
}

Tree saved_tree(std::int64_t step = 7) {
  const tessera::Mesh mesh = tessera::make_mesh({{"a", 3}});
  const auto split = [&](const Array& x) {
    return device_put(x, tessera::NamedSharding(mesh, tessera::P{"a"}));
  };
  return {{"params/w", split(tessera::arange(step, step + 28, 1, tessera::DType::f32))},
          {"params/b", tessera::array<bool>({true, false, true}, {3})},
          {"params/empty", tessera::zeros({2, 0, 3})},
          {"params/none", split(tessera::zeros({3, 0}))},
          {"step", tessera::scalar(static_cast<std::int32_t>(step))}};
}

/// Replaces the checksum of an index by that of its contents.
std::string resealed(const std::string& text) {
  const std::size_t at = text.rfind(",\"checksum\":\"");
  if (at == std::string::npos) return text;
  return fmt::format("{},\"checksum\":\"{:016x}\"}}\n", text.substr(0, at),
                     XXH3_64bits(text.data(), at));
}

/// A fingerprint of all arrays as text. It differs for any two different states.
std::string text_of(const Tree& tree) {
  std::vector<checkpoint::NamedArray> arrays;
  for (const auto& [name, x] : tree) arrays.push_back({name, x});
  return checkpoint::fingerprint(arrays);
}

class Fuzz {
 public:
  explicit Fuzz(fs::path folder) : folder_(std::move(folder)), tree_(saved_tree()) {
    checkpoint::save((folder_ / "good").string(), tree_, {.step = 7, .metadata = {{"a", "b"}}});
    for (const auto& entry : fs::directory_iterator(folder_ / "good")) {
      good_[entry.path().filename().string()] = read_file(entry.path());
      names_.push_back(entry.path().filename().string());
    }
    std::sort(names_.begin(), names_.end());
    fs::create_directories(folder_ / "run");
    for (const std::int64_t step : kSteps) {
      checkpoint::save(checkpoint::step_path((folder_ / "run").string(), step), saved_tree(step),
                       {.step = step});
      texts_[step] = text_of(saved_tree(step));
    }
  }

  /// What is wrong; empty if nothing is.
  std::string fault_of(std::uint64_t seed, Counts& counts) const {
    Random random(seed);
    if (random.chance(30)) return fault_of_file(random, counts);
    return random.chance(20) ? fault_of_run(random, counts) : fault_of_folder(random, counts);
  }

 private:
  std::string mutated(const std::string& name, Random& random) const {
    std::string text = good_.at(name);
    for (std::int64_t n = random.between(1, 4); n > 0; --n)
      text = tessera::fuzz::mutated(text, good_.at(random.choose(names_)), random);
    return text;
  }

  std::string fault_of_folder(Random& random, Counts& counts) const {
    const fs::path path = folder_ / "bad";
    fs::remove_all(path);
    fs::create_directories(path);
    const std::string victim = random.chance(60) ? "checkpoint.json" : random.choose(names_);
    std::string text = mutated(victim, random);
    const bool is_sealed = victim == "checkpoint.json" && random.chance(90);
    if (is_sealed) text = resealed(text);
    for (const std::string& name : names_)
      write_file(path / name, name == victim ? text : good_.at(name));
    checkpoint::verify(path.string());
    try {
      const Tree found = checkpoint::restore(path.string(), tree_);
      ++counts.restored;
      // An index with the right checksum may legally swap arrays.
      if (!is_sealed && text_of(found) != text_of(tree_)) return "gives other values";
    } catch (const tessera::UserError&) {
      ++counts.refused;
      counts.resealed += is_sealed ? 1 : 0;
    }
    return {};
  }

  std::string fault_of_file(Random& random, Counts& counts) const {
    const fs::path path = folder_ / "bad.safetensors";
    std::string text = mutated(random.choose(names_), random);
    // With a header size that fits the file, more of the texts reach the parser of the header.
    const std::size_t end = text.rfind('}');
    if (text.size() > 8 && end != std::string::npos && end > 8 && random.chance(50)) {
      const std::uint64_t size = end - 7;
      std::memcpy(text.data(), &size, sizeof(size));
    }
    write_file(path, text);
    try {
      for (const auto& item : checkpoint::read_safetensors(path.string()))
        tessera::checkpoint::fingerprint({item});
      ++counts.read;
    } catch (const tessera::UserError&) {
      ++counts.rejected;
    }
    return {};
  }

  /// Renames a step, swaps two steps or two files of them, or truncates or removes a file or
  /// folder.
  void disturb(const fs::path& run, std::int64_t& renamed, Random& random) const {
    const auto choose = [&](const fs::path& folder) {
      std::vector<fs::path> paths;
      for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
      std::sort(paths.begin(), paths.end());
      return paths.empty() ? fs::path() : random.choose(paths);
    };
    const auto exchange = [&](const fs::path& a, const fs::path& b) {
      if (a == b || a.empty() || b.empty()) return;
      fs::rename(a, run / "between");
      fs::rename(b, a);
      fs::rename(run / "between", b);
    };
    const fs::path one = choose(run), other = choose(run);
    if (!fs::is_directory(one) || !fs::is_directory(other)) return;
    const fs::path file = choose(one);
    switch (random.pick(6)) {
      case 0:
        fs::rename(one, checkpoint::step_path(run.string(), ++renamed));
        break;
      case 1:
        exchange(one, other);
        break;
      case 2:
        exchange(file, choose(other));
        break;
      case 3:
        if (!file.empty() && fs::exists(other / file.filename()))
          exchange(file, other / file.filename());
        break;
      case 4:
        if (!file.empty()) write_file(file, read_file(file).substr(0, random.pick(4000)));
        break;
      default:
        if (file.empty() || random.chance(20)) {
          fs::remove_all(one);
          if (random.chance(50)) write_file(one, "no folder");
        } else {
          fs::remove(file);
        }
    }
  }

  std::string fault_of_run(Random& random, Counts& counts) const {
    const fs::path run = folder_ / "disturbed";
    fs::remove_all(run);
    fs::copy(folder_ / "run", run, fs::copy_options::recursive);
    std::int64_t renamed = 20;
    for (std::int64_t n = random.between(0, 3); n > 0; --n) disturb(run, renamed, random);
    const std::vector<std::int64_t> steps = checkpoint::steps_in(run.string());
    for (const std::int64_t step : steps) {
      const std::string path = checkpoint::step_path(run.string(), step);
      const bool is_whole = checkpoint::verify(path).empty();
      try {
        const Tree found = checkpoint::restore(path, tree_);
        ++counts.kept;
        if (!is_whole) return "restores what is not whole";
        if (!texts_.contains(step) || text_of(found) != texts_.at(step))
          return "gives the values of another step";
      } catch (const tessera::UserError&) {
        ++counts.lost;
        if (is_whole) return "refuses what is whole";
      }
    }
    // Whatever the damage, the run can go on.
    checkpoint::Checkpointer next(run.string(), {.is_async = false});
    next.save(40, tree_);
    if (next.latest() != 40 || text_of(next.restore(40, tree_)) != text_of(tree_))
      return "cannot save the next step";
    return {};
  }

  static constexpr std::array<std::int64_t, 3> kSteps = {3, 4, 11};

  fs::path folder_;
  Tree tree_;
  std::map<std::int64_t, std::string> texts_;  // of the steps of `run`
  Files good_;
  std::vector<std::string> names_;
};

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_checkpoint";
  const auto options =
      tessera::fuzz::read_options(program, argc, argv, {.cases = 1'000'000'000, .seconds = 30});
  const fs::path folder =
      fs::temp_directory_path() / ("tessera_fuzz_checkpoint." + std::to_string(getpid()));
  fs::create_directories(folder);
  const Fuzz fuzz(folder);
  tessera::fuzz::limit_memory(kMostMemory);
  Counts counts;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase, [&](std::uint64_t seed) {
        std::string fault;
        try {
          fault = fuzz.fault_of(seed, counts);
        } catch (const std::exception& error) {
          fault = std::string("throws what is no UserError: ") + error.what();
        }
        if (!fault.empty()) fmt::print("FAILED, seed {}: {}\n", seed, fault);
        return fault.empty();
      });
  if (is_good) fs::remove_all(folder);
  fmt::print("checkpoints: {} restored, {} refused, {} of them with a right checksum\n",
             counts.restored, counts.refused, counts.resealed);
  fmt::print("safetensors: {} read, {} refused\n", counts.read, counts.rejected);
  fmt::print("steps of runs: {} restored, {} refused\n", counts.kept, counts.lost);
  const int total = counts.refused + counts.restored + counts.rejected + counts.read;
  const bool is_covered =
      total < kCasesToJudge ||
      (counts.restored > 0 && counts.refused > total / 20 && counts.resealed > total / 20 &&
       counts.read > 0 && counts.rejected > total / 20 && counts.kept > total / 20 &&
       counts.lost > total / 40);
  if (!is_covered) fmt::print("FAILED: nearly all files end alike\n");
  return is_good && is_covered ? 0 : 1;
}
