// Walking trees: leaves, structure, paths.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <unordered_set>

#include <tessera/error.h>
#include <tessera/tree.h>

#include "api/array_node.h"

namespace tessera::detail {

namespace {

constexpr std::size_t kNone = std::string::npos;

std::string join(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  return std::string(prefix) + "/" + std::string(name);
}

template <typename T>
void append_bytes(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// The next name of a stringised list; moves `names` behind that name.
std::string_view next_name(const char*& names) {
  while (*names == ' ' || *names == ',') ++names;
  const char* begin = names;
  while (*names != '\0' && *names != ',' && *names != ' ') ++names;
  return {begin, static_cast<std::size_t>(names - begin)};
}

template <typename T>
std::string text_as(const void* value) {
  T number;
  std::memcpy(&number, value, sizeof(number));
  return fmt::format("{}", number);
}

/// A number of this size and kind as text.
std::string text_of(const void* value, std::size_t size, Walk::Bits kind) {
  switch (kind) {
    case Walk::Bits::boolean:
      return text_as<bool>(value);
    case Walk::Bits::real:
      if (size == sizeof(float)) return text_as<float>(value);
      return size == sizeof(double) ? text_as<double>(value) : text_as<long double>(value);
    default:
      break;
  }
  const bool is_natural = kind == Walk::Bits::natural;
  switch (size) {
    case 1:
      return is_natural ? text_as<std::uint8_t>(value) : text_as<std::int8_t>(value);
    case 2:
      return is_natural ? text_as<std::uint16_t>(value) : text_as<std::int16_t>(value);
    case 4:
      return is_natural ? text_as<std::uint32_t>(value) : text_as<std::int32_t>(value);
    default:
      return is_natural ? text_as<std::uint64_t>(value) : text_as<std::int64_t>(value);
  }
}

}  // namespace

namespace {

constinit const std::shared_ptr<const ParamInfo> kNoParameter;

}  // namespace

void Walk::leaf(Array& array) {
  if (want_ == Want::structure) structure_ += 'A';
  add(array, kNoParameter);
}

void Walk::leaf(Param& param) {
  if (want_ == Want::structure) {
    structure_ += 'P';
    append_bytes(structure_, param.info().get());
  }
  add(param, param.info());
}

void Walk::leaf(random::Key& key) {
  if (want_ == Want::structure) structure_ += 'K';
  add(key.data(), kNoParameter);
}

void Walk::add(Array& array, const std::shared_ptr<const ParamInfo>& info) {
  leaves_.push_back({&array, &info});
  if (want_ == Want::paths) paths_.push_back(leaf_path(info.get()));
}

std::string Walk::leaf_path(const ParamInfo* info) const {
  if (info == nullptr || info->path.empty() || frames_.empty()) return path_;
  const std::string_view path = path_;
  if (module_prefix_ != kNone) return join(path.substr(0, module_prefix_), info->path);
  if (frames_.back().is_list) return join(path.substr(0, frames_.back().prefix), info->path);
  return path_;
}

void refuse_static_without_key() {
  throw UserError({.what = "a value in a Static has no key",
                   .found = "an empty key",
                   .wanted = "a text that differs for different values",
                   .cure = "write Static<T>{value, key}; only numbers, strings, specs and meshes "
                           "need no key"});
}

void Walk::fixed(std::string_view text) {
  if (want_ == Want::paths) statics_.emplace_back(path_, fmt::format("'{}'", text));
  if (want_ != Want::structure) return;
  structure_ += 'T';
  append_bytes(structure_, text.size());
  structure_ += text;
}

void Walk::fixed_bits(const void* value, std::size_t size, Bits kind) {
  if (want_ == Want::paths) statics_.emplace_back(path_, text_of(value, size, kind));
  if (want_ != Want::structure) return;
  structure_ += 'B';
  structure_.append(static_cast<const char*>(value), size);
}

void Walk::enter(const char* names, bool is_module, bool is_list) {
  frames_.push_back({.prefix = path_.size(),
                     .names = names,
                     .opens_module = is_module && module_prefix_ == kNone,
                     .is_list = is_list});
  if (frames_.back().opens_module) module_prefix_ = path_.size();
}

void Walk::enter_struct(const Fields& fields, const Field* list, std::size_t count) {
  if (want_ == Want::structure) {
    structure_ += 'S';
    structure_ += fields.names;
  }
  if (want_ == Want::paths) check_fields(fields, list, count);
  enter(fields.names, fields.is_module, false);
}

void Walk::enter_items(std::size_t count, bool is_list) {
  if (want_ == Want::structure) {
    structure_ += is_list ? 'L' : 'I';
    append_bytes(structure_, count);
  }
  enter(nullptr, false, is_list);
}

void Walk::next_item(std::size_t index) {
  Frame& frame = frames_.back();
  if (frames_.size() == 1 && index > 0) item_ends_.push_back(leaves_.size());
  if (want_ != Want::paths) return;
  path_.resize(frame.prefix);
  if (!path_.empty()) path_ += '/';
  if (frame.names != nullptr) {
    path_ += next_name(frame.names);
  } else {
    path_ += std::to_string(index);
  }
}

void Walk::next_item(std::string_view name) {
  keys_.emplace_back(name);
  if (want_ == Want::structure) fixed(name);
  if (want_ != Want::paths) return;
  path_.resize(frames_.back().prefix);
  if (!path_.empty()) path_ += '/';
  path_ += name;
}

void Walk::leave() {
  if (frames_.size() == 1) item_ends_.push_back(leaves_.size());
  path_.resize(frames_.back().prefix);
  if (frames_.back().opens_module) module_prefix_ = kNone;
  frames_.pop_back();
  if (want_ == Want::structure) structure_ += ')';
}

/// A field that is not listed would silently become a constant: an array would not be trained, and
/// a number would keep the value of the first call. So this looks for bytes that belong to no
/// listed field and are not there to align the next one.
void Walk::check_fields(const Fields& fields, const Field* list, std::size_t count) {
  struct Range {
    std::size_t start, end, align;
  };
  const auto* base = static_cast<const char*>(fields.object);
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(list[i].address) - base);
    if (offset <= fields.size) ranges.push_back({offset, offset + list[i].size, list[i].align});
  }
  ranges.push_back({fields.size, fields.size, fields.align});
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.start < b.start; });
  std::size_t reached = fields.hidden;
  for (const Range& range : ranges) {
    const std::size_t aligned = (reached + range.align - 1) / range.align * range.align;
    if (range.start > aligned) {
      throw UserError(
          {.what = fmt::format("TESSERA_{}({}): a field is not listed",
                               fields.is_module ? "MODULE" : "TREE", fields.names),
           .found = fmt::format("{} bytes at offset {} of {} that belong to no listed field",
                                range.start - reached, reached, fields.size),
           .wanted = "every field of the struct",
           .cure =
               "list it; wrap a field that is neither an array nor a number in tessera::Static"});
    }
    reached = std::max(reached, range.end);
  }
}

TESSERA_DEFINE_COPYABLE(Walk);
Walk::Walk(Want want) : want_(want) {}

const std::vector<std::string>& Walk::paths() {
  std::unordered_set<std::string_view> seen;
  for (const std::string& path : paths_) {
    if (seen.insert(path).second) continue;
    throw UserError({.what = "two leaves of a tree have the same path",
                     .found = path,
                     .wanted = "different paths",
                     .cure = "list a shared parameter once; give others different scopes, or put "
                             "the parts into named fields of a TESSERA_TREE"});
  }
  return paths_;
}

namespace {

void check_same_leaves(std::size_t expected, std::size_t found, const char* what,
                       const Span& where) {
  if (expected == found) return;
  throw UserError({.what = fmt::format("{}: the trees differ in structure", what),
                   .where = where,
                   .found = fmt::format("number of leaves: {}", found),
                   .wanted = fmt::format("number of leaves: {}", expected),
                   .cure = "pass trees of the same structure"});
}

}  // namespace

void check_keys(const char* what, const Walk& expected, const Walk& found, const Span& where) {
  const auto [missing, other] = std::ranges::mismatch(expected.keys(), found.keys());
  const bool has_missing = missing != expected.keys().end();
  const bool has_other = other != found.keys().end();
  if (!has_missing && !has_other) return;
  throw UserError({.what = fmt::format("{}: the maps in the trees have different keys", what),
                   .where = where,
                   .found = has_other ? fmt::format("key '{}'", *other) : "no more keys",
                   .wanted = has_missing ? fmt::format("key '{}'", *missing) : "no more keys",
                   .cure = "pass trees of the same structure"});
}

std::vector<Array> matching_leaves(const Walk& expected, const Walk& found,
                                   const std::source_location& where) {
  const Span line = trace::call_span(where);
  check_same_leaves(expected.leaves().size(), found.leaves().size(), "tree_map", line);
  check_keys("tree_map", expected, found, line);
  return arrays_of(found);
}

void replace_leaves(const Walk& w, const std::vector<Array>& leaves) {
  check_same_leaves(w.leaves().size(), leaves.size(), "tree_replace", Span());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Walk::Leaf& leaf = w.leaves()[i];
    *leaf.array = leaf.info() == nullptr ? leaves[i] : with_info(leaves[i], leaf.info());
  }
}

std::vector<Array> arrays_of(const Walk& w) {
  std::vector<Array> arrays;
  arrays.reserve(w.leaves().size());
  for (const Walk::Leaf& leaf : w.leaves()) arrays.push_back(*leaf.array);
  return arrays;
}

std::vector<Param> params_of(Walk& w) {
  const std::vector<std::string>& paths = w.paths();
  std::vector<Param> params;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Walk::Leaf& leaf = w.leaves()[i];
    if (leaf.info() == nullptr) {
      params.emplace_back(*leaf.array, paths[i]);
    } else {
      params.push_back(static_cast<const Param&>(*leaf.array));  // only a Param has `info`
    }
  }
  return params;
}

void unbox(const Walk& w) {
  for (const Walk::Leaf& leaf : w.leaves()) {
    if (leaf.info() == nullptr || !leaf.info()->is_annotated) continue;
    auto& param = static_cast<Param&>(*leaf.array);  // only a Param has `info`
    const Param plain(param.value(), leaf.info()->path);
    param = leaf.info()->is_trained ? plain : plain.untrained();
  }
}

}  // namespace tessera::detail
