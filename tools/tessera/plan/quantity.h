// Numbers with units, such as 25GB/s, 2us or 20TFLOP/s.
#pragma once

#include <string>

namespace tessera::cli {

enum class Quantity { byte_rate, flop_rate, time };

/// The number in bytes per second, FLOP per second or seconds. Throws UserError if it is not a
/// number with a unit of this quantity, or not above 0 (a time may be 0). `flag` is the name of the
/// flag, for the message.
double parse_quantity(const std::string& flag, const std::string& text, Quantity quantity);

/// For example `25 GB/s`, `20 TFLOP/s`, `2 us`: with the largest unit that gives at least 1.
std::string quantity_text(double value, Quantity quantity);

}  // namespace tessera::cli
