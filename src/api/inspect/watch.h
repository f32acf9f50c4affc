// The values of arrays that are being traced, for to_string and debuggers. They are computed on
// demand from the arrays that the traced function was called with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/array_node.h"

namespace tessera::detail {

/// The value of a traced array. Within vmap, it has one more leading dimension for each vmap level
/// that it depends on, the outermost level first.
struct Seen {
  Array value;
  std::vector<bool> varies;  // per level of vmap; missing: false
};
/// Computes a value; nullopt if it is not known.
using Look = std::function<std::optional<Seen>()>;

/// A vmap around the functions that are traced.
struct VmapLevel {
  std::int64_t size = 0;
  std::string axis;
};

/// While it exists, the values of `trace` can be seen as far as the values of its inputs are known.
class Watching {
 public:
  /// `inputs`: one per argument of the traced function; none: they are not known.
  Watching(const trace::Trace& trace, std::vector<Look> inputs,
           std::optional<VmapLevel> level = std::nullopt);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
};

/// The value of an array that is concrete or traced by this thread; nullopt if it is not known.
std::optional<Seen> seen(const Array& array);
std::vector<Look> looks_at(const std::vector<Array>& arrays);
/// The array as the argument of a function that vmap calls for each row along dimension 0.
Look rows_of(Array array);
/// Position `index` along dimension 0, without that dimension.
Look slice_of(Array array, std::int64_t index);
/// The first elements of a concrete array: `[1, 2]`.
std::string elements_text(const Array& x);
/// What to_string adds to the type: `(traced) [1, 2]`.
std::string traced_text(const Array& array);

}  // namespace tessera::detail
