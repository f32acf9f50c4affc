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

#include <charconv>
#include <tuple>

#include <tessera/walk.h>

#define TESSERA_TREE(...)                                             \
  void tessera_walk(::tessera::detail::Walk& tessera_walk_) {         \
    ::tessera::detail::walk_fields(tessera_walk_, this, #__VA_ARGS__, \
                                   false __VA_OPT__(, ) __VA_ARGS__); \
  }
#define TESSERA_MODULE(...)                                           \
  void tessera_walk(::tessera::detail::Walk& tessera_walk_) {         \
    ::tessera::detail::walk_fields(tessera_walk_, this, #__VA_ARGS__, \
                                   true __VA_OPT__(, ) __VA_ARGS__);  \
  }

namespace TESSERA_EXPORT tessera {

namespace detail {

template <typename T>
concept HasWalk = requires(T& value, Walk& walk) {
  value.tessera_walk(walk);
};
/// The size of the struct in which the macro stands.
template <typename T>
constexpr std::size_t sizeof_walked(void (T::* /*walk*/)(Walk&)) {
  return sizeof(T);
}
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

/// The shortest text that gives this number when it is read.
template <typename T>
std::string exact_text(T number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}
[[noreturn]] void refuse_static_without_key();

template <typename T>
void walk(Walk& w, const Static<T>& constant) {
  if (!constant.key.empty()) {
    w.fixed(constant.key);
  } else if constexpr (std::same_as<T, bool> || std::is_enum_v<T>) {
    w.fixed(exact_text(static_cast<std::int64_t>(constant.value)));
  } else if constexpr (std::is_arithmetic_v<T>) {
    w.fixed(exact_text(constant.value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    w.fixed(constant.value);
  } else if constexpr (std::same_as<T, PartitionSpec> || std::same_as<T, Mesh>) {
    walk(w, constant.value);
  } else {
    refuse_static_without_key();
  }
}

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
    static_assert(
        sizeof(T) == sizeof_walked(&T::tessera_walk),
        "this struct inherits TESSERA_TREE or TESSERA_MODULE and has further fields: write "
        "the macro again in it, with all fields, those of the base too");
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

template <typename T, typename... Ts>
[[gnu::cold]] void walk_fields(Walk& w, T* object, const char* names, bool is_module,
                               Ts&... values) {
  const Walk::Field list[sizeof...(Ts) + 1] = {
      {static_cast<const void*>(&values), sizeof(Ts), alignof(Ts)}..., {nullptr, 0, 1}};
  const std::size_t hidden = std::is_empty_v<T>         ? sizeof(T)
                             : std::is_polymorphic_v<T> ? sizeof(void*)
                                                        : 0;
  const Fields fields{object, sizeof(T), alignof(T), hidden, names, is_module};
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
