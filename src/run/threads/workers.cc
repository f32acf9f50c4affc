#include "run/threads/workers.h"

#include <algorithm>
#include <utility>

#include <tessera/error.h>

#include "run/machine/cores.h"
#include "run/threads/float_mode.h"
#include "run/threads/spin.h"
#include "run/transport/processes.h"

namespace tessera::run {

Workers::Workers(Measurements& measured)
    : measured_(measured),
      num_cores_(usable_cores()),
      num_threads_(num_cores_),
      idle_(num_cores_) {}

// --- threads

void Workers::set_num_threads(int count) {
  stop();
  num_threads_ = count;
  idle_.set_limit(count);
}

void Workers::set_binding(bool is_on) {
  stop();
  binds_ = is_on;
}

void Workers::set_nodes(std::optional<std::vector<NodeCpus>> nodes) {
  stop();
  nodes_ = std::move(nodes);
}

Workers::Homes Workers::homes_of_threads() const {
  Homes found;
  if (!binds_ || num_threads() == 1 || transport() != nullptr) return found;
  std::vector<NodeCpus> all = nodes_ ? *nodes_ : usable_nodes();
  if (all.size() < 2) return found;
  found.node_of = nodes_of_threads(all, num_threads());
  found.nodes = std::move(all);
  const std::size_t last = *std::max_element(found.node_of.begin(), found.node_of.end());
  found.threads_up_to.clear();
  for (std::size_t node = 0; node <= last; ++node) {
    const auto is_before = [&](std::size_t other) { return other <= node; };
    const auto count = std::count_if(found.node_of.begin(), found.node_of.end(), is_before);
    found.threads_up_to.push_back(static_cast<int>(count));
  }
  return found;
}

CallerHome Workers::start(const Executable& executable) {
  const bool needs_communicator = executable.communicates && !has_communicator_;
  if (!are_started_ || needs_communicator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      start_threads(executable.communicates);
    } catch (const std::exception&) {
      if (!homes_) return {.threads_up_to = Frame::kOneNode};
    }
  }
  const std::vector<int>& threads_up_to = homes_->threads_up_to;
  const int last = static_cast<int>(threads_up_to.size()) - 1;
  return {.threads_up_to = threads_up_to,
          .node = last == 0 ? 0 : std::min(node_of_this_thread(homes_->nodes), last)};
}

void Workers::start_threads(bool communicates) {
  if (communicates && !communicator_.joinable()) {
    communicator_ = std::thread([this] { communicate(); });
    has_communicator_ = true;
  }
  if (!homes_) homes_ = homes_of_threads();
  while (static_cast<int>(workers_.size()) < num_threads() - 1) {
    const std::size_t number = workers_.size() + 1;
    const bool is_bound = !homes_->nodes.empty();
    const std::size_t node = is_bound ? homes_->node_of[number] : 0;
    const Self self{static_cast<int>(number), number, static_cast<int>(node)};
    workers_.emplace_back([this, self, own = is_bound ? homes_->nodes[node] : NodeCpus()] {
      if (!own.empty()) bind_this_thread(own);
      work_for_all(self);
    });
    idle_.add_worker();
  }
  are_started_ = true;
}

void Workers::stop() {
  idle_.stop();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    communicator_sleeps_ = false;
  }
  wake_communicator_.notify_one();
  if (communicator_.joinable()) communicator_.join();
  has_communicator_ = false;
  for (std::thread& thread : workers_) thread.join();
  workers_.clear();
  homes_.reset();
  are_started_ = false;
  idle_.remove_threads();
}

// --- executions in flight

/// The smallest number that no caller in flight has.
int Workers::free_number() const {
  int number = 0;
  const auto is_taken = [&](const Run* run) { return run->number == number; };
  while (std::any_of(runs_.begin(), runs_.end(), is_taken)) {
    number = number == 0 ? PartTime::kMoreCallers : number + 1;
  }
  return number;
}

void Workers::add(Run& run, const Executable& executable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  run.number = free_number();
  measured_.begin(run.notes, executable, run.number);
  runs_.push_back(&run);
  num_runs_ = runs_.size();
  changes_of_runs_ += 1;
}

void Workers::run(Run& run) noexcept {
  const Self self{run.number, 0, run.node};
  idle_.add_caller();
  find_helpers(run, 1);
  while (true) {
    compute(run, self);
    if (run.execution.is_over()) break;
    const std::uint64_t seen = idle_.look();
    if (run.execution.has_parts() || run.execution.is_over()) {
      idle_.found_work();
    } else {
      idle_.wait(seen, &run.caller);
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase(runs_, &run);
    num_runs_ = runs_.size();
    changes_of_runs_ += 1;
  }
  // No more threads join, and those that have joined find nothing to do.
  while (run.num_users.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  idle_.remove_caller();
  if (num_runs_ == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Run* other : runs_) find_helpers(*other, 0);
}

/// Among the executions with something to compute, the one for which the fewest threads compute;
/// nullptr if there is none. The caller must leave() it.
Run* Workers::join() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Run* next = nullptr;
  for (Run* run : runs_) {
    if (!run->execution.has_parts()) continue;
    const bool is_first = next == nullptr;
    if (is_first || run->execution.num_inside() < next->execution.num_inside()) next = run;
  }
  if (next != nullptr) next->num_users.fetch_add(1, std::memory_order_relaxed);
  return next;
}

void Workers::work_for_all(const Self& self) {
  const DefaultFloatMode mode;
  while (!idle_.is_stopping()) {
    if (idle_.has_too_many()) {
      // Parts that this thread was going to take are left to the others.
      const std::lock_guard<std::mutex> lock(mutex_);
      for (Run* run : runs_) find_helpers(*run, 0);
    }
    const std::uint64_t seen = idle_.look();
    if (num_runs_ == 0 || idle_.has_too_many()) {
      idle_.sleep(seen, nullptr);
      continue;
    }
    Run* run = join();
    if (run == nullptr) {
      idle_.wait(seen, nullptr);
      continue;
    }
    idle_.found_work();
    find_helpers(*run, 1);
    compute(*run, self);
    leave(*run);
  }
}

/// Returns when the thread finds nothing to compute. For a worker it also returns when executions
/// have begun or ended, so that it chooses again.
void Workers::compute(Run& run, const Self& self) {
  Execution& execution = run.execution;
  const bool is_worker = self.list > 0;
  const std::uint64_t changes = changes_of_runs_.load(std::memory_order_relaxed);
  const auto may_stay = [&] {
    if (!is_worker || changes_of_runs_.load(std::memory_order_relaxed) == changes) return true;
    return execution.has_communication() && !has_communicator_;  // no other thread looks for it
  };
  execution.enter();
  while (!execution.has_ended() && may_stay()) {
    std::optional<TakenPart> taken = execution.take(self.list, self.node);
    if (!taken && may_communicate(run)) taken = execution.take_communication();
    if (!taken) break;
    call_communicator(run);
    run_parts(run, *taken, self);
  }
  call_communicator(run);
  if (execution.leave()) idle_.announce_end(run.caller);
}

/// Runs a part and all parts of its task that no other thread claims meanwhile. A trace needs every
/// part separately. No exception leaves this function, so that the execution always learns that
/// parts have ended.
void Workers::run_parts(Run& run, const TakenPart& taken, const Self& self) {
  const TaskRef ref = taken.ref;
  Execution& execution = run.execution;
  if (taken.is_first) execution.attempt([&] { measured_.count(run.notes, ref); });
  const Kernel& kernel = *ref.frame->executable().tasks[ref.task].kernel;
  const std::span<std::byte* const> buffers = ref.frame->buffers(ref.task);
  const bool claims_more = !measured_.is_traced() && ref.frame->num_parts(ref.task) > 1;
  int count = 0;
  run_kernel(run, ref, self, [&] {
    int part = taken.part;
    do {
      kernel.run(buffers, part);
      ++count;
      part = claims_more ? ref.frame->claim_part(ref.task, taken.node) : Frame::kNoPart;
    } while (part != Frame::kNoPart);
  });
  const bool is_last = ref.frame->end_parts(ref.task, count);
  if (is_last && !execution.has_failed() && kernel.joins_parts()) {
    run_kernel(run, ref, self, [&] { kernel.join_parts(buffers); });
  }
  if (is_last && !execution.has_failed()) {
    execution.attempt([&] { execution.finish(taken, self.list); });
  }
  execution.end_parts(taken);
  if (is_last) find_helpers(run, self.number == PartTime::kCommunicator ? 0 : 1);
}

/// An exception of `work` becomes the fault of the execution.
template <typename Work>
void Workers::run_kernel(Run& run, TaskRef ref, const Self& self, const Work& work) {
  const bool is_timed = measured_.times_parts();
  const auto start = is_timed ? Clock::now() : Clock::time_point{};
  run.execution.attempt(work);
  if (!is_timed) return;
  const auto end = Clock::now();
  const bool communicates = ref.frame->executable().tasks[ref.task].communicates;
  const int thread = communicates ? PartTime::kCommunicator : self.number;
  run.execution.attempt([&] { measured_.add(run.notes, ref, thread, start, end); });
}

/// Whether a computing thread that finds nothing to compute may run the next exchange. It may if
/// nothing can be computed before the exchange has ended: this saves waking another thread, and
/// being woken itself afterwards.
bool Workers::may_communicate(const Run& run) const {
  return !has_communicator_ || (num_runs_ == 1 && run.execution.num_inside() == 1);
}

void Workers::call_communicator(const Run& run) {
  if (!run.execution.has_communication() || !communicator_sleeps_) return;
  if (!communicator_sleeps_.exchange(false)) return;
  { const std::lock_guard<std::mutex> lock(mutex_); }  // it looks for exchanges under the mutex
  wake_communicator_.notify_one();
}

void Workers::communicate() {
  const DefaultFloatMode mode;
  const Self self{PartTime::kCommunicator, 0, 0};
  std::unique_lock<std::mutex> lock(mutex_);
  while (!idle_.is_stopping()) {
    communicator_sleeps_ = true;
    const auto next = std::find_if(runs_.begin(), runs_.end(), [](const Run* run) {
      return run->execution.has_communication();
    });
    if (next == runs_.end()) {
      wake_communicator_.wait(lock, [&] { return !communicator_sleeps_; });
      continue;
    }
    communicator_sleeps_ = false;
    Run& run = **next;
    run.num_users.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    run.execution.enter();
    if (const auto taken = run.execution.take_communication()) run_parts(run, *taken, self);
    if (run.execution.leave()) idle_.announce_end(run.caller);
    leave(run);
    lock.lock();
  }
}

/// Tells idle threads of parts that they can take. `own`: how many of them this thread takes
/// itself, if there is only one execution.
void Workers::find_helpers(Run& run, int own) {
  if (!idle_.may_help(run.caller)) return;
  const std::int64_t others =
      run.execution.num_ready_parts(num_threads()) - (num_runs_ == 1 ? own : 0);
  if (others > 0) idle_.announce(others, run.caller);
}

}  // namespace tessera::run
