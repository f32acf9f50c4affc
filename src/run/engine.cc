#include "run/engine.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <tessera/error.h>

#include "run/arena_pool.h"
#include "run/devices/backend.h"
#include "run/execution.h"
#include "run/machine/caches.h"
#include "run/machine/cores.h"
#include "run/machine/nodes.h"
#include "run/measurements.h"
#include "run/ports.h"
#include "run/threads/admission.h"
#include "run/threads/idle_threads.h"
#include "run/transport/processes.h"

namespace tessera::run {

namespace {

/// Kernels guarantee their result bits for round-to-nearest without flush-to-zero, but the caller
/// may have set other modes.
class DefaultFloatMode {
 public:
  DefaultFloatMode() { begin(); }
  ~DefaultFloatMode() { end(); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#ifdef __x86_64__
  // Saving and setting the whole environment takes ten times as long.
  static constexpr unsigned kDefault = 0x1F80;
  void begin() {
    if (rounding_ != FE_TONEAREST) std::fesetround(FE_TONEAREST);
    _mm_setcsr(kDefault);
  }
  void end() const {
    if (rounding_ != FE_TONEAREST) std::fesetround(rounding_);
    _mm_setcsr(saved_);
  }
  int rounding_ = std::fegetround();
  unsigned saved_ = _mm_getcsr();
#else
  void begin() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  void end() const { std::fesetenv(&saved_); }
  std::fenv_t saved_;
#endif
};

/// An execution in flight, on the stack of its caller.
struct Run {
  Execution& execution;
  int number;  // of the caller, for traces
  int node;    // of the caller
  IdleThreads::Caller caller = {};
  ExecutionNotes notes = {};
};

/// Where the threads compute. They have one node if they are not bound.
struct Homes {
  std::vector<NodeCpus> nodes;       // empty: the threads are not bound
  std::vector<std::size_t> node_of;  // per thread
  int num_nodes = 1;                 // with threads
};

/// What an execution knows of the nodes.
struct CallerHome {
  int num_nodes = 1;
  int node = 0;  // of the caller, which is not bound
};

/// Runs all tasks on this thread.
void run_in_order(const Executable& executable, std::byte* arena, const PortBuffers& ports) {
  std::size_t most = 0;
  for (const Task& task : executable.tasks) most = std::max(most, task.places.size());
  std::vector<std::byte*> buffers(most);
  Poison poison(executable, arena);
  for (std::uint32_t id = 0; id < executable.tasks.size(); ++id) {
    const Task& task = executable.tasks[id];
    for (std::size_t i = 0; i < task.places.size(); ++i) {
      const Place& place = executable.places[task.places[i]];
      const bool is_in_arena = place.space == Place::Space::arena;
      buffers[i] = (is_in_arena ? arena : ports.find(place)) + place.offset;
    }
    const std::span<std::byte* const> all(buffers.data(), task.places.size());
    const int num_parts = task.kernel->num_parts();
    for (int part = 0; part < num_parts; ++part) task.kernel->run(all, part);
    if (num_parts > 0 && task.kernel->joins_parts()) task.kernel->join_parts(all);
    poison.task_ended(id);
  }
}

}  // namespace

/// Executions in flight share the workers. Each brings the thread that called execute(), which
/// computes for it alone. A worker makes way for each caller but one, as soon as the part that it
/// computes has ended, so that `num_threads` threads compute.
struct Engine::State {
  mutable std::mutex mutex;
  Admission admission{usable_cores()};
  ArenaPool arenas;
  std::vector<std::thread> workers;
  // Runs the tasks that communicate, so that the others go on computing while it waits. Starts with
  // the first executable that has such tasks.
  std::thread communicator;
  std::condition_variable wake_communicator;
  int num_threads = usable_cores();
  bool binds = true;
  std::optional<std::vector<NodeCpus>> nodes;  // instead of those of the machine
  std::optional<Homes> homes;                  // of the threads that have been started
  int threads_per_group = 0;
  IdleThreads idle{num_threads};
  std::vector<Run*> runs;  // in flight
  Measurements measured;
  std::atomic<bool> has_computed = false;

  CallerHome start_threads(const Executable& executable);
  Homes homes_of_threads() const;
  void stop_threads();
  void worker(int thread, int node);
  void work_for_all(std::unique_lock<std::mutex>& lock, int thread, int node);
  void communicate();
  void run(Run& run, std::unique_lock<std::mutex>& lock) noexcept;
  template <typename Work>
  void run_unlocked(Run& run, TaskRef ref, std::unique_lock<std::mutex>& lock, int thread,
                    Work work);
  void run_parts(Run& run, const TakenPart& taken, std::unique_lock<std::mutex>& lock, int thread);
  bool may_communicate(const Run& run) const;
  std::optional<TakenPart> take(Run& run, int node) const;
  std::int64_t num_ready_parts(const Run& run, std::int64_t most) const;
  Run* next_run() const;
  void find_helpers(Run& run, int own);
  int free_number() const;
};

/// Runs `work` without the lock, so that other threads can proceed. If it throws, that is the fault
/// of the execution.
template <typename Work>
void Engine::State::run_unlocked(Run& run, TaskRef ref, std::unique_lock<std::mutex>& lock,
                                 int thread, Work work) {
  if (ref.frame->executable().tasks[ref.task].communicates) thread = PartTime::kCommunicator;
  const bool is_timed = measured.times_parts();
  idle.unlock(lock);
  std::exception_ptr fault;
  const auto start = is_timed ? Clock::now() : Clock::time_point{};
  try {
    work();
  } catch (...) {
    fault = std::current_exception();
  }
  const auto end = is_timed ? Clock::now() : Clock::time_point{};
  IdleThreads::lock(lock);
  if (fault != nullptr && run.execution.fault == nullptr) run.execution.fault = fault;
  if (is_timed) run.execution.attempt([&] { measured.add(run.notes, ref, thread, start, end); });
}

/// Runs a part and all parts of its task that no other thread claims meanwhile. A trace needs every
/// part by itself. Lets no exception out, so that the execution always learns that parts have
/// ended.
void Engine::State::run_parts(Run& run, const TakenPart& taken, std::unique_lock<std::mutex>& lock,
                              int thread) {
  const TaskRef ref = taken.ref;
  Execution& execution = run.execution;
  if (taken.is_first) execution.attempt([&] { measured.count(run.notes, ref); });
  const Kernel& kernel = *ref.frame->executable().tasks[ref.task].kernel;
  const std::span<std::byte* const> buffers = ref.frame->buffers(ref.task);
  const bool claims_more = !measured.is_traced() && ref.frame->num_parts(ref.task) > 1;
  int count = 0;
  run_unlocked(run, ref, lock, thread, [&] {
    int part = taken.part;
    do {
      kernel.run(buffers, part);
      ++count;
      part = claims_more ? ref.frame->claim_part(ref.task, taken.node) : Frame::kNoPart;
    } while (part != Frame::kNoPart);
  });
  const bool is_last = ref.frame->end_parts(ref.task, count);
  if (is_last && execution.fault == nullptr && kernel.joins_parts()) {
    run_unlocked(run, ref, lock, thread, [&] { kernel.join_parts(buffers); });
  }
  execution.end_parts(ref);
  if (is_last && execution.fault == nullptr) execution.attempt([&] { execution.finish(ref); });
  if (execution.fault != nullptr) execution.give_up();
  if (execution.is_over()) return idle.announce_end(run.caller);
  if (is_last) find_helpers(run, thread == PartTime::kCommunicator ? 0 : 1);
}

/// Whether a thread that computes may run the next exchange. It does where nothing can be computed
/// before the exchange has ended: that saves waking another thread, and itself afterwards.
bool Engine::State::may_communicate(const Run& run) const {
  if (!communicator.joinable()) return true;
  return runs.size() == 1 && !run.execution.is_running() && run.execution.num_ready_parts(1) == 0;
}

std::optional<TakenPart> Engine::State::take(Run& run, int node) const {
  std::optional<TakenPart> taken = run.execution.take(node);
  if (!taken && may_communicate(run)) taken = run.execution.take_communication();
  return taken;
}

/// How many parts threads that compute can take now, at most about `most`.
std::int64_t Engine::State::num_ready_parts(const Run& run, std::int64_t most) const {
  const std::int64_t count = run.execution.num_ready_parts(most);
  return count > 0 || !run.execution.has_communication() || !may_communicate(run) ? count : 1;
}

/// Of the executions for which a worker can compute, the one for which the fewest threads do.
Run* Engine::State::next_run() const {
  if (runs.size() == 1) return runs[0]->execution.is_over() ? nullptr : runs[0];
  Run* next = nullptr;
  for (Run* run : runs) {
    if (run->execution.is_over() || num_ready_parts(*run, 1) == 0) continue;
    const bool is_first = next == nullptr;
    if (is_first || run->execution.num_running() < next->execution.num_running()) next = run;
  }
  return next;
}

/// If there is one execution, this thread takes `own` parts of it before it releases the mutex.
void Engine::State::find_helpers(Run& run, int own) {
  const std::int64_t others = num_ready_parts(run, num_threads) - (runs.size() == 1 ? own : 0);
  if (run.execution.has_communication() && !may_communicate(run)) wake_communicator.notify_one();
  if (others > 0 && !idle.is_empty()) idle.announce(others, run.caller);
}

/// Returns when the execution is over and no other thread uses it any more.
void Engine::State::run(Run& run, std::unique_lock<std::mutex>& lock) noexcept {
  idle.add_caller();
  find_helpers(run, 1);
  while (!run.execution.is_over()) {
    if (const std::optional<TakenPart> taken = take(run, run.node)) {
      run_parts(run, *taken, lock, run.number);
    } else {
      idle.wait_for_news(lock, &run.caller);
    }
  }
  // An execution is over only when no part is running. So the other threads have left run_parts(),
  // and they read `runs` again before they take another part.
  std::erase(runs, &run);
  idle.announce_end(run.caller);
  idle.remove_caller();
  for (Run* other : runs) find_helpers(*other, 0);
}

void Engine::State::worker(int thread, int node) {
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(mutex);
  while (!idle.is_stopping()) {
    work_for_all(lock, thread, node);
    idle.sleep(lock, nullptr);
  }
}

/// Returns when nothing is in flight, or when callers compute in place of this thread.
void Engine::State::work_for_all(std::unique_lock<std::mutex>& lock, int thread, int node) {
  bool has_waited = true;
  while (!runs.empty() && !idle.is_stopping()) {
    if (idle.has_too_many()) {
      // Parts that this thread was going to take are left to the others.
      for (Run* run : runs) find_helpers(*run, 0);
      return;
    }
    Run* run = next_run();
    const std::optional<TakenPart> taken = run == nullptr ? std::nullopt : take(*run, node);
    if (taken) {
      if (std::exchange(has_waited, false)) find_helpers(*run, 0);
      run_parts(*run, *taken, lock, thread);
    } else {
      idle.wait_for_news(lock, nullptr);
      has_waited = true;
    }
  }
}

void Engine::State::communicate() {
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(mutex);
  while (!idle.is_stopping()) {
    const auto next = std::find_if(runs.begin(), runs.end(), [](const Run* run) {
      return run->execution.has_communication();
    });
    if (next == runs.end()) {
      wake_communicator.wait(lock);
      continue;
    }
    Run& run = **next;
    if (const auto taken = run.execution.take_communication()) {
      run_parts(run, *taken, lock, PartTime::kCommunicator);
    }
    idle.unlock(lock);  // wakes the threads that it found
    IdleThreads::lock(lock);
  }
}

Homes Engine::State::homes_of_threads() const {
  Homes found;
  if (!binds || num_threads == 1 || transport() != nullptr) return found;
  std::vector<NodeCpus> all = nodes ? *nodes : usable_nodes();
  if (all.size() < 2) return found;
  found.node_of = nodes_of_threads(all, num_threads);
  found.nodes = std::move(all);
  const std::size_t last = *std::max_element(found.node_of.begin(), found.node_of.end());
  found.num_nodes = static_cast<int>(last) + 1;
  return found;
}

/// If the machine cannot start another thread, the existing ones do its work.
CallerHome Engine::State::start_threads(const Executable& executable) {
  const std::lock_guard<std::mutex> lock(mutex);
  try {
    if (executable.communicates && !communicator.joinable()) {
      communicator = std::thread([this] { communicate(); });
    }
    if (!homes) homes = homes_of_threads();
    while (static_cast<int>(workers.size()) < num_threads - 1) {
      const std::size_t number = workers.size() + 1;
      const std::size_t node = homes->nodes.empty() ? 0 : homes->node_of[number];
      workers.emplace_back(
          [this, number, node, own = homes->nodes.empty() ? NodeCpus() : homes->nodes[node]] {
            if (!own.empty()) bind_this_thread(own);
            worker(static_cast<int>(number), static_cast<int>(node));
          });
      idle.add_worker();
    }
  } catch (const std::exception&) {
    if (!homes) return {};
  }
  if (homes->num_nodes == 1) return {};
  const int node = std::min(node_of_this_thread(homes->nodes), homes->num_nodes - 1);
  return {.num_nodes = homes->num_nodes, .node = node};
}

void Engine::State::stop_threads() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    idle.stop();
    wake_communicator.notify_one();
  }
  if (communicator.joinable()) communicator.join();
  for (std::thread& thread : workers) thread.join();
  workers.clear();
  homes.reset();
  idle.remove_threads();
}

/// The smallest number that no caller in flight has.
int Engine::State::free_number() const {
  int number = 0;
  const auto is_taken = [&](const Run* run) { return run->number == number; };
  while (std::any_of(runs.begin(), runs.end(), is_taken)) {
    number = number == 0 ? PartTime::kMoreCallers : number + 1;
  }
  return number;
}

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() { state_->stop_threads(); }

Engine& Engine::instance() {
  static Engine engine;
  return engine;
}

void Engine::set_num_threads(int count) {
  require(count >= 1, "an engine has at least one thread");
  const Alone alone(state_->admission);
  state_->stop_threads();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->num_threads = count;
  state_->admission.set_most(count);
  state_->idle.set_limit(count);
}

void Engine::set_binding(bool is_on) {
  const Alone alone(state_->admission);
  state_->stop_threads();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->binds = is_on;
}

void Engine::set_nodes(std::optional<std::vector<NodeCpus>> nodes) {
  const Alone alone(state_->admission);
  state_->stop_threads();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->nodes = std::move(nodes);
}

int Engine::num_threads() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->num_threads;
}

Target Engine::target() const {
  static const CacheSizes caches = machine_caches();
  return {.num_workers = num_threads(), .caches = caches, .world = world()};
}

void Engine::set_threads_per_group(int count) {
  require(count >= 0, "a group has a number of threads, or 0 for all of them");
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->threads_per_group = count;
}

int Engine::threads_per_group() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->threads_per_group;
}

bool Engine::has_computed() const { return state_->has_computed; }

CollectiveCounts Engine::collective_counts() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.counts();
}

void Engine::reset_collective_counts() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->measured.reset_counts();
}

void Engine::start_profile() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->measured.start_profile();
}

std::vector<RegionTime> Engine::stop_profile() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.stop_profile();
}

std::int64_t Engine::start_timeline() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.start_timeline();
}

std::vector<TaskTime> Engine::stop_timeline() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.stop_timeline();
}

bool Engine::start_trace() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.start_trace();
}

bool Engine::is_traced() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.is_traced();
}

EngineTrace Engine::stop_trace() {
  const Alone alone(state_->admission);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->measured.stop_trace();
}

NewMemory Engine::new_memory(const Executable& executable) const {
  NewMemory memory{.arena = state_->arenas.new_bytes(executable.arena_bytes),
                   .scratch = num_threads() * thread_scratch(executable)};
  for (const Port& port : executable.outputs) {
    if (port.alias >= 0) continue;
    for (const std::int64_t bytes : port.tile_bytes) memory.outputs += bytes;
  }
  return memory;
}

std::vector<Tiles> HostRunnable::execute(std::vector<Tiles>& inputs,
                                         const std::function<void()>& on_begin) const {
  return Engine::instance().execute(*executable_, inputs, on_begin);
}

std::vector<Tiles> Engine::execute(const Executable& executable, std::vector<Tiles> inputs) {
  return execute(executable, inputs, [] {});
}

std::vector<Tiles> Engine::execute(const Executable& executable, std::vector<Tiles>& inputs,
                                   const std::function<void()>& on_begin) {
  check_inputs(executable, inputs);
  State& state = *state_;
  state.has_computed.store(true, std::memory_order_relaxed);
  const Admitted admitted(state.admission, executable.communicates);
  ArenaPool::Lease arena(state.arenas, executable.arena_bytes);
  std::vector<Tiles> outputs = make_outputs(executable, inputs);
  // No change is made while an execution is in flight.
  if (executable.is_short && !state.measured.notes_tasks()) {
    const PortBuffers ports(inputs, outputs);
    const DefaultFloatMode mode;
    on_begin();
    run_in_order(executable, arena.data(), ports);
    if (executable.has_collectives()) {
      const std::lock_guard<std::mutex> lock(state.mutex);
      state.measured.count_alone(executable);
    }
    return outputs;
  }
  const RootBuffers memory(arena.data(), inputs, outputs);
  const CallerHome home = state.start_threads(executable);
  Frame root(executable, memory.binding, nullptr, home.num_nodes);
  root.bind(memory.buffers, 0, 0);
  Execution execution(root, {.threads_per_group = state.threads_per_group,
                             .has_timeline = state.measured.has_timeline()});
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(state.mutex);
  Run run{.execution = execution, .number = state.free_number(), .node = home.node};
  state.measured.begin(run.notes, executable, run.number);
  state.runs.push_back(&run);
  on_begin();
  state.run(run, lock);
  state.measured.end(run.notes, executable, execution);
  state.idle.unlock(lock);
  if (execution.fault != nullptr) std::rethrow_exception(execution.fault);
  return outputs;
}

}  // namespace tessera::run
