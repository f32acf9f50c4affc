#include "checkpoint/json.h"

#include <algorithm>
#include <set>

#include <tessera/error.h>

namespace tessera::checkpoint {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
constexpr std::int64_t kMostElements = kMostBytes / 8;
constexpr int kMostLevels = 16;

/// Looks at every name before it is stored, as the last one of equal names would win silently.
class Names {
 public:
  bool operator()(int level, Json::parse_event_t event, const Json& parsed) {
    if (level > kMostLevels) throw BadText("it is nested too deep");
    if (event == Json::parse_event_t::object_start) names_.emplace_back();
    if (event == Json::parse_event_t::object_end) names_.pop_back();
    if (event == Json::parse_event_t::key && !names_.back().insert(parsed).second) {
      throw BadText("the name " + parsed.dump(-1, ' ', true) + " stands twice");
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;
};

}  // namespace

Json parse_json(std::string_view text) {
  try {
    Names names;
    return Json::parse(text, [&](int level, Json::parse_event_t event, Json& parsed) {
      return names(level, event, parsed);
    });
  } catch (const Json::exception& error) {
    const std::string what = error.what();
    throw BadText("it is no JSON: " + what.substr(what.find("] ") + 2));
  }
}

std::string dump_json(const Json& object) {
  try {
    return object.dump();
  } catch (const Json::exception&) {
    throw UserError(
        {.what = "checkpoint: a name or a text is not UTF-8",
         .found = object.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200),
         .wanted = "names of arrays and metadata in UTF-8",
         .cure = "choose other keys for the maps of the tree"});
  }
}

const Json& member(const Json& object, const std::string& name) {
  if (!object.is_object()) throw BadText("an object with " + name + " is something else");
  const auto found = object.find(name);
  if (found == object.end()) throw BadText("the member " + name + " is missing");
  return *found;
}

std::string text_at(const Json& object, const std::string& name) {
  const Json& value = member(object, name);
  if (!value.is_string()) throw BadText(name + " is no text");
  return value;
}

std::int64_t whole_number(const Json& value) {
  if (!value.is_number_unsigned()) throw BadText("a whole number is something else");
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(kMostBytes)) throw BadText("a number is too large");
  return static_cast<std::int64_t>(number);
}

std::int64_t whole_number_at(const Json& object, const std::string& name) {
  return whole_number(member(object, name));
}

Shape shape_at(const Json& object, const std::string& name) {
  const Json& sizes = member(object, name);
  if (!sizes.is_array()) throw BadText(name + " is no list");
  Shape shape;
  std::int64_t product = 1;
  for (const Json& size : sizes) {
    shape.push_back(whole_number(size));
    // A size of 0 must not hide how large the others are.
    const std::int64_t size_or_one = std::max<std::int64_t>(1, shape.back());
    if (size_or_one > kMostElements / product) throw BadText(name + " is too large");
    product *= size_or_one;
  }
  return shape;
}

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "BOOL";
    case DType::i32:
      return "I32";
    case DType::u32:
      return "U32";
    case DType::bf16:
      return "BF16";
    case DType::f32:
      return "F32";
    case DType::f64:
      break;
  }
  return "F64";
}

DType dtype_of_safetensors(const std::string& name) {
  for (const DType dtype :
       {DType::boolean, DType::i32, DType::u32, DType::bf16, DType::f32, DType::f64}) {
    if (name == safetensors_name(dtype)) return dtype;
  }
  throw BadText("the type " + Json(name).dump(-1, ' ', true) +
                " is none of BOOL, I32, U32, BF16, F32, F64");
}

}  // namespace tessera::checkpoint
