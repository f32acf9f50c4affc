#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/save.h"

namespace tessera::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::size_t kDigits = 8;

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kPrefix) + std::string(kDigits - std::min(kDigits, digits.size()), '0') +
         digits;
}

/// Holds the folder against other processes as long as it lives.
class FolderLock {
 public:
  FolderLock(const std::string& folder, const std::source_location& where)
      : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw RuntimeFault("cannot write " + folder + ": " + std::strerror(errno));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    close(descriptor_);
    throw UserError({.what = "Checkpointer: another process saves in this folder",
                     .where = where,
                     .found = folder + ", which is locked",
                     .wanted = "a folder for each run",
                     .cure = "wait until it has ended, or choose another folder"});
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// Removes what processes that were killed have left.
void clean(const std::string& folder) {
  std::vector<std::string> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = name.starts_with("." + std::string(kPrefix)) &&
                         (name.ends_with(".unfinished") || name.ends_with(".removed"));
    if (is_ours) leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) remove_quietly(path);
}

/// Of a checkpoint without one, and where it is no number: the worst.
double metric_of(const std::string& path) {
  try {
    const double metric = read_index(path).metric.value_or(INFINITY);
    return std::isnan(metric) ? INFINITY : metric;
  } catch (const Error&) {
    return INFINITY;
  }
}

/// The steps from the least metric to the greatest; of equal ones the later first.
std::vector<std::int64_t> best_first(const std::string& folder,
                                     const std::vector<std::int64_t>& steps) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (const std::int64_t step : steps)
    order.emplace_back(metric_of(step_path(folder, step)), -step);
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> result;
  for (const auto& [metric, negative] : order) {
    if (metric < INFINITY) result.push_back(-negative);
  }
  return result;
}

void prune(const std::string& folder, const CheckpointerOptions& options) {
  if (options.keep_latest == 0 && options.keep_best == 0) return;
  const std::vector<std::int64_t> steps = steps_in(folder);
  std::vector<std::int64_t> best;
  if (options.keep_best > 0) best = best_first(folder, steps);
  best.resize(std::min(best.size(), static_cast<std::size_t>(options.keep_best)));
  // The last one is what a run resumes from, also where only the best are kept.
  const std::int64_t latest = std::max<std::int64_t>(1, options.keep_latest);
  const std::int64_t removed = std::max<std::int64_t>(0, std::ssize(steps) - latest);
  for (std::int64_t i = 0; i < removed; ++i) {
    const std::int64_t step = steps[static_cast<std::size_t>(i)];
    if (std::find(best.begin(), best.end(), step) != best.end()) continue;
    // It goes in one step, so that no reader finds half of it.
    const std::string path = step_path(folder, step);
    const std::string gone = hidden_name(path, "removed");
    std::error_code error;
    fs::rename(path, gone, error);
    if (error) throw RuntimeFault("cannot remove " + path + ": " + error.message());
    remove_quietly(gone);
  }
}

}  // namespace

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t step = -1;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (step >= 0 && name == step_name(step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string step_path(const std::string& folder, std::int64_t step) {
  return plain_path(folder) + "/" + step_name(step);
}

struct Checkpointer::State {
  std::string folder;
  CheckpointerOptions options;
  std::optional<FolderLock> lock;
  std::thread writer;
  std::exception_ptr failure;  // of the writer, once it has been joined

  void write(const Snapshot& snapshot, int threads) const {
    write_checkpoint(local_disk(), snapshot, step_path(folder, snapshot.options.step), threads);
    if (process_index() == 0) prune(folder, options);
  }
};

Checkpointer::Checkpointer(std::string folder, const CheckpointerOptions& options,
                           std::source_location where)
    : state_(std::make_unique<State>()) {
  state_->folder = plain_path(std::move(folder));
  state_->options = options;
  if (process_index() != 0) return;
  std::error_code error;
  fs::create_directories(state_->folder, error);
  if (error) {
    throw RuntimeFault("cannot make the folder " + state_->folder + ": " + error.message());
  }
  state_->lock.emplace(state_->folder, where);
  clean(state_->folder);
}

Checkpointer::~Checkpointer() {
  if (state_->writer.joinable()) state_->writer.join();
}

void Checkpointer::save_arrays(const std::vector<NamedArray>& arrays, SaveOptions options,
                               std::source_location where) {
  wait();
  if (options.step < 0) {
    throw UserError({.what = "Checkpointer: the number of a step is negative",
                     .where = where,
                     .found = std::to_string(options.step),
                     .wanted = "the number of steps done, 0 or more",
                     .cure = "count steps from 0"});
  }
  Snapshot taken = snapshot(arrays, std::move(options), where);
  if (!state_->options.is_async || process_count() > 1) {
    state_->write(taken, num_threads());
    return;
  }
  auto kept = std::make_shared<Snapshot>(std::move(taken));
  const auto write = [state = state_.get(), kept] {
    try {
      state->write(*kept, 1);
    } catch (...) {
      state->failure = std::current_exception();
    }
    kept->arrays.clear();
  };
  try {
    state_->writer = std::thread(write);
  } catch (const std::exception&) {
    write();  // the machine has no room for a thread
  }
}

void Checkpointer::wait() {
  if (state_->writer.joinable()) state_->writer.join();
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
}

std::vector<std::int64_t> Checkpointer::steps() const { return steps_in(state_->folder); }

std::optional<std::int64_t> Checkpointer::latest() const {
  const std::vector<std::int64_t> all = steps();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<std::int64_t> Checkpointer::best() const {
  const std::vector<std::int64_t> order = best_first(state_->folder, steps());
  return order.empty() ? std::nullopt : std::optional(order.front());
}

std::string Checkpointer::path(std::int64_t step) const { return step_path(state_->folder, step); }

}  // namespace tessera::checkpoint
