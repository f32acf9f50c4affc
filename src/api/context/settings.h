// The settings of a context that decide how, and for what, functions are traced and compiled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <tessera/types.h>

#include "base/dot_unit.h"
#include "run/target.h"

namespace tessera::run {
class Backend;
}

namespace tessera::detail {

enum class EngineKind : std::uint8_t { host, reference, pjrt };

struct EngineChoice {
  EngineKind kind = EngineKind::host;
  run::Backend* backend = nullptr;  // for pjrt; lives until the end of the process
};

struct Settings {
  EngineChoice engine;
  DotUnit dot_unit = DotUnit::portable;
  std::int64_t grains = 8;
  Numerics numerics = Numerics::exact;
  int num_threads = 0;  // that work is divided for; 0: those of the engine
  run::World world = {};
  bool checks_indices = false;
};

/// The target for which programs are compiled with these settings.
run::Target target_of(const Settings& settings);

/// All settings of the current context, read atomically. A call reads them once and passes them on,
/// because another thread may change them meanwhile, and the key of a cache must be made from the
/// same settings that the trace uses.
Settings current_settings();

std::string_view name(EngineKind engine);
/// Throws UserError unless a program may use this many threads.
void check_num_threads(int count, const std::string& subject, const Span& where);
/// The unit of that name, or the best one for `auto`; throws UserError if there is none here.
DotUnit dot_unit_named(std::string_view name, const std::string& subject, const Span& where);

}  // namespace tessera::detail
