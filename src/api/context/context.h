// What a Context owns.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/engine.h>

#include "api/array_node.h"
#include "api/context/settings.h"
#include "base/lru_cache.h"

namespace tessera::detail {

struct Program;

struct EagerProgram {
  std::shared_ptr<Program> program;
  // The objects whose addresses are in the key.
  std::vector<PlacementPtr> placements;
  std::vector<ir::Attributes> attributes;
};

/// Programs of eager calls. Thread-safe.
class EagerPrograms {
 public:
  /// nullptr if there is none.
  std::shared_ptr<Program> find(std::string_view key);
  /// Another thread may have inserted the same program meanwhile.
  void insert(const std::string& key, const EagerProgram& program);
  std::size_t size();

 private:
  std::mutex mutex_;
  LruCache<EagerProgram> programs_{4096};
};

/// Thread-safe.
struct ContextState {
 public:
  ContextState() = default;
  explicit ContextState(const ContextState& settings_of);

  Settings settings() const;
  template <typename T>
  void set(T Settings::*setting, T value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settings_.*setting = value;
  }
  /// Makes this process compute alone, for all devices.
  void set_alone();
  /// The processes of the context, if they are not those of the run. Does not change later.
  const run::World* own_world() const { return own_world_ ? &*own_world_ : nullptr; }
  /// nullopt selects the best unit of this machine.
  void set_dot_unit(std::optional<DotUnit> unit);

  EagerPrograms eager_programs;

 private:
  mutable std::mutex mutex_;
  Settings settings_;
  bool has_best_dot_unit_ = true;  // then settings_.dot_unit does not count
  std::optional<run::World> own_world_;
};

/// The context of this thread.
ContextState& current_context();

}  // namespace tessera::detail
