// Value types shared by every stage: element types, shapes, array types and source positions.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Declares the copy and move operations and the destructor, so that the library compiles them once.
// Programs copy whole models, and would otherwise compile these functions again for every type. The
// source file of a type defines them with TESSERA_DEFINE_COPYABLE.
// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define TESSERA_COPYABLE(T)         \
  T(const T& other);                \
  T(T&& other) noexcept;            \
  T& operator=(const T& other);     \
  T& operator=(T&& other) noexcept; \
  ~T()
#define TESSERA_DEFINE_COPYABLE(T)               \
  T::T(const T& other) = default;                \
  T::T(T&& other) noexcept = default;            \
  T& T::operator=(const T& other) = default;     \
  T& T::operator=(T&& other) noexcept = default; \
  T::~T() = default
// NOLINTEND(bugprone-macro-parentheses)

/// Makes everything that public headers declare visible outside of shared libraries.
#define TESSERA_EXPORT __attribute__((visibility("default")))

namespace TESSERA_EXPORT tessera {

enum class DType : std::uint8_t {
  boolean,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64
};
/// All dtypes, in order.
inline constexpr DType kAllDTypes[] = {
    DType::boolean, DType::i8,  DType::i16, DType::i32,  DType::i64, DType::u8, DType::u16,
    DType::u32,     DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64};

/// Size of one element in bytes.
std::size_t size_bytes(DType dtype);
/// The name used in text: `bool`, `i8` to `i64`, `u8` to `u64`, `f16`, `bf16`, `f32`, `f64`.
std::string_view name(DType dtype);
bool is_float(DType dtype);
bool is_integer(DType dtype);
/// f16 or bf16, which are computed in f32.
bool is_half(DType dtype);
/// Whether the dtype is a signed integer.
bool is_signed(DType dtype);

/// The upper 16 bits of a float: 8 bits of precision, with the range of float. Conversion rounds to
/// nearest, ties to even. Arithmetic converts to float first.
class bfloat16 {  // NOLINT(readability-identifier-naming)
 public:
  bfloat16() = default;
  explicit constexpr bfloat16(float x) : bits_(rounded(std::bit_cast<std::uint32_t>(x))) {}
  /// Rounded once.
  explicit bfloat16(double x);
  static constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 x;
    x.bits_ = bits;
    return x;
  }
  constexpr std::uint16_t bits() const { return bits_; }
  constexpr operator float() const {  // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(std::uint32_t{bits_} << 16);
  }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t bits) {
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
  }
  std::uint16_t bits_ = 0;
};

/// IEEE 754 half precision: 11 bits of precision, and values up to 65504. Conversion rounds to
/// nearest, ties to even. Arithmetic converts to float first.
class float16 {  // NOLINT(readability-identifier-naming)
 public:
  float16() = default;
  explicit float16(float x);
  /// Rounded once.
  explicit float16(double x);
  static constexpr float16 from_bits(std::uint16_t bits) {
    float16 x;
    x.bits_ = bits;
    return x;
  }
  constexpr std::uint16_t bits() const { return bits_; }
  constexpr operator float() const {  // NOLINT(google-explicit-constructor)
    const std::uint32_t sign = (bits_ & 0x8000U) << 16;
    const std::uint32_t exponent = bits_ >> 10 & 0x1FU;
    const std::uint32_t fraction = bits_ & 0x3FFU;
    if (exponent == 0) {  // a multiple of 2^-24
      const auto tiny = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
      return std::bit_cast<float>(sign | tiny);
    }
    if (exponent < 0x1F)
      return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const std::uint32_t quiet = fraction == 0 ? 0 : 0x400000U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | fraction << 13);
  }

 private:
  std::uint16_t bits_ = 0;
};

namespace detail {
/// The dtype of elements of type T, or DType::boolean for other types.
template <typename T>
constexpr DType dtype_or_boolean() {
  if constexpr (std::same_as<T, std::int8_t>) return DType::i8;
  if constexpr (std::same_as<T, std::int16_t>) return DType::i16;
  if constexpr (std::same_as<T, std::int32_t>) return DType::i32;
  if constexpr (std::same_as<T, std::int64_t>) return DType::i64;
  if constexpr (std::same_as<T, std::uint8_t>) return DType::u8;
  if constexpr (std::same_as<T, std::uint16_t>) return DType::u16;
  if constexpr (std::same_as<T, std::uint32_t>) return DType::u32;
  if constexpr (std::same_as<T, std::uint64_t>) return DType::u64;
  if constexpr (std::same_as<T, float16>) return DType::f16;
  if constexpr (std::same_as<T, bfloat16>) return DType::bf16;
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, double>) return DType::f64;
  return DType::boolean;
}
template <typename T>
inline constexpr bool kIsHalf = std::same_as<T, float16> || std::same_as<T, bfloat16>;
template <typename T>
inline constexpr bool kIsElement = std::same_as<T, bool> || dtype_or_boolean<T>() != DType::boolean;
}  // namespace detail

/// The C++ types that elements may have: bool, std::int8_t to std::int64_t, std::uint8_t to
/// std::uint64_t, float16, bfloat16, float, double.
template <typename T>
concept Element = detail::kIsElement<T>;

template <Element T>
inline constexpr DType dtype_of = detail::dtype_or_boolean<T>();

/// How sums are computed. exact: by a fixed tree, with the same bits on any mesh. fast: with fewer
/// bytes sent between devices; the bits depend on the mesh, but not on the number of threads.
/// device: in the order that the compiler of a PJRT plugin chooses.
enum class Numerics : std::uint8_t { exact, fast, device };
/// `exact`, `fast`, `device`.
std::string_view name(Numerics numerics);

/// Sizes of the dimensions, outermost first; empty for a scalar.
using Shape = std::vector<std::int64_t>;

/// Number of elements; 1 for a scalar.
std::int64_t num_elements(const Shape& shape);
/// `[8,16]`; `[]` for a scalar.
std::string to_string(const Shape& shape);
/// Row-major strides in elements.
std::vector<std::int64_t> row_major_strides(const Shape& shape);

/// The type of an array: element type and shape.
struct Type {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  friend bool operator==(const Type&, const Type&) = default;
};

/// `f32[8,16]`.
std::string to_string(const Type& type);
std::int64_t size_bytes(const Type& type);

/// Holds a value of any copyable type as a static field of a tree (tree.h). Different values must
/// have different keys. Numbers, strings, specs and meshes need no key.
template <typename T>
struct Static {
  T value;
  std::string key = {};
  const T& operator*() const { return value; }
  const T* operator->() const { return &value; }
};

/// A position in a source file; `file` is empty when unknown.
struct Span {
  std::string file;
  std::uint32_t line = 0;

  Span() = default;
  Span(std::string file_name, std::uint32_t line_number)
      : file(std::move(file_name)), line(line_number) {}
  Span(std::source_location where);  // NOLINT(google-explicit-constructor)
  friend bool operator==(const Span&, const Span&) = default;
};

/// `examples/lm.cc:41`; empty when unknown.
std::string to_string(const Span& span);

namespace detail {

/// A number that no other call returns.
std::uint64_t new_identity();

/// A copyable function object of any type. Unlike std::function, it is cheap to compile and has a
/// key. Copies have the same key, and so do all objects made from the same function or the same
/// lambda without captures. A lambda with captures gets a new key each time.
template <typename R, typename... Args>
class Function {
 public:
  Function() = default;
  template <typename F>
  explicit Function(F f)
      : call_([](const void* target, Args... args) -> R {
          return (*static_cast<const F*>(target))(std::forward<Args>(args)...);
        }) {
    if constexpr (std::is_pointer_v<F>) {
      identity_ = reinterpret_cast<std::uintptr_t>(f);
    } else if constexpr (std::is_empty_v<F>) {
      identity_ = reinterpret_cast<std::uintptr_t>(call_);
    } else {
      identity_ = new_identity();
      has_captures_ = true;
    }
    target_ = std::make_shared<const F>(std::move(f));
  }
  explicit operator bool() const { return call_ != nullptr; }
  R operator()(Args... args) const { return call_(target_.get(), std::forward<Args>(args)...); }
  std::string key() const {
    return (has_captures_ ? "closure " : "function ") + std::to_string(identity_);
  }

 private:
  R (*call_)(const void*, Args...) = nullptr;
  std::shared_ptr<const void> target_;
  std::uint64_t identity_ = 0;
  bool has_captures_ = false;
};

/// The type of a function. `R` is void or a tree.
template <typename R, typename... Args>
struct Signature {
  static constexpr bool kReturnsNothing = std::is_void_v<R>;
  static constexpr bool kChangesArguments =
      ((std::is_lvalue_reference_v<Args> && !std::is_const_v<std::remove_reference_t<Args>>) ||
       ...);
};
template <typename F>
struct SignatureOf {
  using Type = typename SignatureOf<decltype(&F::operator())>::Type;
};
template <typename R, typename... Args>
struct SignatureOf<R (*)(Args...)> {
  using Type = Signature<R, Args...>;
};
template <typename C, typename R, typename... Args>
struct SignatureOf<R (C::*)(Args...)> {
  using Type = Signature<R, Args...>;
};
template <typename C, typename R, typename... Args>
struct SignatureOf<R (C::*)(Args...) const> {
  using Type = Signature<R, Args...>;
};
template <typename F>
concept HasSignature = std::is_pointer_v<F> || requires {
  &F::operator();
};

/// Stands for a function that jit rejects, so that the failed assertion is the only error.
struct NotJitted {
  template <typename... Args>
  NotJitted operator()(const Args&...) const;
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

}  // namespace detail

}  // namespace tessera
