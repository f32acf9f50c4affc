// Shardings of trees.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unordered_set>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/shardings.h>

#include "api/apply.h"
#include "api/program.h"
#include "base/suggest.h"
#include "mesh/picture.h"

namespace tessera {

namespace {

bool is_below(std::string_view path, std::string_view prefix) {
  // Trees have thousands of paths that start alike, so the cheap checks of the end come first.
  const std::size_t size = prefix.size();
  if (size == 0) return true;
  if (path.size() < size || path[size - 1] != prefix[size - 1]) return false;
  return (path.size() == size || path[size] == '/') && path.starts_with(prefix);
}

std::string join(const std::string& prefix, const std::string& path) {
  if (prefix.empty()) return path;
  return path.empty() ? prefix : prefix + "/" + path;
}

}  // namespace

namespace {

/// `paths: 0/kernel, 0/bias, ...`.
std::string some_paths(const std::vector<Shardings::Entry>& entries) {
  constexpr std::size_t kShown = 8;
  std::string text = "paths: ";
  for (std::size_t i = 0; i < entries.size() && i < kShown; ++i) {
    text += (i > 0 ? ", " : "") + entries[i].path;
  }
  return text + (entries.size() > kShown ? ", ..." : "");
}

}  // namespace

TESSERA_DEFINE_COPYABLE(Shardings);
Shardings::Shardings() = default;
Shardings::Shardings(NamedSharding all) { set("", std::move(all)); }
Shardings::Shardings(PartitionSpec all) { set("", std::move(all)); }
Shardings::Shardings(Shardings first, Shardings second) : Shardings(tuple({first, second})) {}
Shardings::Shardings(Shardings first, Shardings second, Shardings third)
    : Shardings(tuple({first, second, third})) {}

Shardings Shardings::tuple(const std::vector<Shardings>& parts) {
  Shardings result;
  for (std::size_t i = 0; i < parts.size(); ++i) result.append(std::to_string(i), parts[i]);
  return result;
}

Shardings Shardings::of(const std::vector<LeafPlacement>& leaves) {
  Shardings result;
  for (const LeafPlacement& leaf : leaves) result.set(leaf.path, leaf.sharding);
  return result;
}

void Shardings::append(const std::string& prefix, const Shardings& part) {
  if (part.is_unspecified()) {
    entries_.push_back({.path = prefix, .mesh = {}, .spec = {}, .is_specified = false});
  }
  for (Entry entry : part.entries_) {
    entry.path = join(prefix, entry.path);
    entries_.push_back(std::move(entry));
  }
}

void Shardings::set(std::string path, NamedSharding sharding) {
  entries_.push_back({.path = std::move(path),
                      .mesh = std::move(sharding.mesh),
                      .spec = std::move(sharding.spec),
                      .has_mesh = true,
                      .mpmd_idxs = std::move(sharding.mpmd_idxs)});
}

void Shardings::set(std::string path, PartitionSpec spec, AxisNames names) {
  entries_.push_back(
      {.path = std::move(path), .mesh = {}, .spec = std::move(spec), .names = names});
}

Shardings Shardings::operator[](TreePath subtree) const {
  const std::string_view path = subtree.text;
  Shardings part;
  for (const Entry& entry : entries_) {
    if (!is_below(entry.path, path)) continue;
    Entry inner = entry;
    inner.path = entry.path.size() == path.size() ? "" : entry.path.substr(path.size() + 1);
    if (path.empty()) inner.path = entry.path;
    part.entries_.push_back(std::move(inner));
  }
  if (!part.entries_.empty()) return part;
  std::vector<std::string> known;
  for (const Entry& entry : entries_) known.push_back(entry.path);
  throw UserError(
      {.what = "Shardings: there is no entry at this path",
       .where = subtree.where,
       .found = std::string(path),
       .wanted = some_paths(entries_),
       .cure = with_suggestion(path, known, "write the path of a leaf or of a subtree")});
}

const Shardings::Entry* Shardings::find(std::string_view path) const {
  for (const Entry& entry : entries_) {
    if (is_below(path, entry.path)) return &entry;
  }
  return nullptr;
}

std::string to_string(const Shardings& shardings) {
  if (shardings.is_unspecified()) return "unspecified\n";
  std::string text;
  for (const Shardings::Entry& entry : shardings.entries()) {
    std::string what = to_string(entry.spec);
    if (!entry.is_specified) what = "unspecified";
    if (entry.is_annotation) what = "as annotated";
    if (!entry.mpmd_idxs.empty()) {
      what += fmt::format(" in groups [{}]", fmt::join(entry.mpmd_idxs, ", "));
    }
    text += fmt::format("{}{}{}\n", entry.path, entry.path.empty() ? "" : ": ", what);
  }
  return text;
}

Shardings replicated(const Mesh& mesh) { return NamedSharding(mesh, P{}); }

Shardings from_annotations(const Mesh& mesh) {
  Shardings result = replicated(mesh);
  result.entries_[0].is_annotation = true;
  return result;
}

namespace detail {

Shardings replicated(const Mesh& mesh, Walk tree) {
  Shardings result;
  for (const std::string& path : tree.paths()) result.set(path, NamedSharding(mesh, P{}));
  return result;
}

Shardings fsdp_shardings(const Mesh& mesh, Walk tree, const std::string& axis,
                         const std::source_location& where) {
  Shardings result;
  const std::vector<std::string>& paths = tree.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Shape& shape = tree.leaves()[i].array->shape();
    std::vector<SpecEntry> entries;
    if (!shape.empty()) {
      const auto largest = std::max_element(shape.begin(), shape.end()) - shape.begin();
      entries.resize(static_cast<std::size_t>(largest), none);
      entries.emplace_back(axis);
    }
    result.set(paths[i], NamedSharding(mesh, PartitionSpec(std::move(entries)), where));
  }
  return result;
}

Shardings partition_specs(Walk tree) {
  Shardings result;
  const std::vector<std::string>& paths = tree.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const ParamInfo* info = tree.leaves()[i].info().get();
    if (info == nullptr) {
      result.set(paths[i], PartitionSpec());
    } else {
      result.set(paths[i], info->spec, info->names);
    }
  }
  return result;
}

void block_until_ready(const Walk& tree, const std::source_location& where) {
  for (const Walk::Leaf& leaf : tree.leaves()) leaf.array->block_until_ready(where);
}

std::vector<Array> device_put(const Walk& tree, const Shardings& shardings,
                              DevicePutOptions options, const std::source_location& where) {
  Walk walk = tree;
  const std::vector<std::string>& paths = walk.paths();
  check_paths(shardings, paths, "device_put", where);
  MeshChoice choice{Span(where)};
  for (const Shardings::Entry& entry : shardings.entries()) choice.add(entry.mesh, "the shardings");
  std::vector<Array> placed;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Walk::Leaf& leaf = walk.leaves()[i];
    const std::optional<Sharding> sharding =
        asked_sharding(shardings, paths[i], leaf.info().get(), leaf.array->type(), choice.mesh(),
                       "device_put of " + paths[i], where);
    NamedSharding named;
    named.mesh = choice.mesh();
    if (!sharding) {
      placed.push_back(*leaf.array);
      continue;
    }
    named.spec = to_spec(named.mesh, *sharding);
    named.mpmd_idxs = shardings.find(paths[i])->mpmd_idxs;
    if (options.strict) {
      check_even(named.mesh, *sharding, leaf.array->type(), "device_put of " + paths[i], where);
    }
    placed.push_back(tessera::device_put(*leaf.array, named, {}, where));
  }
  return placed;
}

std::vector<NamedSharding> leaf_shardings(Walk tree, const Shardings& shardings,
                                          const std::source_location& where) {
  const std::vector<std::string>& paths = tree.paths();
  check_paths(shardings, paths, "leaf_shardings", where);
  MeshChoice choice{Span(where)};
  for (const Shardings::Entry& entry : shardings.entries()) choice.add(entry.mesh, "the shardings");
  std::vector<NamedSharding> result;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Walk::Leaf& leaf = tree.leaves()[i];
    const std::optional<Sharding> asked =
        asked_sharding(shardings, paths[i], leaf.info().get(), leaf.array->type(where),
                       choice.mesh(), "leaf_shardings of " + paths[i], where);
    if (!asked && leaf.array->is_concrete()) {
      result.push_back(leaf.array->sharding(where));
      continue;
    }
    NamedSharding named;
    named.mesh = choice.mesh();
    if (asked) {
      named.spec = to_spec(named.mesh, *asked);
      named.mpmd_idxs = shardings.find(paths[i])->mpmd_idxs;
    }
    result.push_back(std::move(named));
  }
  return result;
}

namespace {

[[noreturn]] void fail_untranslated(const PartitionSpec& spec, const Mesh& mesh,
                                    const std::string& subject, const Span& where) {
  throw UserError({.what = subject + ": the spec has logical names, which are not mesh axes",
                   .where = where,
                   .found = to_string(spec),
                   .wanted = "axes of the mesh " + to_string(mesh),
                   .cure = "translate the names: logical_to_mesh(specs, rules), where specs = "
                           "get_partition_spec(tree)"});
}

}  // namespace

std::optional<Sharding> asked_sharding(const Shardings& shardings, const std::string& path,
                                       const ParamInfo* info, const Type& type, const Mesh& mesh,
                                       const std::string& subject, const Span& where) {
  if (shardings.is_unspecified()) return std::nullopt;
  if (const Shardings::Entry* entry = shardings.find(path)) {
    if (!entry->is_specified) return std::nullopt;
    if (entry->is_annotation && info == nullptr) return replicated_sharding(type.rank());
    const PartitionSpec& spec = entry->is_annotation ? info->spec : entry->spec;
    const AxisNames names = entry->is_annotation ? info->names : entry->names;
    if (names == AxisNames::logical) fail_untranslated(spec, mesh, subject, where);
    return to_sharding(mesh, spec, type, subject, where);
  }
  throw UserError({.what = subject + ": the shardings have no entry for this leaf",
                   .where = where,
                   .found = some_paths(shardings.entries()),
                   .wanted = "an entry for " + path,
                   .cure = "make the shardings from the same tree: fsdp_shardings(mesh, "
                           "eval_shape(f, ...)), replicated(mesh, tree)"});
}

void check_paths(const Shardings& shardings, const std::vector<std::string>& paths,
                 const std::string& subject, const Span& where) {
  std::unordered_set<std::string_view> subtrees = {""};
  for (const std::string_view path : paths) {
    for (std::size_t end = 0; end < path.size(); ++end) {
      if (path[end] == '/') subtrees.insert(path.substr(0, end));
    }
    subtrees.insert(path);
  }
  for (const Shardings::Entry& entry : shardings.entries()) {
    if (!entry.is_specified || subtrees.contains(entry.path)) continue;
    std::string some;
    for (std::size_t i = 0; i < paths.size() && i < 8; ++i) some += (i > 0 ? ", " : "") + paths[i];
    throw UserError(
        {.what = subject + ": the tree has no leaf for this sharding",
         .where = where,
         .found = "a sharding for " + entry.path,
         .wanted = fmt::format("paths of the tree: {}{}", some, paths.size() > 8 ? ", ..." : ""),
         .cure = with_suggestion(entry.path, paths,
                                 "make the shardings from the same tree; a tuple has paths 0/..., "
                                 "1/...: write {first, second}")});
  }
}

}  // namespace detail

// --- pictures

std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding,
                               const VisualizeOptions& options, std::source_location where) {
  const Sharding atoms =
      to_sharding(sharding.mesh, sharding.spec, shape, "visualize_sharding", Span(where));
  return picture_of(sharding.mesh, Layout(sharding.mesh, atoms, shape), options);
}

std::string visualize_array_sharding(const Array& x, const VisualizeOptions& options,
                                     std::source_location where) {
  detail::tiles_of(x, Span(where));  // throws unless concrete and not donated
  const detail::Placement& placement = *x.node()->placement;
  return picture_of(placement.mesh, placement.layout, options);
}

void inspect_array_sharding(const Array& x, const ShardingCallback& callback,
                            std::source_location where) {
  if (!x.node()->is_traced()) {
    detail::tiles_of(x, Span(where));  // throws unless concrete and not donated
    return callback(x.sharding(where));
  }
  const auto tell = [callback](const Mesh& mesh, const Sharding& sharding) {
    NamedSharding named;  // the constructor does not accept the names of parts of axes
    named.mesh = mesh;
    named.spec = to_spec(mesh, sharding);
    callback(named);
  };
  detail::public_op(where, [&] {
    using Tell = std::function<void(const Mesh&, const Sharding&)>;
    return detail::emit("inspect_sharding", {x},
                        {{"callback", ir::ShardingWatcher{std::make_shared<const Tell>(tell)}}});
  });
}

}  // namespace tessera
