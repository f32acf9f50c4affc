// Trees: structs, vectors, tuples, pairs, optionals and maps whose leaves are arrays.
//
//   struct Dense {
//     Param kernel, bias;
//     TESSERA_MODULE(kernel, bias)          // paths: from the scopes of the parameters
//   };
//   struct State { Dense params; Array step; double rate; TESSERA_TREE(params, step, rate) };
//                                           // paths: field names; `rate` is static
//
// List every field. Arrays, parameters and keys are leaves. Numbers, bools, enums, strings and
// types with a member `std::string tessera_key() const` are static: they are part of the structure,
// so jit compiles again when one of them changes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/array.h>
#include <tessera/random.h>

#define TESSERA_TREE(...)                                                                      \
  void tessera_walk(::tessera::detail::Walk& tessera_walk_) {                                  \
    ::tessera::detail::walk_fields(                                                            \
        tessera_walk_, {this, sizeof(*this), #__VA_ARGS__, false} __VA_OPT__(, ) __VA_ARGS__); \
  }

#define TESSERA_MODULE(...)                                                                   \
  void tessera_walk(::tessera::detail::Walk& tessera_walk_) {                                 \
    ::tessera::detail::walk_fields(                                                           \
        tessera_walk_, {this, sizeof(*this), #__VA_ARGS__, true} __VA_OPT__(, ) __VA_ARGS__); \
  }

namespace TESSERA_EXPORT tessera {

namespace detail {

/// What the macros record about a struct.
struct Fields {
  const void* object;
  std::size_t size;
  const char* names;  // "a, b, c"
  bool is_module;
};

/// A traversal of a tree that collects its leaves and, on request, its structure or its paths. The
/// functions are marked cold, since they run only during tracing and small code compiles faster.
class Walk {
 public:
  /// structure: also a byte string that is equal for equal structures. paths: also the statics, and
  /// the paths of leaves and statics; checks that structs list all their fields.
  enum class Want : unsigned char { leaves, structure, paths };
  explicit Walk(Want want);
  TESSERA_COPYABLE(Walk);
  struct Leaf {
    Array* array;
    const std::shared_ptr<const ParamInfo>* param;  // *param is nullptr unless a parameter
    const std::shared_ptr<const ParamInfo>& info() const { return *param; }
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::string& structure() const { return structure_; }
  /// Throws UserError if two leaves have the same path.
  const std::vector<std::string>& paths();
  /// The path and the value of each static.
  const std::vector<std::pair<std::string, std::string>>& statics() const { return statics_; }
  const std::vector<std::string>& keys() const { return keys_; }  ///< of all maps, in order
  /// The number of leaves up to the end of each item of the outermost tuple.
  const std::vector<std::size_t>& item_ends() const { return item_ends_; }
  void leaf(Array& array);
  void leaf(Param& param);
  void leaf(random::Key& key);
  void fixed(std::string_view text);
  enum class Bits : unsigned char { boolean, integer, natural, real };
  template <typename T>
  static constexpr Bits kBitsOf = std::is_same_v<T, bool>       ? Bits::boolean
                                  : std::is_floating_point_v<T> ? Bits::real
                                  : std::is_unsigned_v<T>       ? Bits::natural
                                                                : Bits::integer;
  void fixed_bits(const void* value, std::size_t size, Bits kind);

  struct Field {
    const void* address;
    std::size_t size;
  };
  void enter_struct(const Fields& fields, const Field* list, std::size_t count);
  void enter_items(std::size_t count, bool is_list);
  void next_item(std::size_t index);
  void next_item(std::string_view name);
  void leave();

 private:
  struct Frame {
    std::size_t prefix;  // length of path_ outside
    const char* names;   // of a struct: the remaining ones
    bool opens_module;
    bool is_list;
  };
  void add(Array& array, const std::shared_ptr<const ParamInfo>& info);
  void enter(const char* names, bool is_module, bool is_list);
  static void check_fields(const Fields& fields, const Field* list, std::size_t count);
  std::string leaf_path(const ParamInfo* info) const;

  Want want_;
  std::vector<Leaf> leaves_;
  std::string structure_;
  std::vector<std::string> paths_;
  std::vector<std::pair<std::string, std::string>> statics_;
  std::vector<std::string> keys_;
  std::vector<std::size_t> item_ends_;
  std::vector<Frame> frames_;
  std::string path_;
  std::size_t module_prefix_ = std::string::npos;
};

template <typename T>
concept HasWalk = requires(T& value, Walk& walk) {
  value.tessera_walk(walk);
};
template <typename T>
concept HasStaticKey = requires(const T& value) {
  std::string(value.tessera_key());
};
template <typename T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

inline void walk(Walk& w, const PartitionSpec& spec) { w.fixed(to_string(spec)); }
inline void walk(Walk& w, const Mesh& mesh) { w.fixed(to_string(mesh)); }

template <typename T>
void walk(Walk& w, const T& constant);

template <typename T>
[[gnu::cold]] void walk_list(Walk& w, T& list) {
  w.enter_items(list.size(), true);
  std::size_t index = 0;
  for (auto&& item : list) {
    w.next_item(index++);
    walk(w, item);
  }
  w.leave();
}

template <typename T, std::size_t... I>
[[gnu::cold]] void walk_tuple(Walk& w, T& tuple, std::index_sequence<I...>) {
  using std::get;
  w.enter_items(sizeof...(I), false);
  ((w.next_item(I), walk(w, get<I>(tuple))), ...);
  w.leave();
}

/// Visits a tree. Leaves are passed as mutable, but only rebuilding a tree writes to them.
template <typename T>
[[gnu::cold]] void walk(Walk& w, const T& constant) {
  T& value = const_cast<T&>(constant);
  if constexpr (std::is_base_of_v<Param, T>) {
    w.leaf(static_cast<Param&>(value));
  } else if constexpr (std::is_base_of_v<Array, T>) {
    w.leaf(static_cast<Array&>(value));
  } else if constexpr (std::same_as<T, random::Key>) {
    w.leaf(value);
  } else if constexpr (HasWalk<T>) {
    value.tessera_walk(w);
  } else if constexpr (HasStaticKey<T>) {
    w.fixed(value.tessera_key());
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    w.fixed_bits(&value, sizeof(T), Walk::kBitsOf<T>);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    w.fixed(value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    w.enter_items(value.size(), false);
    for (auto& [name, item] : value) {
      if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(name)>>) {
        w.next_item(std::to_string(name));
      } else {
        w.next_item(std::string_view(name));
      }
      walk(w, item);
    }
    w.leave();
  } else if constexpr (std::same_as<T, std::vector<bool>>) {
    w.fixed(std::string(value.begin(), value.end()));
  } else if constexpr (requires { value.begin() != value.end(); }) {
    walk_list(w, value);
  } else if constexpr (requires { value.has_value() && (*value, true); }) {
    w.fixed(value.has_value() ? "some" : "none");
    if (value.has_value()) walk(w, *value);
  } else if constexpr (TupleLike<T>) {
    walk_tuple(w, value, std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    static_assert(HasWalk<T>,
                  "this type is not a tree: write TESSERA_TREE(all, its, fields) or TESSERA_MODULE "
                  "in the struct, or wrap a field that is not an array in tessera::Static");
  }
}

template <typename... Ts>
[[gnu::cold]] void walk_fields(Walk& w, const Fields& fields, Ts&... values) {
  const Walk::Field list[sizeof...(Ts) + 1] = {{static_cast<const void*>(&values), sizeof(Ts)}...,
                                               {nullptr, 0}};
  w.enter_struct(fields, list, sizeof...(Ts));
  [[maybe_unused]] std::size_t index = 0;
  ((w.next_item(index++), walk(w, values)), ...);
  w.leave();
}

/// Puts `leaves` into the tree that `w` visited.
void replace_leaves(const Walk& w, const std::vector<Array>& leaves);
std::vector<Array> arrays_of(const Walk& w);
std::vector<Param> params_of(Walk& w);
/// Throws UserError if maps have different keys; matching_leaves also for unequal leaf counts.
void check_keys(const char* what, const Walk& expected, const Walk& found, const Span& where);
std::vector<Array> matching_leaves(const Walk& expected, const Walk& found,
                                   const std::source_location& where);

template <typename T>
[[gnu::cold]] Walk walked(const T& tree, Walk::Want want) {
  Walk w(want);
  walk(w, tree);
  return w;
}

}  // namespace detail

/// The arrays of a tree in the order of its fields.
template <typename T>
std::vector<Array> tree_leaves(const T& tree) {
  return detail::arrays_of(detail::walked(tree, detail::Walk::Want::leaves));
}

/// The paths of the leaves: `params/blocks_0/Dense_0/kernel`. In a module, a parameter has the path
/// from its scope, as do the elements of a vector of parameters. Throws UserError if two leaves
/// have the same path.
template <typename T>
std::vector<std::string> tree_paths(const T& tree) {
  return detail::walked(tree, detail::Walk::Want::paths).paths();
}

/// The leaves as parameters. A leaf that is not a parameter gets its path in the tree.
template <typename T>
std::vector<Param> tree_params(const T& tree) {
  detail::Walk w = detail::walked(tree, detail::Walk::Want::paths);
  return detail::params_of(w);
}

/// The same tree, with these arrays as leaves.
template <typename T>
[[gnu::cold]] T tree_replace(const T& tree, const std::vector<Array>& leaves) {
  T result(tree);
  detail::replace_leaves(detail::walked(result, detail::Walk::Want::leaves), leaves);
  return result;
}

namespace detail {
template <typename F, typename T, typename... Ts>
T map_leaves(const std::source_location& where, F&& f, const T& tree, const Ts&... others) {
  const Walk first = walked(tree, Walk::Want::leaves);
  std::vector<Array> leaves = arrays_of(first);
  const std::vector<Array> rest[sizeof...(Ts) + 1] = {
      matching_leaves(first, walked(others, Walk::Want::leaves), where)..., {}};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = f(leaves[i], rest[I][i]...);
  }
  (std::index_sequence_for<Ts...>());
  return tree_replace(tree, leaves);
}
}  // namespace detail

/// The tree of f(leaf, corresponding leaves of `others`...). Parameters keep path and spec.
template <typename F, typename T, typename... Ts>
T tree_map(F&& f, const T& tree, const Ts&... others) {
  return detail::map_leaves(std::source_location(), f, tree, others...);
}
template <typename F, typename T, typename A>
T tree_map(F&& f, const T& tree, const A& a,
           std::source_location where = std::source_location::current()) {
  return detail::map_leaves(where, f, tree, a);
}
template <typename F, typename T, typename A, typename B>
T tree_map(F&& f, const T& tree, const A& a, const B& b,
           std::source_location where = std::source_location::current()) {
  return detail::map_leaves(where, f, tree, a, b);
}

/// The tree of f(path, leaf).
template <typename F, typename T>
T tree_map_with_path(F&& f, const T& tree) {
  detail::Walk w = detail::walked(tree, detail::Walk::Want::paths);
  std::vector<Array> leaves = detail::arrays_of(w);
  const std::vector<std::string>& paths = w.paths();
  for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = f(paths[i], leaves[i]);
  return tree_replace(tree, leaves);
}

}  // namespace tessera
