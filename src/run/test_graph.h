// Executables written by hand, for tests.
#pragma once

#include <algorithm>
#include <functional>

#include "run/engine.h"
#include "run/machine/cores.h"

namespace tessera::run::testing {

using Buffers = std::span<std::byte* const>;
using Body = std::function<void(Buffers, int part)>;

/// Two nodes with one CPU each; both have the same CPU if there is only one.
inline std::vector<NodeCpus> two_nodes() {
  const std::vector<int> cpus = allowed_cpus();
  return {{cpus.front()}, {cpus.back()}};
}

class LambdaKernel final : public Kernel {
 public:
  LambdaKernel(int parts, Body body) : parts_(parts), body_(std::move(body)) {}
  int num_parts() const override { return parts_; }
  void run(Buffers buffers, int part) const override { body_(buffers, part); }

 private:
  int parts_;
  Body body_;
};

/// A short notation for executables.
struct Graph {
  Executable executable;

  Graph() { executable.instructions.resize(1); }
  std::uint32_t place(Place place) {
    executable.places.push_back(place);
    return static_cast<std::uint32_t>(executable.places.size() - 1);
  }
  std::uint32_t arena(std::int64_t offset, std::int64_t bytes) {
    executable.arena_bytes = std::max(executable.arena_bytes, offset + bytes);
    return place({.space = Place::Space::arena, .offset = offset});
  }
  std::uint32_t input(std::uint32_t port, std::uint32_t tile = 0, std::int64_t offset = 0) {
    return place({Place::Space::input, port, tile, offset});
  }
  std::uint32_t output(std::uint32_t port, std::uint32_t tile = 0, std::int64_t offset = 0) {
    return place({Place::Space::output, port, tile, offset});
  }
  std::uint32_t task(Body body, std::vector<std::uint32_t> places = {},
                     const std::vector<std::uint32_t>& after = {}, int parts = 1,
                     std::uint32_t instruction = 0) {
    const auto id = static_cast<std::uint32_t>(executable.tasks.size());
    executable.tasks.push_back({.kernel = std::make_shared<LambdaKernel>(parts, std::move(body)),
                                .instruction = instruction,
                                .places = std::move(places),
                                .successors = {},
                                .num_predecessors = static_cast<std::uint32_t>(after.size())});
    for (std::uint32_t other : after) executable.tasks[other].successors.push_back(id);
    return id;
  }
  std::uint32_t task(Control control, std::vector<std::uint32_t> places,
                     const std::vector<std::uint32_t>& after = {}) {
    const std::uint32_t id = task(Body(), std::move(places), after);
    executable.tasks[id].kernel = nullptr;
    executable.tasks[id].control = std::make_shared<const Control>(std::move(control));
    return id;
  }
  std::vector<Tiles> run(std::vector<Tiles> inputs = {}) const {
    return Engine::instance().execute(executable, std::move(inputs));
  }
};

inline std::int32_t& number(std::byte* bytes) { return *reinterpret_cast<std::int32_t*>(bytes); }
inline std::int32_t& number(const BufferPtr& buffer) { return number(buffer->data()); }

inline BufferPtr number_buffer(std::int32_t value) {
  auto buffer = std::make_shared<Buffer>(4);
  number(buffer) = value;
  return buffer;
}

}  // namespace tessera::run::testing
