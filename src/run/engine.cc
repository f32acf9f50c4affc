#include "run/engine.h"

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <tessera/error.h>

#include "run/execution.h"
#include "run/machine/cores.h"
#include "run/threads/idle_threads.h"
#include "run/transport/processes.h"

namespace tessera::run {

namespace {

/// Kernels guarantee their result bits for round-to-nearest without flush-to-zero, but the caller
/// may have set other modes.
class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&saved_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace

struct Engine::State {
  mutable std::mutex mutex;
  std::mutex one_at_a_time;  // executions share the arena and the threads
  std::vector<std::thread> threads;
  // Runs the tasks that communicate, so that the others go on computing while it waits. Starts with
  // the first executable that has such tasks.
  std::thread communicator;
  std::condition_variable wake_communicator;
  int num_threads = usable_cores();
  IdleThreads idle{num_threads};
  Execution* current = nullptr;
  std::unique_ptr<Buffer> arena;
  CollectiveCounts counts;
  int threads_per_group = 0;
  bool is_profiling = false;
  std::map<const Instruction*, RegionTime> timed;  // in the current execution
  std::vector<RegionTime> profile;
  bool has_timeline = false;
  Clock::time_point timeline_start;
  std::int64_t num_timed_executions = 0;
  std::vector<TaskTime> timeline;
  Recorder recorder;

  void start_threads(const Executable& executable);
  void stop_threads();
  // `thread`: 0 for the caller of execute(), then the number of the worker.
  void worker(int thread);
  void communicate();
  std::optional<TakenPart> take(Execution& execution) const;
  void work(std::unique_lock<std::mutex>& lock, int thread);
  template <typename Work>
  void run_unlocked(Execution& execution, TaskRef ref, std::unique_lock<std::mutex>& lock,
                    int thread, Work work);
  void run_parts(Execution& execution, const TakenPart& taken, std::unique_lock<std::mutex>& lock,
                 int thread);
  void find_helpers(const Execution& execution, int own);
  void run(Execution& execution, std::unique_lock<std::mutex>& lock) noexcept;
  void count_instruction(TaskRef ref);
  void count_collectives(const Instruction& instruction);
  void count_transfers(const Executable& executable);
  void add_time(TaskRef ref, std::int64_t ns);
  void keep_times();
  void keep_records(const Executable& executable, Execution& execution) noexcept;
  void keep_timeline(const Executable& executable, const std::vector<TaskSpan>& spans);
};

void Engine::State::count_instruction(TaskRef ref) {
  const Executable& executable = ref.frame->executable();
  const std::uint32_t number = executable.tasks[ref.task].instruction;
  if (!ref.frame->start_instruction(number)) return;
  if (is_profiling) timed[&executable.instructions[number]].count += 1;
  count_collectives(executable.instructions[number]);
}

/// Control tasks run no kernel themselves, so count_instruction() is never called for them. Their
/// collectives, such as what a group's task receives, are counted here.
void Engine::State::count_transfers(const Executable& executable) {
  for (const Task& task : executable.tasks) {
    if (task.control != nullptr) count_collectives(executable.instructions[task.instruction]);
  }
}

void Engine::State::count_collectives(const Instruction& instruction) {
  for (const CollectiveUse& use : instruction.collectives) {
    CollectiveCount& count = counts[use.kind];
    count.count += 1;
    count.bytes += use.bytes;
    count.wire_bytes += use.wire_bytes;
  }
}

void Engine::State::add_time(TaskRef ref, std::int64_t ns) {
  const Executable& executable = ref.frame->executable();
  const Task& task = executable.tasks[ref.task];
  RegionTime& time = timed[&executable.instructions[task.instruction]];
  time.ns += ns;
  if (task.communicates) time.communication_ns += ns;
}

/// Copies names and spans, because instructions are destroyed with their executable.
void Engine::State::keep_times() {
  for (auto& [instruction, time] : timed) {
    const auto known = std::find_if(profile.begin(), profile.end(), [&](const RegionTime& other) {
      return other.name == instruction->name && other.span == instruction->span;
    });
    RegionTime& kept = known != profile.end()
                           ? *known
                           : profile.emplace_back(
                                 RegionTime{.name = instruction->name, .span = instruction->span});
    kept.count += time.count;
    kept.ns += time.ns;
    kept.communication_ns += time.communication_ns;
    kept.flops += time.count * instruction->flops;
    kept.bytes += time.count * instruction->bytes;
  }
}

void Engine::State::keep_timeline(const Executable& executable,
                                  const std::vector<TaskSpan>& spans) {
  const auto since_start = [&](Clock::time_point time) {
    return std::chrono::nanoseconds(time - timeline_start).count();
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Instruction& instruction = executable.instructions[executable.tasks[i].instruction];
    if (!instruction.is_task || !spans[i].has_ended) continue;
    timeline.push_back({.name = instruction.name,
                        .group = instruction.group,
                        .stage = instruction.stage,
                        .microbatch = instruction.microbatch,
                        .execution = num_timed_executions,
                        .start_ns = since_start(spans[i].start),
                        .end_ns = since_start(spans[i].end)});
  }
  num_timed_executions += 1;
}

/// Stores the counts, times and records of an execution that has ended. If memory runs out here,
/// that is a fault of the execution.
void Engine::State::keep_records(const Executable& executable, Execution& execution) noexcept {
  execution.attempt([&] {
    keep_times();
    if (recorder.is_on()) recorder.end_execution();
    if (execution.fault == nullptr) count_transfers(executable);
    if (has_timeline) keep_timeline(executable, execution.spans());
  });
  timed.clear();  // its keys point to instructions, which are destroyed with their executable
}

/// Runs `work` without the lock, so that other threads can proceed. If it throws, that is the fault
/// of the execution.
template <typename Work>
void Engine::State::run_unlocked(Execution& execution, TaskRef ref,
                                 std::unique_lock<std::mutex>& lock, int thread, Work work) {
  if (ref.frame->executable().tasks[ref.task].communicates) thread = PartTime::kCommunicator;
  const bool is_traced = recorder.is_on();
  const bool is_timed = is_profiling || is_traced;
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
  if (fault != nullptr && execution.fault == nullptr) execution.fault = fault;
  execution.attempt([&] {
    if (is_profiling) add_time(ref, std::chrono::nanoseconds(end - start).count());
    if (is_traced) recorder.add(ref, thread, start, end);
  });
}

/// Runs a part and all parts of its task that no other thread claims meanwhile. A trace needs every
/// part by itself. Lets no exception out, so that the execution always learns that parts have
/// ended.
void Engine::State::run_parts(Execution& execution, const TakenPart& taken,
                              std::unique_lock<std::mutex>& lock, int thread) {
  const TaskRef ref = taken.ref;
  if (taken.part == 0) execution.attempt([&] { count_instruction(ref); });
  const Kernel& kernel = *ref.frame->executable().tasks[ref.task].kernel;
  const std::span<std::byte* const> buffers = ref.frame->buffers(ref.task);
  const bool claims_more = !recorder.is_on() && ref.frame->num_parts(ref.task) > 1;
  int count = 0;
  run_unlocked(execution, ref, lock, thread, [&] {
    int part = taken.part;
    do {
      kernel.run(buffers, part);
      ++count;
      part = claims_more ? ref.frame->claim_part(ref.task) : Frame::kNoPart;
    } while (part != Frame::kNoPart);
  });
  const bool is_last = ref.frame->end_parts(ref.task, count);
  if (is_last && execution.fault == nullptr && kernel.joins_parts()) {
    run_unlocked(execution, ref, lock, thread, [&] { kernel.join_parts(buffers); });
  }
  execution.end_parts(ref);
  if (is_last && execution.fault == nullptr) execution.attempt([&] { execution.finish(ref); });
  if (execution.fault != nullptr) execution.give_up();
  if (execution.is_over()) return idle.announce_end();
  if (is_last) find_helpers(execution, thread == PartTime::kCommunicator ? 0 : 1);
}

/// This thread takes `own` parts before it releases the mutex.
void Engine::State::find_helpers(const Execution& execution, int own) {
  if (execution.has_communication()) wake_communicator.notify_one();
  if (idle.is_empty()) return;
  const std::int64_t others = execution.num_ready_parts(num_threads) - own;
  if (others > 0) idle.announce(others);
}

/// What a thread that computes does next. It communicates itself while there is nothing to compute
/// until the exchange has ended: that saves waking another thread, and itself afterwards.
std::optional<TakenPart> Engine::State::take(Execution& execution) const {
  std::optional<TakenPart> taken = execution.take();
  const bool may_communicate = !communicator.joinable() || !execution.is_running();
  if (!taken && may_communicate) taken = execution.take_communication();
  return taken;
}

void Engine::State::work(std::unique_lock<std::mutex>& lock, int thread) {
  bool has_waited = thread != 0;
  while (current != nullptr && !current->is_over()) {
    if (const std::optional<TakenPart> taken = take(*current)) {
      if (std::exchange(has_waited, false)) find_helpers(*current, 0);
      run_parts(*current, *taken, lock, thread);
    } else {
      idle.wait_for_news(lock, thread);
      has_waited = true;
    }
  }
}

/// Returns when the execution is over and no other thread uses it any more.
void Engine::State::run(Execution& execution, std::unique_lock<std::mutex>& lock) noexcept {
  current = &execution;
  find_helpers(execution, 1);
  work(lock, 0);
  // An execution is over only when no part is running. So the other workers have left run_part()
  // and will read `current` again.
  current = nullptr;
  idle.announce_end();
}

void Engine::State::worker(int thread) {
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(mutex);
  while (!idle.is_stopping()) {
    if (current != nullptr && !current->is_over()) {
      work(lock, thread);
    } else {
      idle.sleep(lock, thread);
    }
  }
}

void Engine::State::communicate() {
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(mutex);
  while (!idle.is_stopping()) {
    const std::optional<TakenPart> taken =
        current == nullptr ? std::nullopt : current->take_communication();
    if (taken) {
      run_parts(*current, *taken, lock, PartTime::kCommunicator);
      idle.unlock(lock);  // wakes the threads that it found
      IdleThreads::lock(lock);
    } else {
      wake_communicator.wait(lock);
    }
  }
}

/// If the machine cannot start another thread, the existing ones do its work.
void Engine::State::start_threads(const Executable& executable) {
  if (executable.communicates && !communicator.joinable()) {
    try {
      communicator = std::thread([this] { communicate(); });
    } catch (const std::exception&) {
    }
  }
  while (static_cast<int>(threads.size()) < num_threads - 1) {
    const int number = static_cast<int>(threads.size()) + 1;
    try {
      threads.emplace_back([this, number] { worker(number); });
      idle.add_thread();
    } catch (const std::exception&) {
      return;
    }
  }
}

void Engine::State::stop_threads() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    idle.stop();
    wake_communicator.notify_one();
  }
  if (communicator.joinable()) communicator.join();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  idle.remove_threads();
}

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() { state_->stop_threads(); }

Engine& Engine::instance() {
  static Engine engine;
  return engine;
}

void Engine::set_num_threads(int count) {
  require(count >= 1, "an engine has at least one thread");
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->stop_threads();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->num_threads = count;
}

int Engine::num_threads() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->num_threads;
}

Target Engine::target() const { return {.num_workers = num_threads(), .world = world()}; }

void Engine::set_threads_per_group(int count) {
  require(count >= 0, "a group has a number of threads, or 0 for all of them");
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->threads_per_group = count;
}

int Engine::threads_per_group() const {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  return state_->threads_per_group;
}

bool Engine::has_threads() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return !state_->threads.empty() || state_->communicator.joinable();
}

CollectiveCounts Engine::collective_counts() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->counts;
}

void Engine::reset_collective_counts() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->counts.clear();
}

void Engine::start_profile() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->profile.clear();
  state_->is_profiling = true;
}

std::vector<RegionTime> Engine::stop_profile() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->is_profiling = false;
  std::sort(state_->profile.begin(), state_->profile.end(),
            [](const RegionTime& a, const RegionTime& b) { return a.ns > b.ns; });
  return std::exchange(state_->profile, {});
}

std::int64_t Engine::start_timeline() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->timeline.clear();
  state_->num_timed_executions = 0;
  state_->has_timeline = true;
  state_->timeline_start = Clock::now();
  return std::chrono::nanoseconds(state_->timeline_start.time_since_epoch()).count();
}

std::vector<TaskTime> Engine::stop_timeline() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  state_->has_timeline = false;
  std::stable_sort(state_->timeline.begin(), state_->timeline.end(),
                   [](const TaskTime& a, const TaskTime& b) { return a.start_ns < b.start_ns; });
  return std::exchange(state_->timeline, {});
}

bool Engine::start_trace() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->recorder.is_on()) return false;
  state_->recorder.start();
  return true;
}

bool Engine::is_traced() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->recorder.is_on();
}

EngineTrace Engine::stop_trace() {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->recorder.stop();
}

namespace {

/// Copies donated buffers that another array still holds, because they must not be overwritten.
/// Taking an extra reference before reading the count orders the reads of threads that have
/// released the buffer before our writes.
void make_private(Tiles& tiles) {
  for (BufferPtr& tile : tiles) {
    if (const BufferPtr counted = tile; counted.use_count() == 2) continue;
    auto copy = std::make_shared<Buffer>(tile->size());
    std::memcpy(copy->data(), tile->data(), static_cast<std::size_t>(tile->size()));
    tile = std::move(copy);
  }
}

std::vector<Tiles> make_outputs(const Executable& executable, std::vector<Tiles>& inputs) {
  std::vector<Tiles> outputs;
  for (const Port& port : executable.outputs) {
    if (port.alias >= 0) {
      Tiles& donated = inputs[static_cast<std::size_t>(port.alias)];
      make_private(donated);
      outputs.push_back(donated);
      continue;
    }
    Tiles tiles;
    for (std::int64_t bytes : port.tile_bytes) tiles.push_back(std::make_shared<Buffer>(bytes));
    outputs.push_back(std::move(tiles));
  }
  return outputs;
}

void check_inputs(const Executable& executable, const std::vector<Tiles>& inputs) {
  require(inputs.size() == executable.inputs.size(), "an executable gets all its inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<std::int64_t>& wanted = executable.inputs[i].tile_bytes;
    require(inputs[i].size() == wanted.size(), "an input has the tiles of its layout");
    for (std::size_t tile = 0; tile < wanted.size(); ++tile) {
      require(inputs[i][tile]->size() == wanted[tile], "a tile has the bytes of its box");
    }
  }
}

/// The memory of the outermost frame: the arena, the tiles of the inputs, those of the outputs.
struct RootMemory {
  std::vector<std::byte*> buffers;
  Binding binding;

  RootMemory(std::byte* arena, const std::vector<Tiles>& inputs, const std::vector<Tiles>& outputs)
      : buffers{arena} {
    for (const Tiles& tiles : inputs) binding.inputs.push_back(add(tiles));
    for (const Tiles& tiles : outputs) binding.outputs.push_back(add(tiles));
  }

 private:
  std::vector<TileBinding> add(const Tiles& tiles) {
    std::vector<TileBinding> bindings;
    for (const BufferPtr& tile : tiles) {
      const auto number = static_cast<std::uint32_t>(buffers.size());
      bindings.push_back({.even = number, .odd = number});
      buffers.push_back(tile->data());
    }
    return bindings;
  }
};

/// The most scratch bytes that any kernel needs per thread, including kernels of nested
/// executables.
std::int64_t thread_scratch(const Executable& executable) {
  std::int64_t most = 0;
  const auto add = [&](const Nested& nested) {
    if (nested.executable != nullptr) most = std::max(most, thread_scratch(*nested.executable));
  };
  for (const Task& task : executable.tasks) {
    if (task.kernel != nullptr) most = std::max(most, task.kernel->scratch_bytes());
    if (task.control == nullptr) continue;
    for (const Nested& body : task.control->bodies) add(body);
    for (const Nested* nested :
         {&task.control->begin, &task.control->condition, &task.control->end}) {
      add(*nested);
    }
  }
  return most;
}

}  // namespace

NewMemory Engine::new_memory(const Executable& executable) const {
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  const std::int64_t held = state_->arena == nullptr ? 0 : state_->arena->size();
  NewMemory memory{.arena = std::max<std::int64_t>(0, executable.arena_bytes - held),
                   .scratch = state_->num_threads * thread_scratch(executable)};
  for (const Port& port : executable.outputs) {
    if (port.alias >= 0) continue;
    for (const std::int64_t bytes : port.tile_bytes) memory.outputs += bytes;
  }
  return memory;
}

std::vector<Tiles> Engine::execute(const Executable& executable, std::vector<Tiles> inputs) {
  return execute(executable, inputs, [] {});
}

std::vector<Tiles> Engine::execute(const Executable& executable, std::vector<Tiles>& inputs,
                                   const std::function<void()>& on_begin) {
  check_inputs(executable, inputs);
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  State& state = *state_;
  if (state.arena == nullptr || state.arena->size() < executable.arena_bytes) {
    state.arena.reset();
    state.arena = std::make_unique<Buffer>(executable.arena_bytes, Buffer::Use::arena);
  }
  std::vector<Tiles> outputs = make_outputs(executable, inputs);
  const RootMemory memory(state.arena->data(), inputs, outputs);
  Frame root(executable, memory.binding, nullptr);
  root.bind(memory.buffers, 0, 0);
  Execution execution(
      root, {.threads_per_group = state.threads_per_group, .has_timeline = state.has_timeline});
  state.start_threads(executable);
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(state.mutex);
  if (state.recorder.is_on()) state.recorder.begin_execution(executable);
  on_begin();
  state.run(execution, lock);
  state.keep_records(executable, execution);
  state.idle.unlock(lock);
  if (execution.fault != nullptr) std::rethrow_exception(execution.fault);
  return outputs;
}

}  // namespace tessera::run
