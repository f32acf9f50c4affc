// Ops outside traces: they have the bits of jitted ops, and share one program for all numbers.
#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include <tessera/tessera.h>

#include "api/context/context.h"
#include "api/test_support.h"

namespace tessera {
namespace {

using testing::mistake_of;

std::size_t num_programs() { return detail::current_context().eager_programs.size(); }

/// The bytes of the elements, which are equal only for equal bits.
std::vector<std::byte> bytes_of(const Array& x) {
  const std::span<const std::byte> bytes = x.addressable_shards()[0].bytes();
  return {bytes.begin(), bytes.end()};
}

struct Case {
  const char* name;
  std::function<Array(const Array& x, const Operand& number)> call;
};

template <typename Number>
void expect_same_as_jitted(const std::vector<Case>& cases, const Array& x, Number number) {
  for (const Case& one : cases) {
    const Array at_once = one.call(x, number);
    const auto jitted = jit([&](const Array& a) { return one.call(a, number); });
    const Array wanted = jitted(x);
    ASSERT_EQ(at_once.type(), wanted.type()) << one.name;
    EXPECT_EQ(bytes_of(at_once), bytes_of(wanted)) << one.name << " with " << +number;
  }
}

const std::vector<Case>& any_numbers() {
  static const std::vector<Case> cases = {
      {"add", [](const Array& x, const Operand& n) { return x + n; }},
      {"sub", [](const Array& x, const Operand& n) { return n - x; }},
      {"mul", [](const Array& x, const Operand& n) { return n * x; }},
      {"max", [](const Array& x, const Operand& n) { return maximum(x, n); }},
      {"clamp", [](const Array& x, const Operand& n) { return clamp(-1, x, n); }},
      {"less", [](const Array& x, const Operand& n) { return x < n; }},
      {"equal", [](const Array& x, const Operand& n) { return equal(n, x); }},
      {"where", [](const Array& x, const Operand& n) { return where(x < 1, x, n); }},
      {"twice", [](const Array& x, const Operand& n) { return x * x + n; }},
  };
  return cases;
}

const std::vector<Case>& floats() {
  static const std::vector<Case> cases = {
      {"div", [](const Array& x, const Operand& n) { return x / n; }},
      {"div by", [](const Array& x, const Operand& n) { return n / x; }},
      {"pow", [](const Array& x, const Operand& n) { return pow(abs(x), n); }},
      {"atan2", [](const Array& x, const Operand& n) { return atan2(n, x); }},
      {"rem", [](const Array& x, const Operand& n) { return x % n; }},
      {"fma", [](const Array& x, const Operand& n) { return fma(x, n, 0.1); }},
  };
  return cases;
}

TEST(Eager, NumbersGiveTheBitsOfJittedConstants) {
  std::minstd_rand random(3);
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0F, -0.0F, 1.0F, -1.5F, inf, -inf, std::nanf(""), 1e-40F, 3e38F};
  while (values.size() < 40) {
    values.push_back(std::ldexp(static_cast<float>(random() % 2000) - 1000.0F, -9));
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Array x = astype(array(values), dtype);
    for (const double number :
         {0.0, -0.0, 1.0, 2.0, 0.1, -3.7, 1e-40, 1e300, std::nan(""), 1.0 / 3, -1e-320}) {
      expect_same_as_jitted(any_numbers(), x, number);
      expect_same_as_jitted(floats(), x, number);
    }
    expect_same_as_jitted(any_numbers(), x, 16777217);
    expect_same_as_jitted(floats(), x, true);
  }
  const Array whole = array(std::vector<std::int32_t>{0, 1, -1, 2147483647, -2147483647 - 1, 77});
  for (const int number : {0, 1, -1, 2147483647, -2147483647 - 1, 12}) {
    expect_same_as_jitted(any_numbers(), whole, number);
  }
  const Array natural = array(std::vector<std::uint32_t>{0, 1, 4294967295U, 77});
  const std::vector<Case> first(any_numbers().begin(), any_numbers().begin() + 4);
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{4294967295}}) {
    expect_same_as_jitted(first, natural, number);
  }
}

TEST(Eager, AllNumbersShareAProgram) {
  const Context context;
  const use_context scope(context);
  const Array x = testing::numbers({3, 5});
  const auto call_all = [&](double number) {
    for (const Case& one : any_numbers()) one.call(x, number);
    for (const Case& one : floats()) one.call(x, number);
    return sqrt(number).item<float>();
  };
  call_all(0.5);
  const std::size_t count = num_programs();
  EXPECT_GT(count, 10U);
  for (int i = 1; i < 20; ++i) {
    EXPECT_EQ(call_all(i * 0.37), std::sqrt(static_cast<float>(i * 0.37)));
  }
  EXPECT_EQ(num_programs(), count);
}

TEST(Eager, ProgramsDifferByWhatTheyDependOn) {
  const Context context;
  const use_context scope(context);
  const Array x = testing::numbers({4, 6});
  std::size_t count = num_programs();
  const auto expect_new = [&](const char* what) {
    EXPECT_EQ(num_programs(), count + 1) << what;
    count = num_programs();
  };
  (void)(x + x);
  expect_new("an op");
  (void)(x + 1.0);
  expect_new("a number instead of an array");
  (void)(1.0 + x);
  expect_new("the number comes first");
  (void)less(x, x);
  expect_new("another op");
  (void)less_equal(x, x);
  expect_new("another direction");
  const Array column = testing::numbers({4, 1});
  count = num_programs();
  (void)(x + column);
  expect_new("another shape");
  set_grains(4);
  (void)(x + x);
  expect_new("grains");
  set_grains(8);
  set_engine("reference");
  (void)(x + x);
  expect_new("the engine");
  set_engine("host");
  const Mesh mesh = make_mesh({{"data", 2}});
  {
    const use_mesh on_mesh(mesh);
    EXPECT_EQ((x + x).sharding().mesh, mesh);
    expect_new("a mesh");
  }
  EXPECT_EQ((x + x).sharding().mesh, Mesh());
  const Array split = device_put(x, NamedSharding(mesh, P{"data"}));
  const Array sum = split + 1.0;
  EXPECT_EQ(sum.sharding().spec, P{"data"});
  EXPECT_EQ(sum.to_vector<float>(), (x + 1.0).to_vector<float>());
}

TEST(Eager, AnArrayMayStandOnBothSides) {
  const Array x = array({1.0F, -2.0F});
  const Array y = array({5.0F, 7.0F});
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ((x - x).to_vector<float>(), (std::vector<float>{0, 0}));
    EXPECT_EQ((x - y).to_vector<float>(), (std::vector<float>{-4, -9}));
    EXPECT_EQ((y - x).to_vector<float>(), (std::vector<float>{4, 9}));
  }
}

TEST(Eager, MistakesDoNotDependOnWhatIsCached) {
  const Array x = array({1.0F, 2.0F});
  const Array whole = array(std::vector<std::int32_t>{1, 2});
  EXPECT_EQ((whole + 1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 3}));
  EXPECT_NE(mistake_of([&] { (void)(whole + 1.5); }).what.find("fraction"), std::string::npos);
  EXPECT_NE(mistake_of([&] { (void)(whole + 3000000000); }).what.find("out of range"),
            std::string::npos);
  (void)(x + x);
  const auto consume = jit([](const Array& a) { return a * 2.0; }, {.donate_argnums = {0}});
  const Array given = x + 0.0;
  (void)(given + given);
  (void)consume(given);
  EXPECT_NE(mistake_of([&] { (void)(given + given); }).what.find("donated"), std::string::npos);
  EXPECT_NE(mistake_of([&] { (void)(Array() + x); }).what.find("empty"), std::string::npos);
  const Array abstract = eval_shape([](const Array& a) { return a; }, x);
  EXPECT_NE(mistake_of([&] { (void)(abstract + x); }).what.find("no values"), std::string::npos);
}

TEST(Eager, EachWatcherIsTold) {
  const Array x =
      device_put(testing::numbers({4}), NamedSharding(make_mesh({{"data", 2}}), P{"data"}));
  std::vector<int> told;
  for (int i = 0; i < 3; ++i) {
    inspect_array_sharding(x, [&told, i](const NamedSharding&) { told.push_back(i); });
  }
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2}));
}

}  // namespace
}  // namespace tessera
