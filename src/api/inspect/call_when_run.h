// Calls the host with the values of arrays while a program runs.
#pragma once

#include <functional>
#include <source_location>
#include <vector>

#include <tessera/array.h>

#include "ops/host_array.h"

namespace tessera::detail {

using Receiver = std::function<void(const std::vector<ops::HostArray>&)>;
/// Calls `receive` now, or emits an equation that calls it.
void call_when_run(Receiver receive, const std::vector<Operand>& operands,
                   const std::source_location& where);

/// The operands as arrays: numbers become scalars.
std::vector<Array> arrays_of(const std::vector<Operand>& operands);
/// The values of an array that was computed.
ops::HostArray values_of(const Array& array);
/// An array without a mesh that has these values.
Array array_with(const ops::HostArray& values);
/// The array whose elements the engine passes to a callback.
ops::HostArray copy_of(const Type& type, const std::byte* elements);

}  // namespace tessera::detail
