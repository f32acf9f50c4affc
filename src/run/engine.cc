#include "run/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include <tessera/error.h>

#include "run/arena_pool.h"
#include "run/devices/backend.h"
#include "run/execution.h"
#include "run/machine/caches.h"
#include "run/machine/cores.h"
#include "run/measurements.h"
#include "run/ports.h"
#include "run/threads/admission.h"
#include "run/threads/float_mode.h"
#include "run/threads/within_task.h"
#include "run/threads/workers.h"

namespace tessera::run {

namespace {

/// Runs all tasks on this thread.
void run_in_order(const Executable& executable, std::byte* arena, const PortBuffers& ports) {
  std::size_t most = 0;
  for (const Task& task : executable.tasks) most = std::max(most, task.places.size());
  std::vector<std::byte*> buffers(most);
  Poison poison;
  poison.start(executable, arena);
  for (std::uint32_t id = 0; id < executable.tasks.size(); ++id) {
    const Task& task = executable.tasks[id];
    for (std::size_t i = 0; i < task.places.size(); ++i) {
      const Place& place = executable.places[task.places[i]];
      const bool is_in_arena = place.space == Place::Space::arena;
      buffers[i] = (is_in_arena ? arena : ports.find(place)) + place.offset;
    }
    const std::span<std::byte* const> all(buffers.data(), task.places.size());
    task.kernel->run_all(all);
    poison.task_ended(id);
  }
}

}  // namespace

struct Engine::State {
  Admission admission{usable_cores()};
  ArenaPool arenas;
  Measurements measured;
  Workers workers{measured};
  std::atomic<int> threads_per_group = 0;
  std::atomic<bool> has_computed = false;
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

Engine& Engine::instance() {
  static Engine engine;
  return engine;
}

void Engine::set_num_threads(int count) {
  require(count >= 1, "an engine has at least one thread");
  const Alone alone(state_->admission);
  state_->workers.set_num_threads(count);
  state_->admission.set_most(count);
}

void Engine::set_binding(bool is_on) {
  const Alone alone(state_->admission);
  state_->workers.set_binding(is_on);
}

void Engine::set_nodes(std::optional<std::vector<NodeCpus>> nodes) {
  const Alone alone(state_->admission);
  state_->workers.set_nodes(std::move(nodes));
}

int Engine::num_threads() const { return state_->workers.num_threads(); }

Target Engine::target() const {
  static const CacheSizes caches = machine_caches();
  return {.num_workers = num_threads(), .caches = caches, .world = world()};
}

void Engine::set_threads_per_group(int count) {
  require(count >= 0, "a group has a number of threads, or 0 for all of them");
  const Alone alone(state_->admission);
  state_->threads_per_group = count;
}

int Engine::threads_per_group() const { return state_->threads_per_group; }

bool Engine::has_computed() const { return state_->has_computed; }

CollectiveCounts Engine::collective_counts() const { return state_->measured.counts(); }

void Engine::reset_collective_counts() { state_->measured.reset_counts(); }

void Engine::start_profile() {
  const Alone alone(state_->admission);
  state_->measured.start_profile();
}

std::vector<RegionTime> Engine::stop_profile() {
  const Alone alone(state_->admission);
  return state_->measured.stop_profile();
}

std::int64_t Engine::start_timeline() {
  const Alone alone(state_->admission);
  return state_->measured.start_timeline();
}

std::vector<TaskTime> Engine::stop_timeline() {
  const Alone alone(state_->admission);
  return state_->measured.stop_timeline();
}

bool Engine::start_trace() {
  const Alone alone(state_->admission);
  return state_->measured.start_trace();
}

bool Engine::is_traced() const { return state_->measured.is_traced(); }

EngineTrace Engine::stop_trace() {
  const Alone alone(state_->admission);
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
  std::optional<Admitted> admitted;
  if (!WithinTask::is_here()) admitted.emplace(state.admission, executable.communicates);
  ArenaPool::Lease arena(state.arenas, executable.arena_bytes);
  std::vector<Tiles> outputs = make_outputs(executable, inputs);
  // No change is made while an execution is in flight.
  if (executable.is_short && !state.measured.notes_tasks()) {
    const PortBuffers ports(inputs, outputs);
    const DefaultFloatMode mode;
    on_begin();
    run_in_order(executable, arena.data(), ports);
    if (executable.has_collectives()) state.measured.count_alone(executable);
    return outputs;
  }
  const RootBuffers memory(arena.data(), inputs, outputs);
  const CallerHome home = state.workers.start(executable);
  Frame root(executable, memory.binding, nullptr, home.threads_up_to);
  root.bind(memory.buffers, 0, 0);
  Execution execution(root, {.num_lists = state.workers.num_lists(),
                             .threads_per_group = state.threads_per_group,
                             .has_timeline = state.measured.has_timeline(),
                             .joins_short_bodies = !state.measured.notes_tasks()});
  const DefaultFloatMode mode;
  Run run{.execution = execution, .node = home.node};
  on_begin();
  state.workers.add(run, executable);
  state.workers.run(run);
  state.measured.end(run.notes, executable, execution);
  if (const std::exception_ptr fault = execution.fault()) std::rethrow_exception(fault);
  return outputs;
}

}  // namespace tessera::run
