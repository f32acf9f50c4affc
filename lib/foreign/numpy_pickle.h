// Arrays of NumPy in pickles.
#pragma once

#include <optional>
#include <string>

#include "foreign/foreign.h"
#include "foreign/unpickle.h"

namespace tessera::foreign {

/// An array of NumPy.
struct NumpyArray {
  std::string type;  // as in .npy files: "<f4"
  Shape shape;
  /// Row-major; the pickle must outlive them. Their size need not fit the shape in a damaged file.
  Content elements;
};

/// The array that the calls of a value make, which are not run; nothing for other values.
std::optional<NumpyArray> numpy_array(const Value& value);

}  // namespace tessera::foreign
