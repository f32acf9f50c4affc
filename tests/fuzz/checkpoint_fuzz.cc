// tessera_fuzz_checkpoint [--seed S] [--cases N] [--seconds T]
//
// Files that are nearly those of a checkpoint, and indices whose checksum is right while what they
// say is not, either give the arrays that were saved or throw UserError. Exit code 1: something
// else happened, or all files end alike.
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

constexpr int kCasesToJudge = 1000;  // fewer say nothing about coverage
constexpr unsigned kSecondsPerCase = 60;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;

using Tree = std::map<std::string, Array>;
using Files = std::map<std::string, std::string>;

struct Counts {
  int refused = 0, restored = 0;  // checkpoints
  int resealed = 0;               // those refused although their checksum was right
  int rejected = 0, read = 0;     // single files
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  fs::remove(path);  // file systems write back at once what is truncated and written again
  std::ofstream(path, std::ios::binary) << text;
}

Tree saved_tree() {
  const tessera::Mesh mesh = tessera::make_mesh({{"a", 3}});
  const auto split = [&](const Array& x) {
    return device_put(x, tessera::NamedSharding(mesh, tessera::P{"a"}));
  };
  return {{"params/w", split(tessera::arange(0, 28, 1, tessera::DType::f32))},
          {"params/b", tessera::array<bool>({true, false, true}, {3})},
          {"step", tessera::scalar(7)}};
}

/// Gives an index the checksum of what it says.
std::string resealed(const std::string& text) {
  const std::size_t at = text.rfind(",\"checksum\":\"");
  if (at == std::string::npos) return text;
  return fmt::format("{},\"checksum\":\"{:016x}\"}}\n", text.substr(0, at),
                     XXH3_64bits(text.data(), at));
}

/// The elements of all arrays as text, which tells any two states apart.
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
  }

  /// What is wrong; empty: nothing.
  std::string fault_of(std::uint64_t seed, Counts& counts) const {
    Random random(seed);
    return random.chance(30) ? fault_of_file(random, counts) : fault_of_folder(random, counts);
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
      // A right checksum lets an index put arrays in each other's places.
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
    // A size that fits what follows lets more of them reach the reader of the header.
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

  fs::path folder_;
  Tree tree_;
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
  const int total = counts.refused + counts.restored + counts.rejected + counts.read;
  const bool is_covered =
      total < kCasesToJudge ||
      (counts.restored > 0 && counts.refused > total / 20 && counts.resealed > total / 20 &&
       counts.read > 0 && counts.rejected > total / 20);
  if (!is_covered) fmt::print("FAILED: nearly all files end alike\n");
  return is_good && is_covered ? 0 : 1;
}
