#include "nn/input.h"

#include <sstream>

#include <tessera/error.h>

namespace tessera::nn {

std::string text_of(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

const Array& input_of(const std::string& layer, const Operand& x, const std::string& wanted,
                      std::int64_t least_rank) {
  if (!x.is_number() && x.array.is_empty()) {
    throw UserError({.what = layer + ": the input is an empty Array",
                     .where = x.where,
                     .found = "a default-constructed or moved-from handle",
                     .wanted = wanted,
                     .cure = "assign an array to it first; use std::move only on handles that are "
                             "no longer needed"});
  }
  if (!x.is_number() && x.array.rank() >= least_rank) return x.array;
  throw UserError(
      {.what = layer +
               (x.is_number() ? ": the input is a number" : ": the input has too few dimensions"),
       .where = x.where,
       .found = x.is_number() ? "the number " + text_of(x.real) + ", a scalar of shape []"
                              : to_string(x.array.type()),
       .wanted = wanted,
       .cure = x.is_number() ? "pass an array: full(shape, number) fills one with a number"
                             : "add the missing dimensions with expand_dims or reshape"});
}

}  // namespace tessera::nn
