// checkpoint_bench FOLDER [MIB]: measures the GB/s of saving and restoring MIB MiB in a folder, and
// of plain writes and reads of the same number of bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/random.h>
#include <tessera/tessera.h>

namespace {

namespace fs = std::filesystem;
namespace checkpoint = tessera::checkpoint;

using tessera::Array;
using Tree = std::map<std::string, Array>;

constexpr int kRounds = 5;

/// The speed in the best of a few rounds.
double gb_per_second(std::int64_t bytes, const std::function<void()>& body) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) * 1e-9 / elapsed.count());
  }
  return best;
}

/// Writes a file as `cp` does, but from memory; flushes it if `is_synced`.
void write_plainly(const std::string& path, const std::vector<char>& bytes, bool is_synced) {
  fs::remove(path);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0666);
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    if (write(file, bytes.data() + at, std::min(kPiece, bytes.size() - at)) <= 0) std::abort();
  }
  if (is_synced) fsync(file);
  close(file);
}

void read_plainly(const std::string& path, std::vector<char>& bytes) {
  const int file = open(path.c_str(), O_RDONLY);
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count =
        read(file, bytes.data() + at, std::min(bytes.size() - at, std::size_t{1} << 20));
    if (count <= 0) std::abort();
    at += static_cast<std::size_t>(count);
  }
  close(file);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Measures how much CPU time of the training thread a save in the background costs: the call, and
/// the copies that the next step makes because its donated arrays are being saved.
void measure_stall(const std::string& folder, Tree tree) {
  tessera::set_num_threads(1);
  auto step = tessera::jit(
      [](Tree state) {
        for (auto& [name, x] : state) x = x * 0.999F + 0.001F;
        return state;
      },
      {.donate_argnums = {0}});
  checkpoint::Checkpointer steps(folder, {.keep_latest = 1});
  double alone = 1e9;
  double call = 1e9;
  double after = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    double start = thread_seconds();
    tree = step(std::move(tree));
    alone = std::min(alone, thread_seconds() - start);
    start = thread_seconds();
    steps.save(round, tree);
    call = std::min(call, thread_seconds() - start);
    start = thread_seconds();
    tree = step(std::move(tree));
    after = std::min(after, thread_seconds() - start);
    steps.wait();
  }
  std::printf("%-44s %6.1f ms, and %.1f ms in the step after it\n", "a save in the background",
              call * 1e3, (after - alone) * 1e3);
}

void show(const char* what, double rate) { std::printf("%-44s %6.2f GB/s\n", what, rate); }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  const std::string folder = argv[1];
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512;
  const tessera::Mesh mesh = tessera::make_mesh({{"data", 8}});
  const tessera::Mesh grid = tessera::make_mesh({{"data", 2}, {"model", 4}});
  const auto on = [](const tessera::Mesh& m, tessera::PartitionSpec spec) {
    return tessera::Shardings(tessera::NamedSharding(m, std::move(spec)));
  };
  Tree tree;
  const std::int64_t each = 16;
  for (std::int64_t i = 0; i < mib / each; ++i) {
    const Array x = tessera::random::normal(tessera::Key(i), {each * 256, 1024});
    tree["w" + std::to_string(i)] = x;
  }
  tree = device_put(tree, on(mesh, {"data"}));
  const std::int64_t bytes = mib << 20;
  std::vector<char> plain(static_cast<std::size_t>(bytes), 'x');
  const std::string path = folder + "/checkpoint_bench";
  const std::string file = folder + "/checkpoint_bench.plain";
  show("written plainly", gb_per_second(bytes, [&] { write_plainly(file, plain, false); }));
  show("written plainly, fsync", gb_per_second(bytes, [&] { write_plainly(file, plain, true); }));
  show("cp", gb_per_second(bytes, [&] {
         fs::remove(file + ".copy");
         if (std::system(("cp " + file + " " + file + ".copy").c_str()) != 0) std::abort();
       }));
  show("saved, 8 files, fsync", gb_per_second(bytes, [&] {
         fs::remove_all(path);
         checkpoint::save(path, tree);
       }));
  show("read plainly", gb_per_second(bytes, [&] { read_plainly(file, plain); }));
  show("restored as it was", gb_per_second(bytes, [&] { checkpoint::restore(path, tree); }));
  show("restored by columns", gb_per_second(bytes, [&] {
         checkpoint::restore(path, tree, on(grid, {tessera::none, "model"}));
       }));
  show("verified", gb_per_second(bytes, [&] { checkpoint::verify(path); }));
  fs::remove_all(path);
  measure_stall(path, std::move(tree));
  fs::remove_all(path);
  fs::remove(file);
  fs::remove(file + ".copy");
  return 0;
}
