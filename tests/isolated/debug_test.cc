// With several processes, the first one prints, and it prints the same as a single process.
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>

#include <tessera/tessera.h>

#include "tests/isolated/reports.h"

namespace tessera {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void print_values(const std::filesystem::path& file) {
  const use_mesh mesh(make_mesh({{"a", 2}, {"b", 2}}));
  std::ofstream stream(file, std::ios::app);
  const Array x = device_put(arange(8, DType::f32), P{{"b", "a"}});
  debug::print(stream, "eager {}", {x});
  jit([&](const Array& v) {
    debug::print(stream, "jit {} {}", {v * 2, sum(v)});
    return scan(
               [&](const Array& carry, const Array& slice) {
                 debug::print(stream, "scan {}", {carry + slice});
                 return std::pair(carry + slice, std::tuple<>());
               },
               zeros({2}), reshape(v, {4, 2}))
        .first;
  })(x);
}

TEST(IsolatedDebug, TheFirstProcessPrints) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("debug_" + std::to_string(getpid()));
  for (const int processes : {4, 2, 1}) {
    testing::ReportingProgram program([&] { print_values(file); });
    EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0);
    EXPECT_EQ(text_of(file),
              "eager [0, 1, 2, 3, 4, 5, 6, 7]\n"
              "jit [0, 2, 4, 6, 8, 10, 12, 14] 28\n"
              "scan [0, 1]\nscan [2, 4]\nscan [6, 9]\nscan [12, 16]\n")
        << processes;
    std::filesystem::remove(file);
  }
}

/// The host function of each process, which returns the sum of an array.
std::vector<Array> summed(const std::vector<Array>& arguments) {
  float sum = 0;
  for (const float element : arguments[0].to_vector<float>()) sum += element;
  return {array(std::vector<float>{sum}, Shape{})};
}

void call_functions(const std::filesystem::path& file, bool is_alone) {
  const use_mesh mesh(make_mesh({{"a", 2}, {"b", 2}}));
  std::ofstream stream(file, std::ios::app);
  const Array x = device_put(arange(8, DType::f32), P{{"b", "a"}});
  const auto scaled = [](const Array& v) {
    return v * pure_callback(summed, {{DType::f32, {}}}, {v + 1})[0];
  };
  debug::print(stream, "{} {}", {scaled(x), jit(scaled)(x)});
  if (is_alone) return;
  std::string text;
  try {
    jit([](const Array& v) { return io_callback(summed, {{DType::f32, {}}}, {v})[0]; })(x);
  } catch (const UserError& error) {
    text = error.mistake().what;
  }
  if (text != "io_callback: several processes would call the function") {
    throw std::runtime_error("another error: " + text);
  }
}

TEST(IsolatedCallbacks, EachProcessCallsItsFunction) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("callbacks_" + std::to_string(getpid()));
  for (const int processes : {4, 2, 1}) {
    testing::ReportingProgram program([&] { call_functions(file, processes == 1); });
    EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0);
    const std::string values = "[0, 36, 72, 108, 144, 180, 216, 252]";
    EXPECT_EQ(text_of(file), values + " " + values + "\n") << processes;
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace tessera
