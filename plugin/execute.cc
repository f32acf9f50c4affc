// Calls of compiled programs.
#include <utility>

#include <tessera/error.h>

#include "plugin/call.h"
#include "plugin/program.h"
#include "run/threads/within_task.h"

namespace tessera::plugin {

namespace {

/// One call: what it reads and writes.
struct Call {
  std::shared_ptr<const CompiledProgram> compiled;
  std::vector<std::vector<TilePtr>> arguments;  // per argument and tile
  std::vector<bool> is_donated;                 // per argument
  std::vector<std::vector<TilePtr>> results;    // per result and tile
  CompletionPtr done = std::make_shared<Completion>();

  void finish(const FailurePtr& failure);
  void run();
};

void Call::finish(const FailurePtr& failure) {
  arguments.clear();
  for (const std::vector<TilePtr>& tiles : results) {
    for (const TilePtr& tile : tiles) tile->ready->finish(failure);
  }
  done->finish(failure);
}

void Call::run() {
  FailurePtr failure;
  try {
    std::vector<run::Tiles> inputs;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      run::Tiles tiles;
      for (TilePtr& tile : arguments[i]) {
        // Already done, unless the program that computes it runs on another client.
        if (const FailurePtr earlier = tile->ready->wait()) throw Failed(earlier);
        // The program may overwrite tiles that nobody else holds.
        const bool is_own = is_donated[i] && tile.use_count() == 1;
        tiles.push_back(is_own ? std::move(tile->data) : tile->data);
      }
      inputs.push_back(std::move(tiles));
    }
    arguments.clear();
    std::vector<run::Tiles> outputs = compiled->program.run(std::move(inputs));
    for (std::size_t i = 0; i < results.size(); ++i) {
      for (std::size_t t = 0; t < results[i].size(); ++t) {
        results[i][t]->data = std::move(outputs[i][t]);
      }
    }
  } catch (...) {
    failure = current_failure();
  }
  finish(failure);
}

[[noreturn]] void fail_arguments(const std::string& found, const std::string& wanted) {
  throw UserError({.what = "tessera: the call does not match the compiled program",
                   .found = found,
                   .wanted = wanted,
                   .cure = "call the jitted function, which compiles again when arguments change"});
}

/// The tiles of one argument. If it is donated, takes them out of its buffers.
std::vector<TilePtr> tiles_of(const abi::Execute& a, std::size_t number, const Port& port,
                              bool is_donated) {
  std::vector<TilePtr> tiles(port.num_tiles);
  for (std::size_t device = 0; device < a.num_devices; ++device) {
    abi::Buffer& buffer = *a.arguments[device][number];
    const std::size_t tile = port.tile_of[device];
    if (buffer.type != port.type || buffer.dims != port.dims[tile]) {
      fail_arguments("argument " + std::to_string(number) + " with a different type or shape",
                     "the types and shapes that the program was compiled for");
    }
    TilePtr held = buffer.tile();
    if (is_donated) buffer.release();
    if (tiles[tile] == nullptr) tiles[tile] = std::move(held);
  }
  return tiles;
}

void check_call(const abi::Execute& a) {
  const CompiledProgram& compiled = *a.loaded->compiled;
  if (a.loaded->is_deleted)
    fail_arguments("a program that was deleted", "a program that has not been deleted");
  if (a.num_arguments != compiled.arguments.size() || a.num_devices != compiled.num_partitions) {
    fail_arguments(std::to_string(a.num_arguments) + " arguments on " +
                       std::to_string(a.num_devices) + " devices",
                   std::to_string(compiled.arguments.size()) + " arguments on " +
                       std::to_string(compiled.num_partitions) + " devices");
  }
  // Checked before any argument is given away.
  for (std::size_t device = 0; device < a.num_devices; ++device) {
    for (std::size_t i = 0; i < a.num_arguments; ++i) a.arguments[device][i]->tile();
  }
}

std::vector<bool> donated(const abi::Execute& a) {
  std::vector<bool> result = a.loaded->compiled->program.donated();
  for (std::size_t i = 0; i < a.options->num_not_donated; ++i) {
    result[static_cast<std::size_t>(a.options->not_donated[i])] = false;
  }
  return result;
}

std::shared_ptr<Call> call_of(const abi::Execute& a) {
  auto call = std::make_shared<Call>();
  call->compiled = a.loaded->compiled;
  call->is_donated = donated(a);
  const CompiledProgram& compiled = *call->compiled;
  for (std::size_t i = 0; i < compiled.arguments.size(); ++i) {
    call->arguments.push_back(tiles_of(a, i, compiled.arguments[i], call->is_donated[i]));
  }
  for (const Port& port : compiled.results) {
    std::vector<TilePtr> tiles;
    for (std::size_t t = 0; t < port.num_tiles; ++t) {
      tiles.push_back(
          std::make_shared<Tile>(Tile{.ready = std::make_shared<Completion>(), .data = nullptr}));
    }
    call->results.push_back(std::move(tiles));
  }
  return call;
}

/// Starts the call. A program that calls Python has finished when this returns, so what it prints
/// and raises belongs to this call, as on JAX's own CPU backend.
void start(const std::shared_ptr<Call>& call, WorkQueue& queue) {
  const bool calls_host = call->compiled->program.calls_host();
  const auto work = [call] { call->run(); };
  if (run::WithinTask::is_here()) {
    work();
  } else if (call->compiled->is_short || calls_host) {
    queue.add_short(work);
  } else {
    queue.add(work);
  }
  if (!calls_host) return;
  if (const FailurePtr failure = call->done->wait()) throw Failed(failure);
}

void execute(abi::Execute& a) {
  check_call(a);
  const std::shared_ptr<Call> call = call_of(a);
  start(call, a.loaded->devices[0]->client->queue);
  for (std::size_t i = 0; i < call->results.size(); ++i) {
    const Port& port = call->compiled->results[i];
    for (std::size_t device = 0; device < a.num_devices; ++device) {
      const std::size_t tile = port.tile_of[device];
      abi::Device* const on = a.device != nullptr ? a.device : a.loaded->devices[device];
      a.outputs[device][i] = new abi::Buffer(
          port.type, port.dims[tile], on->memories[port.memory_kind], call->results[i][tile]);
    }
  }
  for (std::size_t device = 0; a.completed != nullptr && device < a.num_devices; ++device) {
    a.completed[device] = new abi::Event{call->done};
  }
}

}  // namespace

void fill_execute_functions(abi::PluginApi& api) { enter<abi::Execute, execute>(api); }

}  // namespace tessera::plugin
