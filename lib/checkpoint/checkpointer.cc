#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/processes.h"
#include "checkpoint/save.h"

namespace tessera::checkpoint {

namespace {

/// Locks the folder against other processes during its lifetime.
class FolderLock {
 public:
  FolderLock(const std::string& folder, const std::source_location& where)
      : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw RuntimeFault("cannot write " + folder + ": " + std::strerror(errno));
    int result = flock(descriptor_, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR) result = flock(descriptor_, LOCK_EX | LOCK_NB);
    if (result == 0) return;
    const int reason = errno;
    close(descriptor_);
    if (reason != EWOULDBLOCK)
      throw RuntimeFault("cannot lock " + folder + ": " + std::strerror(reason));
    throw UserError({.what = "Checkpointer: another process is saving in this folder",
                     .where = where,
                     .found = folder + ", which is locked",
                     .wanted = "a separate folder for each run",
                     .cure = "wait until that process has ended, or choose another folder"});
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// Removes the unfinished and half-removed checkpoints that killed processes left behind.
void clean(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    for (const char* state : {"unfinished", "removed"}) {
      const std::string end = "." + std::string(state);
      if (!name.starts_with('.') || !name.ends_with(end) || name.size() <= end.size()) continue;
      if (step_of(name.substr(1, name.size() - 1 - end.size())))
        remove_quietly(folder + "/" + name);
    }
  }
}

/// The metric of a checkpoint, smaller is better. Infinity if it has none, if the metric is NaN, or
/// if the index is damaged.
double metric_of(const std::string& path) {
  try {
    const double metric = read_index(path).metric.value_or(INFINITY);
    return std::isnan(metric) ? INFINITY : metric;
  } catch (const UserError&) {
    return INFINITY;
  }
}

/// The steps with the smallest metric first; of steps with equal metrics, the later first. Leaves
/// out those whose metric is infinite.
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

void remove_step(const std::string& folder, std::int64_t step) {
  // Rename it first, which is atomic: no reader ever finds half of it, not even after a power
  // failure.
  const std::string path = step_path(folder, step);
  const std::string gone = hidden_name(path, "removed");
  remove_quietly(gone);
  if (std::rename(path.c_str(), gone.c_str()) != 0)
    throw RuntimeFault("cannot remove " + path + ": " + std::strerror(errno));
  local_disk().sync_folder(folder, path);
  remove_quietly(gone);
}

/// Removes what the options do not keep, except `named` and `written`, the step that was just
/// saved.
void remove_old(const std::string& folder, const CheckpointerOptions& options, std::int64_t named,
                std::int64_t written) {
  if (options.keep_latest == 0 && options.keep_best == 0) return;
  const std::vector<std::int64_t> steps = steps_in(folder);
  std::vector<std::int64_t> best;
  if (options.keep_best > 0) best = best_first(folder, steps);
  best.resize(std::min(best.size(), static_cast<std::size_t>(options.keep_best)));
  // Always keep the last step, even if only the best are wanted: a run resumes from it.
  const std::int64_t latest = std::max<std::int64_t>(1, options.keep_latest);
  const std::int64_t removed = std::max<std::int64_t>(0, std::ssize(steps) - latest);
  for (std::int64_t i = 0; i < removed; ++i) {
    const std::int64_t step = steps[static_cast<std::size_t>(i)];
    const bool is_kept =
        step == named || step == written || std::find(best.begin(), best.end(), step) != best.end();
    if (!is_kept) remove_step(folder, step);
  }
}

}  // namespace

std::vector<std::int64_t> steps_in(const std::string& folder) {
  const PathKind kind = kind_of(folder);
  if (kind == PathKind::file || kind == PathKind::other) {
    throw UserError({.what = "checkpoint: the path is not a folder",
                     .found = folder + ", which is a file",
                     .wanted = "the folder of a run",
                     .cure = "give the folder that holds the checkpoints, not a file"});
  }
  std::vector<std::int64_t> steps;
  if (kind == PathKind::none) return steps;
  for (const std::string& name : names_in(folder)) {
    if (const std::optional<std::int64_t> step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> latest_step(const std::string& folder) {
  std::optional<std::int64_t> latest;
  all_or_none([&] {
    const std::vector<std::int64_t> steps = steps_in(folder);
    if (!steps.empty()) latest = steps.back();
  });
  agree_on(latest, folder);
  return latest;
}

std::string step_path(const std::string& folder, std::int64_t step) {
  return plain_path(folder) + "/" + step_name(step);
}

struct Checkpointer::State {
  std::string folder;
  CheckpointerOptions options;
  std::optional<FolderLock> lock;
  std::atomic<std::int64_t> kept{-1};  // never pruned; atomic because the writer thread reads it
  std::int64_t written = -1;           // the step of the last save; changes only between saves
  std::thread writer;                  // of the files of this process
  std::atomic<bool> has_written{false};
  std::exception_ptr failure;  // set by the writer thread; read it after joining
  /// With several processes: the save that they finish together.
  std::unique_ptr<CheckpointWriter> unfinished;

  std::string path_of(const Snapshot& snapshot) const {
    return step_path(folder, snapshot.options.step);
  }
  void remove_old_ones() const {
    if (process_index() == 0) remove_old(folder, options, kept, written);
  }
  void write(const Snapshot& snapshot, int threads) const {
    write_checkpoint(local_disk(), snapshot, path_of(snapshot), threads);
    remove_old_ones();
  }
  /// A single process needs no other to finish.
  void write_alone(Snapshot& snapshot) noexcept {
    try {
      write(snapshot, 1);
    } catch (...) {
      failure = std::current_exception();
    }
    snapshot.arrays.clear();
  }
  /// A collective.
  void finish() {
    if (writer.joinable()) writer.join();
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
    if (!unfinished) return;
    // Whatever happens, this save has ended.
    const std::unique_ptr<CheckpointWriter> ended = std::move(unfinished);
    ended->finish();
    remove_old_ones();
  }
};

Checkpointer::Checkpointer(std::string folder, const CheckpointerOptions& options,
                           std::source_location where)
    : state_(std::make_unique<State>()) {
  state_->folder = plain_path(std::move(folder));
  state_->options = options;
  if (process_index() != 0) return;
  make_folders(local_disk(), state_->folder);
  state_->lock.emplace(state_->folder, where);
  clean(state_->folder);
}

Checkpointer::~Checkpointer() {
  // Not all processes may get here, so they cannot finish a save together.
  if (state_->writer.joinable()) state_->writer.join();
}

void Checkpointer::save_arrays(const std::vector<NamedArray>& arrays, SaveOptions options,
                               std::source_location where) {
  wait();
  if (options.step < 0) {
    throw UserError({.what = "Checkpointer: the step number is negative",
                     .where = where,
                     .found = std::to_string(options.step),
                     .wanted = "the number of steps done, 0 or more",
                     .cure = "count steps from 0"});
  }
  Snapshot taken = snapshot(arrays, std::move(options), where);
  state_->written = taken.options.step;
  if (!state_->options.is_async) {
    state_->write(taken, num_threads());
    return;
  }
  state_->has_written = false;
  std::function<void()> write;
  if (process_count() > 1) {
    const std::string path = state_->path_of(taken);
    state_->unfinished = std::make_unique<CheckpointWriter>(local_disk(), std::move(taken), path);
    write = [state = state_.get()] { state->unfinished->write_files(1); };
  } else {
    write = [state = state_.get(), kept = std::make_shared<Snapshot>(std::move(taken))] {
      state->write_alone(*kept);
    };
  }
  const auto run = [state = state_.get(), write] {
    write();
    state->has_written = true;
  };
  try {
    state_->writer = std::thread(run);
  } catch (const std::exception&) {
    run();  // no thread could be started: write in this one
  }
}

void Checkpointer::keep(std::int64_t step) { state_->kept = step; }

void Checkpointer::prune() {
  wait();
  state_->remove_old_ones();
}

void Checkpointer::discard_after(std::int64_t step) {
  wait();
  all_or_none([&] {
    if (process_index() != 0) return;
    // From the last one down: if this is interrupted, the later steps are gone first.
    std::vector<std::int64_t> later = steps();
    std::erase_if(later, [&](std::int64_t saved) { return saved <= step; });
    for (auto at = later.rbegin(); at != later.rend(); ++at) remove_step(state_->folder, *at);
  });
}

void Checkpointer::wait() { state_->finish(); }

void Checkpointer::finish_if_written() {
  if (!state_->unfinished) return;
  const std::vector<std::int64_t> all = process_allgather(state_->has_written ? 1 : 0);
  if (std::find(all.begin(), all.end(), 0) == all.end()) state_->finish();
}

std::vector<std::int64_t> Checkpointer::steps() const { return steps_in(state_->folder); }

std::optional<std::int64_t> Checkpointer::latest() const { return latest_step(state_->folder); }

std::optional<std::int64_t> Checkpointer::best() const {
  std::optional<std::int64_t> best;
  all_or_none([&] {
    const std::vector<std::int64_t> order = best_first(state_->folder, steps());
    if (!order.empty()) best = order.front();
  });
  agree_on(best, state_->folder);
  return best;
}

std::string Checkpointer::path(std::int64_t step) const { return step_path(state_->folder, step); }

}  // namespace tessera::checkpoint
