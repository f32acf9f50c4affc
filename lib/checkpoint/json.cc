#include "checkpoint/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <tessera/error.h>

#include "data/unicode.h"

namespace tessera::checkpoint {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
constexpr std::int64_t kMostElements = kMostBytes / 8;
constexpr std::size_t kMostLevels = 16;

/// A string in ASCII, whether it is UTF-8 or not.
std::string shown(const std::string& text) {
  return Json(text.substr(0, 100)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// Builds a value from the events of the parser and refuses objects with equal names. The parser's
/// own builder silently keeps the last of equal names; with a callback that checks them, it takes
/// time quadratic in the size of an object.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json result() && { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!is_new) throw BadText("the name " + Json(name).dump(-1, ' ', true) + " occurs twice");
    member_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const Json::exception& error) override {
    const std::string what = error.what();
    if (what.find("ill-formed UTF-8") != std::string::npos) {
      const std::string text = token.substr(1, token.find('"', 1) - 1);  // without its quotes
      throw BadText("a string is not UTF-8: " + shown(text) +
                    inside(what.find("object key") == std::string::npos));
    }
    throw BadText("it is not valid JSON: " + what.substr(what.find("] ") + 2));
  }

 private:
  Json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->emplace_back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= kMostLevels) throw BadText("it is nested too deeply");
    Json& opened = place();
    opened = std::move(value);
    open_.push_back(&opened);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  /// The names of the objects that are open, from the inside out, for messages. `has_member`: the
  /// next value belongs to the last member of the innermost one.
  std::string inside(bool has_member) const {
    std::string text;
    const Json* value = has_member ? member_ : nullptr;
    for (auto object = open_.rbegin(); object != open_.rend(); value = *object++) {
      for (const auto& [name, item] : (*object)->items()) {
        if ((*object)->is_object() && &item == value) text += " in " + shown(name);
      }
    }
    return text;
  }

  Json root_;
  std::vector<Json*> open_;  // the objects and arrays that have not ended, outermost first
  Json* member_ = nullptr;   // where the next value of the innermost object goes
};

}  // namespace

Json parse_json(std::string_view text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return std::move(builder).result();
}

namespace {

bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const data::Char next = data::char_at(text, at);
    if (next.bytes == 0) return false;
    at += next.bytes;
  }
  return true;
}

/// The first name or string that is not UTF-8, and the names of the objects that it lies in, from
/// the inside out; empty if there is none.
std::string not_utf8(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_utf8(text) ? "" : "the string " + shown(text);
  }
  if (!value.is_structured()) return "";
  for (const auto& [name, item] : value.items()) {
    if (value.is_object() && !is_utf8(name)) return "the name " + shown(name);
    const std::string found = not_utf8(item);
    if (!found.empty()) return value.is_object() ? found + " in " + shown(name) : found;
  }
  return "";
}

}  // namespace

std::string dump_json(const Json& object) {
  try {
    return object.dump();
  } catch (const Json::exception&) {
    throw UserError({.what = "checkpoint: a name or a string is not UTF-8",
                     .found = not_utf8(object),
                     .wanted = "names of arrays and metadata in UTF-8",
                     .cure = "encode it as UTF-8, or write its bytes as hexadecimal digits"});
  }
}

const Json& member(const Json& object, const std::string& name) {
  if (!object.is_object()) throw BadText("the parent of " + name + " is not an object");
  const auto found = object.find(name);
  if (found == object.end()) throw BadText("the member " + name + " is missing");
  return *found;
}

std::string text_at(const Json& object, const std::string& name) {
  const Json& value = member(object, name);
  if (!value.is_string()) throw BadText(name + " is not a string");
  return value;
}

std::int64_t whole_number(const Json& value) {
  if (!value.is_number_unsigned()) throw BadText("a value is not a whole number of 0 or more");
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(kMostBytes)) throw BadText("a number is too large");
  return static_cast<std::int64_t>(number);
}

std::int64_t whole_number_at(const Json& object, const std::string& name) {
  return whole_number(member(object, name));
}

Shape shape_at(const Json& object, const std::string& name) {
  const Json& sizes = member(object, name);
  if (!sizes.is_array()) throw BadText(name + " is not a list");
  Shape shape;
  std::int64_t product = 1;
  for (const Json& size : sizes) {
    shape.push_back(whole_number(size));
    // Count sizes of 0 as 1: a product of 0 would let the other sizes be of any magnitude.
    const std::int64_t size_or_one = std::max<std::int64_t>(1, shape.back());
    if (size_or_one > kMostElements / product) throw BadText(name + " is too large");
    product *= size_or_one;
  }
  return shape;
}

const char* safetensors_name(DType dtype) {
  static constexpr const char* kNames[] = {"BOOL", "I8",  "I16", "I32",  "I64", "U8", "U16",
                                           "U32",  "U64", "F16", "BF16", "F32", "F64"};
  static_assert(std::size(kNames) == std::size(kAllDTypes));
  return kNames[static_cast<std::size_t>(dtype)];
}

std::optional<DType> find_safetensors_dtype(const std::string& name) {
  for (const DType dtype : kAllDTypes) {
    if (name == safetensors_name(dtype)) return dtype;
  }
  return std::nullopt;
}

DType dtype_of_safetensors(const std::string& name) {
  if (const std::optional<DType> dtype = find_safetensors_dtype(name)) return *dtype;
  throw BadText("the type " + Json(name).dump(-1, ' ', true) +
                " is not one of BOOL, I8 to I64, U8 to U64, F16, BF16, F32, F64");
}

}  // namespace tessera::checkpoint
