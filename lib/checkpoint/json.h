// JSON as used in the files of checkpoints. It is stricter than usual: each name in an object
// occurs once, nesting is limited, and all numbers except the metric are whole.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera::checkpoint {

using Json = nlohmann::json;

/// Says what is wrong with a text. The code that reads the file turns it into a UserError.
class BadText : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws BadText for text that is not JSON, equal names in an object, and deep nesting.
Json parse_json(std::string_view text);
/// Throws UserError if a string is not UTF-8.
std::string dump_json(const Json& object);
/// The member `name` of an object. Throws BadText if there is none. The functions below throw
/// BadText for a value of another kind.
const Json& member(const Json& object, const std::string& name);
std::string text_at(const Json& object, const std::string& name);
/// A whole number from 0 to 2^62.
std::int64_t whole_number(const Json& value);
std::int64_t whole_number_at(const Json& object, const std::string& name);
/// A list of sizes whose product is at most 2^59, so that an array has at most 2^62 bytes.
Shape shape_at(const Json& object, const std::string& name);

/// The name of a dtype in the safetensors format.
const char* safetensors_name(DType dtype);
/// The inverse; empty for names of types that arrays do not have.
std::optional<DType> find_safetensors_dtype(const std::string& name);
/// The same; throws BadText for other names.
DType dtype_of_safetensors(const std::string& name);

}  // namespace tessera::checkpoint
