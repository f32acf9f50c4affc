// Arrays: cheap handles with value semantics, and how to make, read and place them.
//
//   Array x = array({1.f, 2.f, 3.f, 4.f}, {2, 2});
//   Array y = device_put(x * 2 + 1, NamedSharding(mesh, P{"data"}));
//   std::vector<float> values = y.to_vector<float>();        // gathered from all devices
//
// An array is concrete (it has values), traced (it stands for a value of the program that jit,
// value_and_grad, ... is tracing) or abstract (it has only a type, like the results of eval_shape).
#pragma once

#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

namespace detail {
struct ArrayNode;
struct ParamInfo;
}  // namespace detail

/// As the limit of a slice: the end of the dimension.
inline constexpr std::int64_t to_end = INT64_MAX;

struct Shard;

/// A position along dimension 0, and the caller's line. Negative positions count from the end.
struct Index {
  std::int64_t value;
  std::source_location where;

  template <std::integral T>
  Index(T index,  // NOLINT(google-explicit-constructor)
        std::source_location caller = std::source_location::current())
      : value(static_cast<std::int64_t>(index)), where(caller) {}
};

/// A handle to an array of any rank. Copies share the elements, which never change.
class Array {
 public:
  /// An empty handle. Everything except assignment throws UserError.
  Array();
  Array(const Array& other);
  Array(Array&& other) noexcept;
  Array& operator=(const Array& other) &;
  Array& operator=(Array&& other) & noexcept;
  void operator=(const Array& other) && = delete;  // see dynamic_update_slice and scatter
  ~Array();

  const Type& type(std::source_location where = std::source_location::current()) const;
  const Shape& shape(std::source_location where = std::source_location::current()) const {
    return type(where).shape;
  }
  DType dtype(std::source_location where = std::source_location::current()) const {
    return type(where).dtype;
  }
  std::int64_t rank(std::source_location where = std::source_location::current()) const {
    return type(where).rank();
  }
  std::int64_t size(std::source_location where = std::source_location::current()) const;
  /// Size of one dimension; negative axes count from the end.
  std::int64_t dim(std::int64_t axis,
                   std::source_location where = std::source_location::current()) const;

  bool is_empty() const { return node_ == nullptr; }
  bool is_concrete() const;
  bool is_traced() const;
  bool is_deleted() const;  ///< whether the array was donated to a call
  /// The mesh and the spec. Throws UserError unless the array is concrete.
  NamedSharding sharding(std::source_location where = std::source_location::current()) const;

  /// All elements in row-major order. T must be the element type; std::uint8_t also reads bool.
  template <typename T>
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const;
  /// The only element of an array of size 1, converted to T.
  template <typename T>
  T item(std::source_location where = std::source_location::current()) const;
  /// The tile that the device with this id holds, as an array.
  Array local_data(std::int64_t device,
                   std::source_location where = std::source_location::current()) const;
  /// The tiles of the devices that this process computes for, row-major over the mesh.
  std::vector<Shard> addressable_shards(
      std::source_location where = std::source_location::current()) const;
  /// Returns the array once its elements exist. Only calls on a PJRT plugin return before that.
  /// Throws as to_vector does.
  const Array& block_until_ready(
      std::source_location where = std::source_location::current()) const;

  /// Elements [start, limit) along `axis`; negative positions count from its end.
  Array slice(std::int64_t axis, std::int64_t start, std::int64_t limit = to_end,
              std::source_location where = std::source_location::current()) const;
  /// x[i]: the slice at position i of dimension 0, without that dimension.
  Array operator[](Index index) const;

  // For the library.
  explicit Array(std::shared_ptr<detail::ArrayNode> node);
  const std::shared_ptr<detail::ArrayNode>& node() const { return node_; }

 private:
  void read(DType dtype, void* out, const std::source_location& where) const;
  double real_item(const std::source_location& where) const;
  std::int64_t integer_item(const std::source_location& where) const;
  std::shared_ptr<detail::ArrayNode> node_;
};

/// A parameter: an array with the path that its scope gave it and, if annotated, a spec, like a
/// Flax box. Replacing the array in a tree keeps both. Programs treat parameters as state.
class Param : public Array {
 public:
  Param();
  /// A parameter without annotation: its spec is P().
  Param(Array value, std::string path);
  Param(Array value, std::string path, PartitionSpec spec, AxisNames names = AxisNames::mesh);
  Param(const Param& other);
  Param(Param&& other) noexcept;
  Param& operator=(const Param& other) &;
  Param& operator=(Param&& other) & noexcept;
  ~Param();

  /// Names from the scope, separated by `/`: `blocks_0/Dense_0/kernel`.
  const std::string& path() const;
  const PartitionSpec& spec() const;
  bool is_annotated() const;
  /// Whether the spec has logical names, which logical_to_mesh translates to mesh axes.
  bool is_logical() const;
  Array value() const { return *this; }
  /// This parameter with another array.
  Param with_value(Array value) const;
  /// False for state that grad and optimisers leave alone: see nn::Buffer.
  bool is_trained() const;
  /// This parameter as state that is not trained.
  Param untrained() const;

  const std::shared_ptr<const detail::ParamInfo>& info() const { return info_; }

 private:
  Param(Array value, std::shared_ptr<const detail::ParamInfo> info);
  std::shared_ptr<const detail::ParamInfo> info_;
};

/// An argument of an op: an array or a number, and the caller's line. A number takes the dtype of
/// the array that it is combined with. Combining a floating-point number with an integer array is
/// an error.
struct Operand {
  enum class Kind : std::uint8_t { array, boolean, integer, real };

  Array array;
  Kind kind = Kind::array;
  double real = 0.0;
  std::int64_t integer = 0;
  std::source_location where;

  Operand(const Array& value,  // NOLINT(google-explicit-constructor)
          std::source_location caller = std::source_location::current());
  template <typename T>
  requires std::is_arithmetic_v<T> Operand(
      T value,  // NOLINT(google-explicit-constructor)
      std::source_location caller = std::source_location::current())
      : kind(std::same_as<T, bool>         ? Kind::boolean
             : std::is_floating_point_v<T> ? Kind::real
                                           : Kind::integer),
        real(static_cast<double>(value)),
        integer(std::is_floating_point_v<T> ? 0 : static_cast<std::int64_t>(value)),
        where(caller) {}
  bool is_number() const { return kind != Kind::array; }
};

/// While it exists, errors of ops on this thread are reported at `where`. The outermost scope wins,
/// so an error inside a layer is reported at the user's line.
class [[nodiscard]] CallScope {
 public:
  [[nodiscard]] explicit CallScope(const std::source_location& where);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  bool is_outermost_;
};

// --- making arrays

namespace detail {
Array array_from(DType dtype, Shape shape, const void* elements, std::size_t count,
                 const std::source_location& where);
Array array_from(const std::vector<bool>& elements, Shape shape, const std::source_location& where);
}  // namespace detail

/// An array of these row-major elements. Throws UserError if their number does not fit the shape.
template <Element T>
Array array(std::span<const T> elements, Shape shape,
            std::source_location where = std::source_location::current()) {
  return detail::array_from(dtype_of<T>, std::move(shape), elements.data(), elements.size(), where);
}
template <Element T>
Array array(const std::vector<T>& elements, Shape shape,
            std::source_location where = std::source_location::current()) {
  if constexpr (std::same_as<T, bool>) {
    return detail::array_from(elements, std::move(shape), where);
  } else {
    return array(std::span<const T>(elements), std::move(shape), where);
  }
}
template <Element T>
Array array(const std::vector<T>& elements,
            std::source_location where = std::source_location::current()) {
  return array(elements, {static_cast<std::int64_t>(elements.size())}, where);
}
template <Element T>
Array array(std::initializer_list<T> elements, Shape shape,
            std::source_location where = std::source_location::current()) {
  return array(std::span<const T>(elements.begin(), elements.size()), std::move(shape), where);
}
template <Element T>
Array array(std::initializer_list<T> elements,
            std::source_location where = std::source_location::current()) {
  return array(elements, {static_cast<std::int64_t>(elements.size())}, where);
}
template <Element T>
Array scalar(T value, std::source_location where = std::source_location::current()) {
  return detail::array_from(dtype_of<T>, {}, &value, 1, where);
}

Array zeros(Shape shape, DType dtype = DType::f32,
            std::source_location where = std::source_location::current());
Array ones(Shape shape, DType dtype = DType::f32,
           std::source_location where = std::source_location::current());
/// An array whose elements are all `value`. Throws UserError for a fraction in an integer array.
Array full(Shape shape, Operand value, DType dtype = DType::f32);
Array zeros_like(const Array& like, std::source_location where = std::source_location::current());
Array ones_like(const Array& like, std::source_location where = std::source_location::current());
Array full_like(const Array& like, Operand value);
/// [0, 1, ..., limit - 1].
Array arange(std::int64_t limit, DType dtype = DType::i32,
             std::source_location where = std::source_location::current());
/// [start, start + step, ...] below `limit`.
Array arange(std::int64_t start, std::int64_t limit, std::int64_t step, DType dtype = DType::i32,
             std::source_location where = std::source_location::current());

/// A scalar made from a number: f32[], i32[] or bool[]. A jitted function has one program for all
/// values of a Scalar argument, but one for each value of a double or int argument.
class Scalar : public Array {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> Scalar(
      T value,  // NOLINT(google-explicit-constructor)
      std::source_location where = std::source_location::current())
      : Scalar(Operand(value, where)) {}
  explicit Scalar(const Operand& value);
};

// --- placing and comparing

struct DevicePutOptions {
  bool strict = false;  // throw UserError if the shards of a dimension differ in size
};

/// The same values with this sharding. Inside a traced function, it is a sharding constraint.
Array device_put(const Array& x, const NamedSharding& sharding, DevicePutOptions options = {},
                 std::source_location where = std::source_location::current());
/// As above, on the current mesh; throws UserError if there is none.
Array device_put(const Array& x, const PartitionSpec& spec, DevicePutOptions options = {},
                 std::source_location where = std::source_location::current());
/// Whether two concrete arrays have the same type and equal elements. NaN is not equal to NaN.
bool array_equal(const Array& a, const Array& b,
                 std::source_location where = std::source_location::current());
/// The type and the values (or `traced`), abbreviated for large arrays.
std::string to_string(const Array& x);

// --- implementation

template <typename T>
std::vector<T> Array::to_vector(std::source_location where) const {
  static_assert(Element<T>, "to_vector<T>(): T must be the type of an element; use astype(x, ...)");
  if constexpr (std::same_as<T, bool>) {
    const auto bytes = to_vector<std::uint8_t>(where);
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else if constexpr (Element<T>) {
    std::vector<T> elements(static_cast<std::size_t>(size(where)));
    read(dtype_of<T>, elements.data(), where);
    return elements;
  }
}

template <typename T>
T Array::item(std::source_location where) const {
  static_assert(std::is_arithmetic_v<T>, "item<T>(): T must be bool or a number");
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(real_item(where));
  else
    return static_cast<T>(integer_item(where));
}

}  // namespace tessera
