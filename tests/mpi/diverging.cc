// A program of several ranks. After some steps, one rank no longer does the same as the others:
//
//   mpirun -n RANKS tessera_diverging KIND RANK STEP
//
// KIND is what that rank does. none: the same as the others; extra: one more collective; fewer: one
// collective less; other: another collective instead; ends: it ends early; throws: it throws an
// error; slow: it sleeps for twice the timeout; halts: it stops after it has left the others.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <tessera/tessera.h>

using namespace tessera;

namespace {

constexpr double kTimeout = 2;

class Program final : public IsolatedProgram {
 public:
  Program(std::string kind, int rank, int step)
      : kind_(std::move(kind)), rank_(rank), step_(step) {}

  void run() override {
    has_rank_ = process_index() == rank_;
    const use_mesh scope(make_mesh({{"data", process_count()}}));
    const Array x = device_put(ones({std::int64_t{4} * process_count()}), P{"data"});
    auto step = jit([](Array w, Array values) { return w + sum(values) * 0.5; });
    Array w = device_put(zeros({}), P{});
    for (int i = 0; i < 20; ++i) {
      const bool strikes = process_index() == rank_ && i == step_;
      if (strikes && kind_ == "ends") return;
      if (strikes && kind_ == "throws") throw std::runtime_error("an error of one rank");
      if (strikes && kind_ == "slow") {
        std::this_thread::sleep_for(std::chrono::duration<double>(2 * kTimeout));
      }
      if (strikes && kind_ == "extra") process_allgather(1);
      if (strikes && kind_ == "other")
        process_allgather(1);
      else if (!strikes || kind_ != "fewer")
        w = step(w, x);
    }
    if (process_index() == 0) std::printf("w = %g\n", w.item<double>());
  }
  int report(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& what) {
      std::fprintf(stderr, "rank %d: %s\n", process_index(), what.what());
    }
    return 2;
  }
  int report_again(const std::exception_ptr& /*error*/) override { return 2; }
  bool halts() const { return kind_ == "halts" && has_rank_; }

 private:
  std::string kind_;
  int rank_;
  int step_;
  bool has_rank_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  Program program(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  const int code = run_launched(program, {.timeout_s = kTimeout});
  if (program.halts()) raise(SIGSTOP);
  return code;
}
