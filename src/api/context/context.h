// What a Context owns.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <tessera/engine.h>

#include "api/context/settings.h"
#include "base/lru_cache.h"

namespace tessera::detail {

/// Programs of eager calls, by program text. For several threads.
class EagerPrograms {
 public:
  std::shared_ptr<Program> find(const std::string& key);
  /// Another thread may have inserted the same program meanwhile.
  void insert(const std::string& key, const std::shared_ptr<Program>& program);

 private:
  std::mutex mutex_;
  LruCache<std::shared_ptr<Program>> programs_{4096};
};

/// For several threads.
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
  /// nullopt: the best unit of this machine.
  void set_dot_unit(std::optional<DotUnit> unit);

  EagerPrograms eager_programs;

 private:
  mutable std::mutex mutex_;
  Settings settings_;
  bool has_best_dot_unit_ = true;  // then settings_.dot_unit does not count
};

/// That of this thread.
ContextState& current_context();

}  // namespace tessera::detail
