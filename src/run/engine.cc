#include "run/engine.h"

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <thread>

#include <tessera/error.h>

#include "run/poison.h"

namespace tessera::run {

namespace {

/// Kernels promise bits for round-to-nearest without flush-to-zero; the caller may use other modes.
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

/// A task some of whose parts nobody has taken yet.
struct ReadyTask {
  std::uint32_t task;
  int next_part;
};

/// The state of one run of an executable; guarded by the mutex of the pool.
struct Execution {
  const Executable& executable;
  std::vector<std::byte*> places = {};
  std::vector<std::uint32_t> num_pending = {};  // per task: predecessors that have not ended
  std::vector<int> parts_left = {};             // per task
  std::vector<ReadyTask> ready = {};            // a stack: what became ready last is still cached
  std::vector<bool> has_started = {};           // per instruction
  Poison poison = {};
  std::size_t tasks_left = 0;
  int num_running = 0;
  std::exception_ptr fault = nullptr;

  bool is_over() const { return num_running == 0 && (tasks_left == 0 || fault != nullptr); }
};

}  // namespace

struct Engine::State {
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::mutex one_at_a_time;  // executions share the arena and the threads
  std::vector<std::thread> threads;
  int num_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool is_stopping = false;
  Execution* current = nullptr;
  std::atomic<std::uint64_t> news{0};  // changes whenever waiting threads should look again
  std::unique_ptr<Buffer> arena;
  CollectiveCounts counts;

  void start_threads();
  void stop_threads();
  void worker();
  void work(std::unique_lock<std::mutex>& lock);
  void run_part(Execution& execution, std::unique_lock<std::mutex>& lock);
  void finish_task(Execution& execution, std::uint32_t task);
  void count_collectives(Execution& execution, std::uint32_t instruction);
  void wait_for_news(std::unique_lock<std::mutex>& lock);
  void announce();
};

void Engine::State::announce() {
  news.fetch_add(1, std::memory_order_release);
  wake.notify_all();
}

void Engine::State::wait_for_news(std::unique_lock<std::mutex>& lock) {
  // Gaps between tasks are shorter than a sleep and a wake-up, so look a while before sleeping.
  constexpr int kLooks = 2000;
  const std::uint64_t seen = news.load(std::memory_order_acquire);
  lock.unlock();
  for (int i = 0; i < kLooks && news.load(std::memory_order_acquire) == seen; ++i) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  lock.lock();
  if (news.load(std::memory_order_acquire) == seen) wake.wait(lock);
}

void Engine::State::count_collectives(Execution& execution, std::uint32_t instruction) {
  if (execution.has_started[instruction]) return;
  execution.has_started[instruction] = true;
  for (const CollectiveUse& use : execution.executable.instructions[instruction].collectives) {
    CollectiveCount& count = counts[use.kind];
    count.count += 1;
    count.bytes += use.bytes;
    count.wire_bytes += use.wire_bytes;
  }
}

void Engine::State::finish_task(Execution& execution, std::uint32_t task) {
  execution.poison.task_ended(task);
  const std::vector<std::uint32_t>& successors = execution.executable.tasks[task].successors;
  bool has_new = false;
  // Pushed in reverse: the first successor is taken first.
  for (std::size_t i = successors.size(); i-- > 0;) {
    if (--execution.num_pending[successors[i]] == 0) {
      execution.ready.push_back({successors[i], 0});
      has_new = true;
    }
  }
  execution.tasks_left -= 1;
  if (has_new || execution.tasks_left == 0) announce();
}

void Engine::State::run_part(Execution& execution, std::unique_lock<std::mutex>& lock) {
  ReadyTask& top = execution.ready.back();
  const std::uint32_t id = top.task;
  const Task& task = execution.executable.tasks[id];
  const int part = top.next_part++;
  if (top.next_part >= task.kernel->num_parts()) execution.ready.pop_back();
  count_collectives(execution, task.instruction);
  execution.num_running += 1;
  lock.unlock();
  std::exception_ptr fault;
  try {
    std::vector<std::byte*> buffers;
    buffers.reserve(task.places.size());
    for (std::uint32_t place : task.places) buffers.push_back(execution.places[place]);
    task.kernel->run(buffers, part);
  } catch (...) {
    fault = std::current_exception();
  }
  lock.lock();
  execution.num_running -= 1;
  if (fault != nullptr && execution.fault == nullptr) execution.fault = fault;
  if (execution.fault != nullptr) {
    execution.ready.clear();
    announce();
  } else if (--execution.parts_left[id] == 0) {
    finish_task(execution, id);
  }
}

void Engine::State::work(std::unique_lock<std::mutex>& lock) {
  while (current != nullptr && !current->is_over()) {
    if (current->ready.empty()) {
      wait_for_news(lock);
    } else {
      run_part(*current, lock);
    }
  }
}

void Engine::State::worker() {
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(mutex);
  while (!is_stopping) {
    if (current != nullptr && !current->is_over()) {
      work(lock);
    } else {
      wake.wait(lock);
    }
  }
}

void Engine::State::start_threads() {
  while (static_cast<int>(threads.size()) < num_threads - 1) {
    threads.emplace_back([this] { worker(); });
  }
}

void Engine::State::stop_threads() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    is_stopping = true;
    announce();
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  is_stopping = false;
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

CollectiveCounts Engine::collective_counts() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->counts;
}

void Engine::reset_collective_counts() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->counts.clear();
}

namespace {

/// A donated buffer that another array still holds must not be written.
void make_private(Tiles& tiles) {
  for (BufferPtr& tile : tiles) {
    if (tile.use_count() == 1) continue;
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

void start(Execution& execution, std::byte* arena, const std::vector<Tiles>& inputs,
           const std::vector<Tiles>& outputs) {
  const Executable& executable = execution.executable;
  for (const Place& place : executable.places) {
    std::byte* base = arena;
    if (place.space == Place::Space::input) base = inputs[place.port][place.tile]->data();
    if (place.space == Place::Space::output) base = outputs[place.port][place.tile]->data();
    execution.places.push_back(base + place.offset);
  }
  execution.poison = Poison(executable, arena);
  execution.has_started.assign(executable.instructions.size(), false);
  execution.tasks_left = executable.tasks.size();
  for (const Task& task : executable.tasks) {
    execution.num_pending.push_back(task.num_predecessors);
    execution.parts_left.push_back(task.kernel->num_parts());
  }
  for (std::size_t i = executable.tasks.size(); i-- > 0;) {
    if (execution.num_pending[i] == 0) {
      execution.ready.push_back({static_cast<std::uint32_t>(i), 0});
    }
  }
}

}  // namespace

std::vector<Tiles> Engine::execute(const Executable& executable, std::vector<Tiles> inputs) {
  check_inputs(executable, inputs);
  const std::lock_guard<std::mutex> exclusive(state_->one_at_a_time);
  State& state = *state_;
  if (state.arena == nullptr || state.arena->size() < executable.arena_bytes) {
    state.arena.reset();
    state.arena = std::make_unique<Buffer>(executable.arena_bytes);
  }
  std::vector<Tiles> outputs = make_outputs(executable, inputs);
  Execution execution{.executable = executable};
  start(execution, state.arena->data(), inputs, outputs);
  state.start_threads();
  const DefaultFloatMode mode;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.current = &execution;
  state.announce();
  state.work(lock);
  // Other workers have left run_part when the execution is over, and look at `current` again.
  state.current = nullptr;
  state.announce();
  lock.unlock();
  if (execution.fault != nullptr) std::rethrow_exception(execution.fault);
  return outputs;
}

}  // namespace tessera::run
