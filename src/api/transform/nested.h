// Traces the user's functions that become nested functions of an equation.
#pragma once

#include <functional>
#include <vector>

#include <tessera/jit.h>

#include "api/apply.h"
#include "api/inspect/watch.h"

namespace tessera::detail {

/// A function of the user, traced on its own.
struct Nested {
  ir::Function function;        // inputs: the leaves of the arguments, then what was captured
  std::vector<Array> captured;  // from outside
  std::shared_ptr<void> result;
  std::vector<Type> results;  // of the result's leaves
  std::vector<std::string> result_paths;
};
/// Which values can be seen while a nested function is traced.
struct Sights {
  std::vector<Look> inputs = {};                        // per leaf of the arguments, if known
  std::optional<VmapLevel> level = {};                  // if vmap calls it
  std::vector<std::optional<Seen>>* results = nullptr;  // to be set: of the result's leaves
};
/// Traces `body` on arguments whose leaves have `types`, within the innermost trace.
Nested trace_nested(Body& body, const std::vector<Type>& types, const Span& where,
                    Sights sights = {});

/// The captured arrays of all functions, each once.
std::vector<Array> all_captured(const std::vector<const Nested*>& functions);
/// Gives `nested` inputs for all of `captured`, in this order, before input `place`. `num_leaves`:
/// the number of its inputs without the captured ones.
void take_captured(Nested& nested, const std::vector<Array>& captured, std::size_t num_leaves,
                   std::size_t place);

/// The mesh of the arrays, or the current one.
Mesh mesh_of(const std::vector<Array>& arrays, const Span& where);
/// Runs `emit`, which records into the innermost trace. Outside of any trace, the recorded program
/// runs at once on the mesh of `arrays`.
std::vector<Array> recorded(const std::vector<Array>& arrays, const Span& where,
                            const std::function<std::vector<Array>()>& emit);

/// Convert between values of the innermost trace and arrays.
std::vector<Array> as_arrays(const std::vector<ir::ValueId>& values);
std::vector<ir::ValueId> lift_all(const std::vector<Array>& arrays, const Span& where);
/// The builder of the innermost trace, set to append equations at `where`.
ir::Builder& builder_at(const Span& where);

std::vector<Type> types_of(const std::vector<Array>& arrays);
std::vector<Array> leaves_of(const Walk& walk, const Span& where);
inline std::shared_ptr<const ir::Function> shared_function(ir::Function function) {
  return std::make_shared<const ir::Function>(std::move(function));
}

}  // namespace tessera::detail
