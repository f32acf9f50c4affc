// Shardings of whole trees.
//
//   auto state = jit(init, {.out_shardings = fsdp_shardings(mesh, eval_shape(init, key))})(key);
//   Shardings specs = get_partition_spec(state);    specs["params"];
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

struct LeafPlacement;  // engine.h

/// A preference: dimensions with this logical name are split over `axes`, or not split if `none`.
struct LogicalRule {
  std::string name;
  SpecEntry axes;
};
/// Rules in order of preference. A name may have several rules: the later ones are for arrays in
/// which the axes of the first one are already used.
using LogicalRules = std::vector<LogicalRule>;

/// The path of a leaf or a subtree, and the caller's line.
struct TreePath {
  std::string_view text;
  std::source_location where;

  template <std::convertible_to<std::string_view> T>
  TreePath(const T& path,  // NOLINT(google-explicit-constructor)
           std::source_location caller = std::source_location::current())
      : text(path), where(caller) {}
};

/// The shardings requested for the leaves of a tree: none, one for all, or one for each path.
class Shardings {
 public:
  TESSERA_COPYABLE(Shardings);
  Shardings();                   // unspecified: inferred
  Shardings(NamedSharding all);  // NOLINT(google-explicit-constructor)
  Shardings(PartitionSpec all);  // NOLINT(google-explicit-constructor); the current mesh
  /// The parts of a tuple: `.out_shardings = {state_shardings, P{}}`.
  Shardings(Shardings first, Shardings second);
  Shardings(Shardings first, Shardings second, Shardings third);
  static Shardings tuple(const std::vector<Shardings>& parts);
  /// The shardings of a program: `Shardings::of(step.lower(state, batch).arguments())["0"]` are the
  /// shardings that it expects for its first argument.
  static Shardings of(const std::vector<LeafPlacement>& leaves);

  /// Sets the sharding of a leaf or, if `path` names a subtree, of all its leaves.
  void set(std::string path, NamedSharding sharding);
  void set(std::string path, PartitionSpec spec, AxisNames names = AxisNames::mesh);

  bool is_unspecified() const { return entries_.empty(); }
  /// The shardings below `path`: specs["params"]. Throws UserError if there are none.
  Shardings operator[](TreePath path) const;
  friend bool operator==(const Shardings&, const Shardings&) = default;

  struct Entry {
    std::string path;
    Mesh mesh;
    PartitionSpec spec;
    bool is_specified = true;
    bool has_mesh = false;
    bool is_annotation = false;  // use the spec of the parameter
    AxisNames names = AxisNames::mesh;
    std::vector<std::int64_t> mpmd_idxs = {};  // as in NamedSharding
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  /// The first entry for the leaf at `path` or for a subtree that contains it; nullptr if none.
  const Entry* find(std::string_view path) const;
  friend Shardings from_annotations(const Mesh& mesh);
  friend Shardings logical_to_mesh(const Shardings& specs, const LogicalRules& rules,
                                   std::source_location where);

 private:
  void append(const std::string& prefix, const Shardings& part);
  std::vector<Entry> entries_;
};

/// One line per path.
std::string to_string(const Shardings& shardings);

/// Every leaf replicated: whole on every device.
Shardings replicated(const Mesh& mesh);
/// Every parameter sharded as it is annotated; other leaves replicated.
Shardings from_annotations(const Mesh& mesh);

namespace detail {
Shardings replicated(const Mesh& mesh, Walk tree);
Shardings fsdp_shardings(const Mesh& mesh, Walk tree, const std::string& axis,
                         const std::source_location& where);
Shardings partition_specs(Walk tree);
void unbox(const Walk& tree);
std::vector<Array> device_put(const Walk& tree, const Shardings& shardings,
                              DevicePutOptions options, const std::source_location& where);
void block_until_ready(const Walk& tree, const std::source_location& where);
std::vector<NamedSharding> leaf_shardings(Walk tree, const Shardings& shardings,
                                          const std::source_location& where);
}  // namespace detail

template <typename T>
Shardings replicated(const Mesh& mesh, const T& tree) {
  return detail::replicated(mesh, detail::walked(tree, detail::Walk::Want::paths));
}
/// Each leaf split over `axis` along its largest dimension (first of equals); scalars replicated.
template <typename T>
Shardings fsdp_shardings(const Mesh& mesh, const T& tree, const std::string& axis = "data",
                         std::source_location where = std::source_location::current()) {
  return detail::fsdp_shardings(mesh, detail::walked(tree, detail::Walk::Want::paths), axis, where);
}
/// The specs with which parameters are annotated, as mesh axes or logical names; P() for other
/// leaves.
template <typename T>
Shardings get_partition_spec(const T& tree) {
  return detail::partition_specs(detail::walked(tree, detail::Walk::Want::paths));
}
/// The same tree, with the annotations of parameters removed.
template <typename T>
T unbox(const T& tree) {
  T result(tree);
  detail::unbox(detail::walked(result, detail::Walk::Want::leaves));
  return result;
}
/// The same tree, with every leaf placed as `shardings` says.
template <typename T>
requires(!std::is_base_of_v<Array, T>) T
    device_put(const T& tree, const Shardings& shardings, DevicePutOptions options = {},
               std::source_location where = std::source_location::current()) {
  return tree_replace(tree, detail::device_put(detail::walked(tree, detail::Walk::Want::paths),
                                               shardings, options, where));
}
/// For a single array with a Shardings; device_put in array.h takes a NamedSharding or a
/// PartitionSpec.
template <std::derived_from<Array> T, std::same_as<Shardings> S>
T device_put(const T& array, const S& shardings, DevicePutOptions options = {},
             std::source_location where = std::source_location::current()) {
  return tree_replace(array, detail::device_put(detail::walked(array, detail::Walk::Want::paths),
                                                shardings, options, where));
}
/// The tree itself, once all its arrays have their values. Throws UserError for an array without
/// values.
template <typename T>
T block_until_ready(const T& tree, std::source_location where = std::source_location::current()) {
  detail::block_until_ready(detail::walked(tree, detail::Walk::Want::leaves), where);
  return tree;
}

/// The sharding requested for each leaf. Where `shardings` specifies none, it is the leaf's own
/// sharding or, for an abstract leaf, replicated on the current mesh.
template <typename T>
std::vector<NamedSharding> leaf_shardings(
    const T& tree, const Shardings& shardings,
    std::source_location where = std::source_location::current()) {
  return detail::leaf_shardings(detail::walked(tree, detail::Walk::Want::paths), shardings, where);
}

/// The part of an array that one device holds.
struct Shard {
  std::int64_t device;            // its id
  std::vector<IndexRange> index;  // of the array, one range per dimension
  std::int64_t replica_id;        // how many earlier devices hold the same tile
  Array data;

  /// The elements of `data`, row-major, in the machine's representation; a bool is one byte. Valid
  /// as long as `data` exists. Throws UserError if `data` was donated.
  std::span<const std::byte> bytes(
      std::source_location where = std::source_location::current()) const;
};

namespace detail {
using FillTile = void (*)(void* target, const std::vector<IndexRange>& index,
                          std::span<std::byte> elements);
Array make_array(const Type& type, const NamedSharding& sharding, FillTile fill, void* target,
                 const std::source_location& where);
}  // namespace detail

/// An array whose tiles `fill` writes. `fill` is called once for each distinct tile that this
/// process holds, with the index of the tile in the array and the memory for its elements, in the
/// form of Shard::bytes().
template <std::invocable<const std::vector<IndexRange>&, std::span<std::byte>> F>
Array make_array_from_callback(const Type& type, const NamedSharding& sharding, F fill,
                               std::source_location where = std::source_location::current()) {
  return detail::make_array(
      type, sharding,
      [](void* target, const std::vector<IndexRange>& index, std::span<std::byte> elements) {
        (*static_cast<F*>(target))(index, elements);
      },
      &fill, where);
}

// --- pictures

/// A text picture of which devices hold which part of an array of this shape. For more than two
/// dimensions, it shows the first two that are split, once for each combination of shards of the
/// other dimensions, under a heading. Throws the same UserErrors as NamedSharding::shard_shape.
std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding,
                               const VisualizeOptions& options = {},
                               std::source_location where = std::source_location::current());
/// The same for a concrete array. To print it: std::puts(visualize_array_sharding(x).c_str()).
std::string visualize_array_sharding(const Array& x, const VisualizeOptions& options = {},
                                     std::source_location where = std::source_location::current());

/// A function that takes a sharding.
class ShardingCallback {
 public:
  template <std::invocable<const NamedSharding&> F>
  ShardingCallback(F f) : call_(std::move(f)) {}  // NOLINT(google-explicit-constructor)
  void operator()(const NamedSharding& sharding) const { call_(sharding); }

 private:
  detail::Function<void, const NamedSharding&> call_;
};

/// Calls `callback` with the sharding of x. If x is concrete, calls it immediately. In a traced
/// function, calls it each time the function is compiled, by jit or lower(), with the sharding that
/// the compiler chose, but not if no result depends on x, since x is then not computed. In vmap and
/// shard_map, it is the sharding of the whole batch, whose dimension comes first.
void inspect_array_sharding(const Array& x, const ShardingCallback& callback,
                            std::source_location where = std::source_location::current());

// --- logical axis names
//
//   nn::with_logical_partitioning(init::xavier_normal(), {"embed", "hidden"})   // in the model
//   const LogicalRules rules{{"batch", "data"}, {"hidden", "model"}};           // of one layout
//   Shardings specs = logical_to_mesh(get_partition_spec(eval_shape(init, key)), rules);
//
// Rules are tried in order. A rule fires if its name is that of a dimension that no rule has
// decided yet, and none of its mesh axes splits another dimension of the array. A rule with `none`
// decides that the dimension is not split. Dimensions that no rule decides are not split.

/// Makes `rules` the rules of this thread until the end of the scope. jit compiles a function again
/// when the rules differ.
class [[nodiscard]] logical_axis_rules {
 public:
  /// Throws UserError for an empty name and for a rule that names a mesh axis twice.
  [[nodiscard]] explicit logical_axis_rules(
      LogicalRules rules, std::source_location where = std::source_location::current());
  ~logical_axis_rules();
  logical_axis_rules(const logical_axis_rules&) = delete;
  logical_axis_rules& operator=(const logical_axis_rules&) = delete;

 private:
  LogicalRules previous_;
};
/// The rules of the innermost scope; empty when there is none.
const LogicalRules& get_logical_axis_rules();
/// `('batch', 'data'), ('embed', None)`; `none` when there are none.
std::string to_string(const LogicalRules& rules);

/// The mesh axes for an array whose dimensions have these names. Throws UserError if two dimensions
/// have the same name.
PartitionSpec logical_to_mesh_axes(const PartitionSpec& names,
                                   const LogicalRules& rules = get_logical_axis_rules(),
                                   std::source_location where = std::source_location::current());
/// The same for all leaves with logical names; specs of mesh axes are kept. Throws UserError if
/// there are no rules.
Shardings logical_to_mesh(const Shardings& specs,
                          const LogicalRules& rules = get_logical_axis_rules(),
                          std::source_location where = std::source_location::current());
/// One line per dimension: its axes, the rule that chose them, and why no other rule fired.
std::string explain_rules(const PartitionSpec& names,
                          const LogicalRules& rules = get_logical_axis_rules(),
                          std::source_location where = std::source_location::current());

/// What with_logical_constraint does with a name that no rule decides.
enum class RulesFallback : std::uint8_t { axis_is_unsharded, raise_error, no_constraint };
/// Options of with_logical_constraint.
struct LogicalConstraint {
  std::optional<LogicalRules> rules = std::nullopt;  // by default, the rules in scope
  std::optional<Mesh> mesh = std::nullopt;  // by default, that of the traced function, or in scope
  RulesFallback fallback = RulesFallback::axis_is_unsharded;
};
/// with_sharding_constraint with the mesh axes for these names. Without rules or a mesh, returns x.
Array with_logical_constraint(Operand x, const PartitionSpec& names,
                              const LogicalConstraint& options = {});

}  // namespace tessera
