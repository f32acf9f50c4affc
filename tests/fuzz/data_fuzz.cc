// tessera_fuzz_data [--seed S] [--cases N] [--seconds T]
//
// Mutated data files: pickles, .npy arrays, ArrayRecord files and CSV schedules. Each must be read
// completely or refused with UserError. Exit code 1: something else happened, or hardly any file
// was read.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <unistd.h>

#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/schedule.h>

#include "checkpoint/json.h"
#include "data/highway_hash.h"
#include "foreign/numpy_pickle.h"
#include "tests/data/cifar_folder.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/run_cases.h"
#include "tests/peers/golden.h"

namespace {

using tessera::fuzz::Random;

constexpr int kCasesToJudge = 1000;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 60;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 31;
// Layout of ArrayRecord files whose records are in the chunks of the first block.
constexpr std::size_t kFirstChunk = 64;
constexpr std::size_t kBlock = 65536;
constexpr std::size_t kChunkHeader = 40;

struct Format {
  std::string name;
  std::vector<std::string> files;
  std::function<void(const std::string& bytes)> read;
  int accepted = 0, refused = 0;
};

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// A temporary file that only this process uses.
std::string path_of(const char* name) {
  return (std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))).string();
}

void read_all(const tessera::data::Dataset& dataset) {
  constexpr std::int64_t kMost = 200;
  for (std::int64_t i = 0; i < std::min(dataset.size(), kMost); ++i) dataset.read(i);
  if (dataset.size() > 0) dataset.read(dataset.size() - 1);
}

void read_pickle(const std::string& bytes) {
  try {
    const tessera::foreign::Pickle pickle = tessera::foreign::read_pickle(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    const tessera::foreign::Value* const data = find(*pickle.result, "data");
    const auto array = tessera::foreign::numpy_array(data == nullptr ? *pickle.result : *data);
    if (!array) throw tessera::checkpoint::BadText("there is no array");
    std::uint64_t sum = 0;
    for (const std::uint8_t byte : array->elements.bytes) sum += byte;
    // Use the sum, so that all bytes are read.
    if (sum > 255 * array->elements.bytes.size())
      throw tessera::InternalError("a byte is larger than 255");
  } catch (const tessera::checkpoint::BadText& error) {
    throw tessera::UserError({.what = error.what(), .cure = "copy the file again"});
  }
}

template <typename F>
void read_file(const char* name, const std::string& bytes, F read) {
  const std::string path = path_of(name);
  tessera::testing::write_file(path, bytes);
  read(path);
}

std::vector<Format> formats() {
  const nlohmann::json& golden = tessera::data_golden();
  std::vector<Format> all(4);
  all[0].name = "pickle";
  all[0].files = {tessera::testing::cifar_python(0, 1)};
  for (const char* kind : {"pickles", "pickled_arrays"}) {
    for (const auto& item : golden.at(kind)) all[0].files.push_back(from_hex(item.at("bytes")));
  }
  all[0].read = read_pickle;
  all[1].name = "npy";
  for (const auto& item : golden.at("npys")) all[1].files.push_back(from_hex(item.at("bytes")));
  all[1].read = [](const std::string& bytes) {
    read_file("fuzz_npy", bytes,
              [](const std::string& path) { read_all(tessera::data::npy(path)); });
  };
  all[2].name = "array_record";
  for (const auto& item : golden.at("array_records")) {
    std::string bytes(item.at("size_bytes").get<std::size_t>(), '\0');
    if (bytes.size() > 2 * kBlock) continue;
    for (const auto& part : item.at("parts")) {
      const std::string filled = from_hex(part[1]);
      bytes.replace(part[0].get<std::size_t>(), filled.size(), filled);
    }
    all[2].files.push_back(bytes);
  }
  all[2].read = [](const std::string& bytes) {
    read_file("fuzz_array_record", bytes,
              [](const std::string& path) { read_all(tessera::data::array_record(path)); });
  };
  all[3].name = "csv";
  for (const std::int64_t ranks : {1, 2, 4}) {
    all[3].files.push_back(to_csv(tessera::Std1F1B{.num_stages = ranks}.tasks(4)));
    all[3].files.push_back(to_csv(tessera::ZeroBubble{.num_stages = ranks}.tasks(3)));
  }
  all[3].read = [](const std::string& bytes) { tessera::read_schedule(bytes); };
  return all;
}

/// One change of a few bytes; `other` is a file of the same format, from which bytes may be taken.
void change(std::string& bytes, const std::string& other, Random& random) {
  // Prefer the beginning of the file, where most of its structure is.
  const auto place = [&](const std::string& in) {
    return random.pick(random.chance(60) ? std::min<std::size_t>(in.size(), 700) : in.size());
  };
  if (bytes.empty()) bytes = "x";
  const std::size_t at = place(bytes);
  const auto any = static_cast<char>(random.pick(256));
  switch (random.pick(6)) {
    case 0:
      bytes[at] = any;
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.pick(8)));
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.insert(at, random.pick(20) + 1, any);
      break;
    case 4:
      bytes.erase(at, random.pick(20) + 1);
      break;
    default: {
      const std::size_t from = place(other);
      bytes.replace(at, random.pick(64), other, from, random.pick(64));
    }
  }
}

/// Recomputes the checksums of an ArrayRecord file, so that the damage behind them is reached.
void repair(std::string& bytes, Random& random) {
  bytes.resize(2 * kBlock);
  const auto hash = [&](std::size_t at, std::size_t count) {
    return tessera::data::highway_hash(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()) + at, count});
  };
  const auto repair_chunk = [&](std::size_t at) {
    std::uint64_t size = 0;
    std::memcpy(&size, &bytes[at + 8], 8);
    const std::size_t data = at + kChunkHeader;
    if (size <= kBlock && data + size <= bytes.size()) {
      const std::uint64_t of_data = hash(data, size);
      std::memcpy(&bytes[at + 16], &of_data, 8);
    }
    const std::uint64_t of_header = hash(at + 8, kChunkHeader - 8);
    std::memcpy(&bytes[at], &of_header, 8);
    return data + size;
  };
  std::size_t at = kFirstChunk;
  for (int i = 0; i < 4 && at + kChunkHeader < kBlock; ++i) at = repair_chunk(at);
  if (random.chance(80)) repair_chunk(kBlock + 24);
}

bool check(std::uint64_t seed, std::vector<Format>& all) {
  Random random(seed);
  Format& format = all[random.pick(all.size())];
  std::string bytes = random.choose(format.files);
  for (std::int64_t n = random.between(0, 4); n > 0; --n) {
    change(bytes, random.choose(format.files), random);
  }
  if (format.name == "array_record" && random.chance(80)) repair(bytes, random);
  try {
    format.read(bytes);
    ++format.accepted;
  } catch (const tessera::UserError&) {
    ++format.refused;
  } catch (const std::exception& error) {
    fmt::print("FAILED, seed {}: a file as {} throws what is no UserError: {}\n", seed, format.name,
               error.what());
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_data";
  const auto options =
      tessera::fuzz::read_options(program, argc, argv, {.cases = 1'000'000'000, .seconds = 60});
  std::vector<Format> all = formats();
  tessera::fuzz::limit_memory(kMostMemory);
  const bool is_good = tessera::fuzz::run_cases(
      program, options, kSecondsPerCase, [&](std::uint64_t seed) { return check(seed, all); });
  bool is_covered = true;
  for (const Format& format : all) {
    fmt::print("{}: {} read, {} refused\n", format.name, format.accepted, format.refused);
    const int total = format.accepted + format.refused;
    is_covered &=
        total < kCasesToJudge || (format.accepted > total / 20 && format.refused > total / 20);
  }
  for (const char* name : {"fuzz_npy", "fuzz_array_record"}) std::filesystem::remove(path_of(name));
  if (!is_covered) fmt::print("FAILED: nearly all files end alike\n");
  return is_good && is_covered ? 0 : 1;
}
