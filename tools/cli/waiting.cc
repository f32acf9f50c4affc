#include "waiting.h"

#include <cstdio>
#include <utility>

#include <tessera/engine.h>

namespace tessera::cli {

Waiting::Waiting(std::string what, std::chrono::milliseconds first) : what_(std::move(what)) {
  // With one process per device only the first one prints.
  if (process_index() == 0) teller_ = std::thread([this, first] { tell(first); });
}

Waiting::~Waiting() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (teller_.joinable()) teller_.join();
}

void Waiting::tell(std::chrono::milliseconds passed) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;; passed *= 2) {
    if (changed_.wait_until(lock, begin + passed, [this] { return is_over_; })) return;
    const double seconds = std::chrono::duration<double>(passed).count();
    std::fprintf(stderr, "%s: %g s so far\n", what_.c_str(), seconds);
    std::fflush(stderr);
  }
}

}  // namespace tessera::cli
