// The profiler that jax.profiler starts and stops.
#pragma once

#include "run/pjrt/abi_profiler.h"

namespace tessera::plugin {

run::pjrt::abi::ProfilerExtension profiler_extension();

}  // namespace tessera::plugin
