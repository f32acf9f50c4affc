// Calls the host with the values of arrays while a program runs.
#pragma once

#include <functional>
#include <source_location>
#include <vector>

#include <tessera/array.h>

#include "ops/host_array.h"

namespace tessera::detail {

using Receiver = std::function<void(const std::vector<ops::HostArray>&)>;
/// Calls `receive` now, or emits an equation that does.
void call_when_run(Receiver receive, const std::vector<Operand>& operands,
                   const std::source_location& where);

}  // namespace tessera::detail
