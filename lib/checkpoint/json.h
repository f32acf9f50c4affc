// JSON as the files of checkpoints have it: no name twice, not too deep, whole numbers only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera::checkpoint {

using Json = nlohmann::json;

/// Why a text is not what it should be; the reader of the file makes a UserError of it.
class BadText : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws BadText.
Json parse_json(std::string_view text);
/// Throws UserError for texts that are not UTF-8.
std::string dump_json(const Json& object);
/// The member `name` of an object; throws BadText where there is none.
const Json& member(const Json& object, const std::string& name);
std::string text_at(const Json& object, const std::string& name);
/// From 0 to 2^62.
std::int64_t whole_number(const Json& value);
std::int64_t whole_number_at(const Json& object, const std::string& name);
/// Sizes, whose product is below 2^62.
Shape shape_at(const Json& object, const std::string& name);

/// The names of element types in the safetensors format.
const char* safetensors_name(DType dtype);
/// Throws BadText for types that no array has.
DType dtype_of_safetensors(const std::string& name);

}  // namespace tessera::checkpoint
