#include "compile/host/kernels/elementwise/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "base/sanitized.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"
#include "compile/host/kernels/on_every_target.h"
#include "ops/record.h"

namespace tessera::kernels {
namespace {

using elementwise::Entry;
using Bytes = std::vector<std::byte>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using testing::on_every_target;

// --- operands and results of kernels -------------------------------------------------------------

struct Signature {
  std::vector<DType> inputs;
  DType output;
};

Signature signature(const Entry& entry) {
  const std::string name(entry.name);
  const DType t = entry.dtype;
  if (name.starts_with("convert_")) {
    for (DType to : {DType::boolean, DType::i32, DType::u32, DType::f32}) {
      if (name.ends_with(std::string("_").append(tessera::name(to)))) return {{t}, to};
    }
  }
  if (name.starts_with("compare_")) return {{t, t}, DType::boolean};
  if (name == "select") return {{DType::boolean, t, t}, t};
  if (name == "is_finite") return {{t}, DType::boolean};
  if (name == "copy") return {{t}, t};
  return {std::vector<DType>(ir::op_named(name).samples->front().operands.size(), t), t};
}

// --- operands ------------------------------------------------------------------------------------

std::vector<std::uint32_t> special_words(DType dtype) {
  if (dtype == DType::boolean) return {0, 1};
  if (dtype != DType::f32)
    return {0, 1, 2, 3, 7, 31, 32, 33, 100, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF};
  std::vector<std::uint32_t> words;
  for (float x : {0.0f,          1e-45f,         1e-40f,        1.17549435e-38f,
                  1e-20f,        1e-6f,          0.25f,         0.5f,
                  0.99999994f,   1.0f,           1.0000001f,    1.5f,
                  2.0f,          2.5f,           3.14159274f,   10.0f,
                  88.7228394f,   88.73f,         103.97f,       104.5f,
                  38999.0f,      39001.0f,       8388607.5f,    8388608.0f,
                  2147483520.0f, 2147483648.0f,  4294967040.0f, 4294967296.0f,
                  1e20f,         3.40282347e38f, kInf}) {
    words.push_back(std::bit_cast<std::uint32_t>(x));
    words.push_back(std::bit_cast<std::uint32_t>(-x));
  }
  words.push_back(std::bit_cast<std::uint32_t>(kNaN));
  return words;
}

std::uint32_t random_word(DType dtype, std::mt19937& random) {
  const auto bits = static_cast<std::uint32_t>(random());
  if (dtype == DType::boolean) return bits & 1U;
  if (dtype == DType::f32 && random() % 2 == 0)
    return std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(bits % 20001) - 10000) *
                                        0.001f);
  if (dtype != DType::f32 && random() % 2 == 0) return bits % 64U - 16U;
  return bits;
}

// All combinations of special values, followed by random values.
std::vector<std::vector<std::uint32_t>> operand_words(const Signature& s, std::size_t random_count,
                                                      std::uint32_t seed) {
  std::vector<std::vector<std::uint32_t>> specials;
  std::size_t combinations = 1;
  for (DType t : s.inputs) {
    specials.push_back(special_words(t));
    combinations *= specials.back().size();
  }
  combinations = std::min<std::size_t>(combinations, 40000);
  std::mt19937 random(seed);
  std::vector<std::vector<std::uint32_t>> words(s.inputs.size());
  for (std::size_t i = 0; i < combinations + random_count; ++i) {
    std::size_t rest = i;
    for (std::size_t k = 0; k < words.size(); ++k) {
      words[k].push_back(i < combinations ? specials[k][rest % specials[k].size()]
                                          : random_word(s.inputs[k], random));
      rest /= specials[k].size();
    }
  }
  return words;
}

Bytes pack(DType dtype, const std::vector<std::uint32_t>& words, std::size_t misaligned = 0) {
  const std::size_t size = size_bytes(dtype);
  Bytes bytes(misaligned + words.size() * size);
  for (std::size_t i = 0; i < words.size(); ++i)
    std::memcpy(bytes.data() + misaligned + i * size, &words[i], size);
  return bytes;
}

std::vector<std::uint32_t> unpack(DType dtype, const std::byte* bytes, std::size_t n) {
  const std::size_t size = size_bytes(dtype);
  std::vector<std::uint32_t> words(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(&words[i], bytes + i * size, size);
    if (dtype == DType::f32 && std::isnan(std::bit_cast<float>(words[i]))) words[i] = 0x7FC00000;
  }
  return words;
}

std::vector<std::uint32_t> run(const Entry& entry, const Signature& s,
                               const std::vector<std::vector<std::uint32_t>>& words) {
  std::vector<Bytes> operands;
  std::vector<TileInput> inputs;
  for (std::size_t k = 0; k < words.size(); ++k) operands.push_back(pack(s.inputs[k], words[k]));
  for (const Bytes& operand : operands) inputs.push_back({operand.data(), false});
  const std::size_t n = words[0].size();
  Bytes result(n * size_bytes(s.output));
  find_tile_kernel(entry.name, entry.dtype)->run(inputs.data(), result.data(), n);
  return unpack(s.output, result.data(), n);
}

// --- the definitions -----------------------------------------------------------------------------

float as_float(std::uint32_t word) { return std::bit_cast<float>(word); }
std::uint32_t as_word(float x) {
  return std::isnan(x) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(x);
}
std::int64_t as_int(DType dtype, std::uint32_t word) {
  return dtype == DType::i32 ? std::int64_t{static_cast<std::int32_t>(word)} : std::int64_t{word};
}

float larger(float x, float y) {
  if (std::isnan(x) || std::isnan(y)) return kNaN;
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}
float smaller(float x, float y) {
  if (std::isnan(x) || std::isnan(y)) return kNaN;
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

template <class T>
std::uint32_t compare(std::string_view how, T x, T y) {
  if (how == "eq") return x == y;
  if (how == "ne") return x != y;
  if (how == "lt") return x < y;
  if (how == "le") return x <= y;
  return how == "gt" ? x > y : x >= y;
}

using FloatFunction = float (*)(float, float, float);
const std::map<std::string_view, FloatFunction>& float_functions() {
  static const std::map<std::string_view, FloatFunction> kFunctions = {
      {"neg", [](float x, float, float) { return -x; }},
      {"abs", [](float x, float, float) { return std::fabs(x); }},
      {"sign",
       [](float x, float, float) {
         return x == 0 ? x : x > 0 ? 1.0f : x < 0 ? -1.0f : kNaN;
       }},
      {"sqrt", [](float x, float, float) { return std::sqrt(x); }},
      {"rsqrt", [](float x, float, float) { return 1.0f / std::sqrt(x); }},
      {"floor", [](float x, float, float) { return std::floor(x); }},
      {"ceil", [](float x, float, float) { return std::ceil(x); }},
      {"round", [](float x, float, float) { return std::nearbyint(x); }},
      {"copy", [](float x, float, float) { return x; }},
      {"add", [](float x, float y, float) { return x + y; }},
      {"sub", [](float x, float y, float) { return x - y; }},
      {"mul", [](float x, float y, float) { return x * y; }},
      {"div", [](float x, float y, float) { return x / y; }},
      {"max", [](float x, float y, float) { return larger(x, y); }},
      {"min", [](float x, float y, float) { return smaller(x, y); }},
      {"rem", [](float x, float y, float) { return std::fmod(x, y); }},
      {"pow",
       [](float x, float y, float) { return static_cast<float>(std::pow(double{x}, double{y})); }},
      {"fma", [](float x, float y, float z) { return std::fma(x, y, z); }},
      {"clamp", [](float x, float y, float z) { return smaller(larger(x, y), z); }},
  };
  return kFunctions;
}

std::uint32_t convert(DType from, DType to, std::uint32_t word) {
  if (from == DType::f32) {
    const float x = as_float(word);
    if (to == DType::f32) return as_word(x);
    if (to == DType::boolean) return x != 0.0f;
    if (std::isnan(x)) return 0;
    const double low = to == DType::i32 ? -2147483648.0 : 0.0;
    const double high = to == DType::i32 ? 2147483647.0 : 4294967295.0;
    return static_cast<std::uint32_t>(
        static_cast<std::int64_t>(std::clamp(std::trunc(double{x}), low, high)));
  }
  const std::int64_t x = as_int(from, word);
  if (to == DType::boolean) return x != 0;
  return to == DType::f32 ? as_word(static_cast<float>(x)) : word;
}

std::uint32_t expected_integer(const Entry& e, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const DType t = e.dtype;
  const std::int64_t x = as_int(t, a);
  const std::int64_t y = as_int(t, b);
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  if (e.name == "neg") return word(-x);
  if (e.name == "abs") return word(x < 0 ? -x : x);
  if (e.name == "sign") return word(x < 0 ? -1 : x > 0);
  if (e.name == "not") return t == DType::boolean ? 1U - a : ~a;
  if (e.name == "copy") return a;
  if (e.name == "population_count") return static_cast<std::uint32_t>(std::popcount(a));
  if (e.name == "count_leading_zeros") return static_cast<std::uint32_t>(std::countl_zero(a));
  if (e.name == "add") return a + b;
  if (e.name == "sub") return a - b;
  if (e.name == "mul") return a * b;
  if (e.name == "div") return word(y == 0 ? -1 : x / y);
  if (e.name == "rem") return word(y == 0 ? x : x % y);
  if (e.name == "max") return word(std::max(x, y));
  if (e.name == "min") return word(std::min(x, y));
  if (e.name == "and") return a & b;
  if (e.name == "or") return a | b;
  if (e.name == "xor") return a ^ b;
  if (e.name == "shift_left") return b < 32 ? a << b : 0;
  if (e.name == "shift_right_logical") return b < 32 ? a >> b : 0;
  if (e.name == "shift_right_arithmetic")
    return word(std::int64_t{static_cast<std::int32_t>(a)} >> std::min(b, 31U));
  if (e.name == "clamp") return word(std::min(std::max(x, y), as_int(t, c)));
  ADD_FAILURE() << "no definition of " << e.name;
  return 0;
}

std::uint32_t expected(const Entry& e, const Signature& s, std::uint32_t a, std::uint32_t b,
                       std::uint32_t c) {
  if (e.name == "select") return a != 0 ? b : c;
  if (e.name.starts_with("convert_")) return convert(e.dtype, s.output, a);
  if (e.name.starts_with("compare_")) {
    return e.dtype == DType::f32
               ? compare(e.name.substr(8), as_float(a), as_float(b))
               : compare(e.name.substr(8), as_int(e.dtype, a), as_int(e.dtype, b));
  }
  if (e.name == "is_finite") return std::isfinite(as_float(a));
  if (e.dtype == DType::f32)
    return as_word(float_functions().at(e.name)(as_float(a), as_float(b), as_float(c)));
  return expected_integer(e, a, b, c);
}

// --- approximated functions ----------------------------------------------------------------------

using DoubleFunction = double (*)(double);
const std::map<std::string_view, DoubleFunction>& double_functions() {
  static const std::map<std::string_view, DoubleFunction> kFunctions = {
      {"exp", std::exp},     {"expm1", std::expm1},
      {"log", std::log},     {"log1p", std::log1p},
      {"tanh", std::tanh},   {"sin", std::sin},
      {"erf", std::erf},     {"erfc", std::erfc},
      {"exp2", std::exp2},   {"log2", std::log2},
      {"sinh", std::sinh},   {"cosh", std::cosh},
      {"asinh", std::asinh}, {"acosh", std::acosh},
      {"atanh", std::atanh}, {"asin", std::asin},
      {"acos", std::acos},   {"atan", std::atan},
      {"tan", std::tan},     {"cbrt", std::cbrt},
      {"cos", std::cos},     {"logistic", [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
  };
  return kFunctions;
}

// The distance in steps between representable floats; 0 for two NaNs.
std::int64_t ulp_distance(float x, float y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y) ? 0 : INT64_MAX;
  const auto order = [](float value) {
    const std::int64_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
    return std::signbit(value) ? -magnitude : magnitude;
  };
  return std::abs(order(x) - order(y));
}

std::int64_t allowed_ulp(std::string_view name, float x) {
  // By its definition, logistic is 0 where exp(-x) is infinite.
  return name == "logistic" && x < -87.0f ? 12000000 : 4;
}

void expect_close(std::string_view name, const std::vector<std::uint32_t>& x,
                  const std::vector<std::uint32_t>& y) {
  const DoubleFunction function = double_functions().at(name);
  std::int64_t worst = 0;
  int failures = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float in = as_float(x[i]);
    const auto want = static_cast<float>(function(double{in}));
    const std::int64_t distance = ulp_distance(as_float(y[i]), want);
    const bool zero_has_its_sign =
        want != 0.0f || std::signbit(as_float(y[i])) == std::signbit(want);
    if (distance <= allowed_ulp(name, in)) worst = std::max(worst, in < -87.0f ? 0 : distance);
    if (distance <= allowed_ulp(name, in) && zero_has_its_sign) continue;
    if (++failures < 10)
      ADD_FAILURE() << name << "(" << in << ") = " << as_float(y[i]) << ", not " << want;
  }
  EXPECT_EQ(failures, 0) << name;
  ::testing::Test::RecordProperty(std::string(name) + "_ulp", static_cast<int>(worst));
}

bool is_approximated(const Entry& entry) {
  return double_functions().contains(entry.name) || entry.name == "erf_inv" ||
         entry.name == "atan2";
}

template <class Body>
void for_each_kernel(const Body& body) {
  for (const auto family : elementwise::kFamilies) {
    for (const Entry& entry : family()) {
      SCOPED_TRACE(std::string(entry.name) + " " + std::string(name(entry.dtype)));
      body(entry, signature(entry));
    }
  }
}

// --- tests ---------------------------------------------------------------------------------------

TEST(Elementwise, AllKernelsExist) {
  int count = 0;
  for_each_kernel([&](const Entry&, const Signature&) { ++count; });
  EXPECT_EQ(count, 26 + 25 + 28 + 28 + 30);
  EXPECT_EQ(find_tile_kernel("exp", DType::i32), nullptr);
  EXPECT_EQ(find_tile_kernel("nonsense", DType::f32), nullptr);
}

TEST(Elementwise, ExactKernelsFollowTheirDefinitions) {
  on_every_target([](const char* /*name*/) {
    for_each_kernel([](const Entry& entry, const Signature& s) {
      if (is_approximated(entry)) return;
      const auto words = operand_words(s, 2000, 7);
      const auto result = run(entry, s, words);
      for (std::size_t i = 0; i < result.size(); ++i) {
        const std::uint32_t a = words[0][i];
        const std::uint32_t b = words.size() > 1 ? words[1][i] : 0;
        const std::uint32_t c = words.size() > 2 ? words[2][i] : 0;
        std::uint32_t want = expected(entry, s, a, b, c);
        if (s.output == DType::f32) want = as_word(as_float(want));
        ASSERT_EQ(result[i], want) << std::hex << a << " " << b << " " << c;
      }
    });
  });
}

TEST(Elementwise, FunctionsAreCloseAtSpecialValues) {
  on_every_target([](const char* /*name*/) {
    for_each_kernel([](const Entry& entry, const Signature& s) {
      if (!double_functions().contains(entry.name)) return;
      const auto words = operand_words(s, 500, 3);
      expect_close(entry.name, words[0], run(entry, s, words));
    });
  });
}

constexpr int kSparse = kIsSanitized ? 5 : 1;

TEST(Elementwise, FunctionsAreCloseOnDenseSweeps) {
  for_each_kernel([](const Entry& entry, const Signature& s) {
    if (!double_functions().contains(entry.name)) return;
    std::vector<std::uint32_t> x;
    for (std::uint64_t bits = 0; bits < 0x100000000; bits += kSparse * 6007)
      x.push_back(static_cast<std::uint32_t>(bits));
    for (int i = -300000; i < 300000; i += kSparse)
      x.push_back(as_word(static_cast<float>(i) * 3.7e-5f));
    for (int i = -100000; i < 100000; i += kSparse)
      x.push_back(as_word(static_cast<float>(i) * 1.1e-3f));
    for (int i = 0; i < 12400; ++i)  // close to the zeros of sin and cos
      x.push_back(as_word(static_cast<float>(static_cast<double>(i) * 1.5707963267948966)));
    expect_close(entry.name, x, run(entry, s, {x}));
  });
}

TEST(Elementwise, Atan2IsClose) {
  const Entry entry = {"atan2", DType::f32, {}};
  const Signature s = {{DType::f32, DType::f32}, DType::f32};
  const auto words = operand_words(s, 100000, 13);
  const auto angles = run(entry, s, words);
  for (std::size_t i = 0; i < angles.size(); ++i) {
    const float y = as_float(words[0][i]);
    const float x = as_float(words[1][i]);
    const auto want = static_cast<float>(std::atan2(double{y}, double{x}));
    ASSERT_LE(ulp_distance(as_float(angles[i]), want), 4) << y << " " << x;
    if (!std::isnan(want)) {
      ASSERT_EQ(std::signbit(as_float(angles[i])), std::signbit(want)) << y << " " << x;
    }
  }
}

TEST(Elementwise, ErfInvInvertsErf) {
  const Entry entry = {"erf_inv", DType::f32, {}};
  const Signature s = {{DType::f32}, DType::f32};
  std::vector<std::uint32_t> x;
  for (int i = -99999; i < 100000; ++i) x.push_back(as_word(static_cast<float>(i) * 1e-5f));
  const auto y = run(entry, s, {x});
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(std::erf(double{as_float(y[i])}), double{as_float(x[i])}, 2.5e-7) << i;
  const auto edges = run(entry, s,
                         {{as_word(1.0f), as_word(-1.0f), as_word(1.5f), as_word(kNaN),
                           as_word(-0.0f), as_word(kInf)}});
  EXPECT_EQ(edges, (std::vector<std::uint32_t>{as_word(kInf), as_word(-kInf), as_word(kNaN),
                                               as_word(kNaN), as_word(-0.0f), as_word(kNaN)}));
}

TEST(Elementwise, EveryTargetGivesTheSameBits) {
  std::map<std::string, std::vector<std::uint32_t>> first;
  on_every_target([&](const char* /*name*/) {
    for_each_kernel([&](const Entry& entry, const Signature& s) {
      const auto result = run(entry, s, operand_words(s, 20000, 11));
      const auto key = std::string(entry.name) + std::string(name(entry.dtype));
      EXPECT_TRUE(first.try_emplace(key, result).first->second == result);
    });
  });
}

TEST(Elementwise, FunctionsGiveTheSameBitsOnDenseSweeps) {
  std::vector<std::uint32_t> x;
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += kSparse * 16411)
    x.push_back(static_cast<std::uint32_t>(bits));
  std::map<std::string, std::vector<std::uint32_t>> first;
  on_every_target([&](const char* /*name*/) {
    for_each_kernel([&](const Entry& entry, const Signature& s) {
      if (!is_approximated(entry)) return;
      std::vector<std::vector<std::uint32_t>> words(s.inputs.size(), x);
      std::reverse(words.back().begin(), words.back().end());
      const auto result = run(entry, s, words);
      EXPECT_TRUE(first.try_emplace(std::string(entry.name), result).first->second == result);
    });
  });
}

// Runs the kernel on the first n elements, with all memory shifted by `shift` elements. Operands in
// the bit set `scalars` are scalars, taken from element 0. The result overwrites operand
// `in_place`, or has its own memory if that is -1.
std::vector<std::uint32_t> run_shifted(const Entry& entry, const Signature& s,
                                       const std::vector<std::vector<std::uint32_t>>& words,
                                       std::size_t n, unsigned scalars, std::size_t shift,
                                       int in_place) {
  std::vector<Bytes> operands;
  std::vector<TileInput> inputs;
  for (std::size_t k = 0; k < words.size(); ++k) {
    const std::size_t offset = shift * size_bytes(s.inputs[k]);
    const bool is_scalar = (scalars >> k & 1U) != 0;
    const std::vector<std::uint32_t> some(words[k].begin(),
                                          words[k].begin() + (is_scalar ? 1 : std::ptrdiff_t(n)));
    operands.push_back(pack(s.inputs[k], some, offset));
    inputs.push_back({operands.back().data() + offset, is_scalar});
  }
  const std::size_t size = size_bytes(s.output);
  constexpr auto kGuard = std::byte{0xA5};
  Bytes result((n + shift + 1) * size, kGuard);
  std::byte* output = result.data() + shift * size;
  if (in_place >= 0) {
    const auto k = static_cast<std::size_t>(in_place);
    output = operands[k].data() + shift * size_bytes(s.inputs[k]);
  }
  find_tile_kernel(entry.name, entry.dtype)->run(inputs.data(), output, n);
  if (in_place < 0) {
    EXPECT_TRUE(std::all_of(result.end() - std::ptrdiff_t(size), result.end(),
                            [](std::byte b) { return b == kGuard; }));
  }
  return unpack(s.output, output, n);
}

TEST(Elementwise, TailsScalarsAndAlignmentChangeNothing) {
  on_every_target([](const char* /*name*/) {
    for_each_kernel([](const Entry& entry, const Signature& s) {
      const std::size_t arity = s.inputs.size();
      auto words = operand_words(s, 80, 5);
      for (auto& w : words) w.erase(w.begin(), w.end() - 80);
      for (unsigned scalars = 0; scalars < 1U << arity; ++scalars) {
        auto expanded = words;
        for (std::size_t k = 0; k < arity; ++k) {
          if (scalars >> k & 1U) std::fill(expanded[k].begin(), expanded[k].end(), words[k][0]);
        }
        const auto whole = run(entry, s, expanded);
        for (std::size_t n = 1; n <= 70; n += n < 40 ? 1 : 7) {
          const std::vector<std::uint32_t> want(whole.begin(), whole.begin() + std::ptrdiff_t(n));
          ASSERT_EQ(run_shifted(entry, s, words, n, scalars, n % 5, -1), want) << n;
          for (std::size_t k = 0; k < arity; ++k) {
            if ((scalars >> k & 1U) || size_bytes(s.inputs[k]) != size_bytes(s.output)) continue;
            ASSERT_EQ(run_shifted(entry, s, words, n, scalars, n % 3, static_cast<int>(k)), want);
          }
        }
      }
    });
  });
}

// Runs the kernel as a stage, on whole blocks. Input `place` comes from memory or from the previous
// stage. Inputs in the bit set `scalars` are one block that is used for all elements.
std::vector<std::uint32_t> run_staged(const Entry& entry, const Signature& s,
                                      const std::vector<std::vector<std::uint32_t>>& words,
                                      std::size_t place, bool is_handed_on, unsigned scalars) {
  const ChainKernels& chain = chain_kernels();
  std::vector<Bytes> memory;
  std::vector<StageOperand> operands;
  for (std::size_t k = 0; k < words.size(); ++k) {
    memory.push_back(pack(s.inputs[k], words[k]));
    const bool is_scalar = (scalars >> k & 1U) != 0;
    operands.push_back({.base = memory.back().data(), .mask = is_scalar ? 0 : ~std::size_t{0}});
  }
  Bytes result(words[0].size() * size_bytes(s.output));
  std::vector<Stage> stages(3);
  stages[0].function = chain.copies[static_cast<std::size_t>(s.inputs[place])];
  stages[0].from = operands[place];
  stages[1].function = find_tile_kernel(entry.name, entry.dtype)->stages[0][place];
  std::size_t other = 0;
  for (std::size_t k = 0; k < words.size(); ++k) {
    if (k != place) stages[1].others[other++] = operands[k];
  }
  stages[1].to = {.base = result.data(), .mask = ~std::size_t{0}};
  stages[2].function = chain.end;
  if (!is_handed_on) stages[1].from = operands[place];
  chain.run(is_handed_on ? stages.data() : &stages[1], 0, words[0].size() / chain.block);
  return unpack(s.output, result.data(), words[0].size());
}

TEST(Elementwise, StagesGiveTheBitsOfRuns) {
  on_every_target([](const char* /*name*/) {
    const std::size_t block = chain_kernels().block;
    for_each_kernel([&](const Entry& entry, const Signature& s) {
      const std::size_t arity = s.inputs.size();
      auto words = operand_words(s, 4 * block, 11);
      for (auto& w : words) w.resize(w.size() / block * block);
      for (unsigned scalars = 0; scalars < 1U << arity; ++scalars) {
        auto repeated = words;
        for (std::size_t k = 0; k < arity; ++k) {
          for (std::size_t i = 0; (scalars >> k & 1U) != 0 && i < words[k].size(); ++i) {
            repeated[k][i] = words[k][i % block];
          }
        }
        const auto want = run(entry, s, repeated);
        for (std::size_t place = 0; place < arity; ++place) {
          ASSERT_EQ(run_staged(entry, s, words, place, true, scalars), want) << place;
          ASSERT_EQ(run_staged(entry, s, words, place, false, scalars), want) << place;
        }
      }
    });
  });
}

}  // namespace
}  // namespace tessera::kernels
