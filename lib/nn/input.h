// What layers are called with.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/array.h>

namespace tessera::nn {

/// A number, for messages.
std::string text_of(double number);
/// The array that a layer reads. Throws UserError for a number or an empty Array, and for an array
/// of fewer dimensions than `least_rank`. `wanted`: the shape, for messages.
const Array& input_of(const std::string& layer, const Operand& x, const std::string& wanted,
                      std::int64_t least_rank = 1);

}  // namespace tessera::nn
