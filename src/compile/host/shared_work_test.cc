// Products whose work all threads share although the plan of a single product does not divide it.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

#include "compile/host/lower.h"
#include "ir/text.h"

namespace tessera::compile::host {
namespace {

constexpr std::int64_t kSize = std::int64_t{16} * 64 * 300;  // elements of each operand
constexpr std::int64_t kResults = std::int64_t{16} * 3 * 16;

/// The gradient of a kernel of three elements, as a convolution: three products of 16 rows and 16
/// columns. The first and the last product have fewer terms.
std::shared_ptr<const run::Kernel> kernel_for(int num_workers) {
  const Function f = ir::parse(R"(function main[mesh="none", grains=8](
      %0: f32[16,64,300]<{},{},{}>, %1: f32[64,300,16]<{},{},{}>) {
  %2: f32[16,3,16]<{},{},{}> = conv[dilation=[1], high=[1], low=[1], spread=[1],
      stride=[1]] %0, %1
  return %2
})");
  LowerOptions options;
  options.target.num_workers = num_workers;
  return lower(f, options).instructions.at(0).tasks.at(0).kernel;
}

std::vector<float> values(std::int64_t size, std::int64_t step) {
  std::vector<float> list;
  for (std::int64_t i = 0; i < size; ++i)
    list.push_back(static_cast<float>(i * step % 1009 - 504) / 512);
  return list;
}

struct Outcome {
  std::vector<float> results;
  std::vector<std::int64_t> written;  // by each part
};

Outcome outcome_of(int num_workers) {
  const auto kernel = kernel_for(num_workers);
  std::vector<float> a = values(kSize, 7), b = values(kSize, 11);
  Outcome outcome;
  outcome.results.assign(kResults, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::byte*> buffers;
  for (std::vector<float>* list : {&a, &b, &outcome.results})
    buffers.push_back(reinterpret_cast<std::byte*>(list->data()));
  std::int64_t before = 0;
  for (int part = 0; part < kernel->num_parts(); ++part) {
    kernel->run(buffers, part);
    const std::int64_t all = std::count_if(outcome.results.begin(), outcome.results.end(),
                                           [](float value) { return !std::isnan(value); });
    outcome.written.push_back(all - before);
    before = all;
  }
  return outcome;
}

// Products are divided into pieces of 8 rows or more if that shortens their time.
TEST(SharedWork, ThreadsShareProductsOfOneTile) {
  const Outcome alone = outcome_of(1);
  EXPECT_EQ(alone.written, (std::vector<std::int64_t>{kResults}));
  struct Case {
    int workers, fewest, most;  // parts: smaller tiles allow more of them
  };
  for (const auto& [workers, fewest, most_parts] :
       {Case{2, 2, 2}, {4, 3, 4}, {8, 6, 8}, {16, 6, 12}}) {
    const Outcome shared = outcome_of(workers);
    ASSERT_GE(std::ssize(shared.written), fewest) << workers << " workers";
    ASSERT_LE(std::ssize(shared.written), most_parts) << workers << " workers";
    const auto [least, most] = std::minmax_element(shared.written.begin(), shared.written.end());
    EXPECT_LE(*most, 2 * *least) << workers << " workers";
    EXPECT_EQ(shared.results, alone.results) << workers << " workers";
  }
  EXPECT_EQ(outcome_of(2).written, (std::vector<std::int64_t>{kResults / 2, kResults / 2}));
  EXPECT_EQ(outcome_of(3).results, alone.results);
}

}  // namespace
}  // namespace tessera::compile::host
