#include "data/numpy_random.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/data.h>
#include <tessera/error.h>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

using nlohmann::json;
using Values = std::vector<std::int32_t>;

TEST(NumpyRandomState, RandintEqualsNumpy) {
  const json golden = read_golden("numpy_randint.json");
  ASSERT_EQ(golden.at("cases").size(), 108U);
  for (const json& item : golden.at("cases")) {
    SCOPED_TRACE(item.dump());
    NumpyRandomState state(item.at("seed").get<std::uint32_t>());
    Values values(golden.at("count").get<std::size_t>());
    state.randint_i32(item.at("low").get<std::int32_t>(), item.at("high").get<std::int64_t>(),
                      values);
    EXPECT_EQ(Values(values.begin(), values.begin() + 8), item.at("first").get<Values>());
    EXPECT_EQ(values.back(), item.at("last").get<std::int32_t>());
    std::int64_t weighted_sum = 0;
    std::int64_t weight = 0;
    for (const std::int32_t value : values) weighted_sum += ++weight * value;
    EXPECT_EQ(weighted_sum, item.at("weighted_sum").get<std::int64_t>());
    EXPECT_EQ(state.next_u32(), item.at("next_u32").get<std::uint32_t>()) << "draws used";
  }
}

TEST(NumpyRandomState, MakesTheDataOfTheLanguageModel) {
  const json dataset = read_golden("seed_numbers.json").at("seed003_dataset");
  const auto shape = dataset.at("shape").get<std::vector<std::size_t>>();
  const auto first_row = read_golden("lm.json").at("data_first_row").get<Values>();
  ASSERT_EQ(shape, (std::vector<std::size_t>{8192, 64}));
  ASSERT_EQ(first_row.size(), shape[1]);
  Values data(shape[0] * shape[1]);
  NumpyRandomState(1234).randint_i32(0, 512, data);
  EXPECT_EQ(Values(data.begin(), data.begin() + 64), first_row);
  EXPECT_EQ(Values(data.begin(), data.begin() + 8), dataset.at("first_row_first8").get<Values>());
  std::int64_t sum = 0;
  for (const std::int32_t value : data) sum += value;
  EXPECT_EQ(sum, dataset.at("sum").get<std::int64_t>());
  EXPECT_EQ(sum, 134123834);
}

TEST(NumpyRandomState, DrawsAcrossCallsAsInOne) {
  Values whole(1300);
  Values parts(whole.size());
  NumpyRandomState(7).randint_i32(-3, 98, whole);
  NumpyRandomState state(7);
  state.randint_i32(-3, 98, std::span(parts).first(1));
  state.randint_i32(-3, 98, std::span(parts).subspan(1, 0));
  state.randint_i32(-3, 98, std::span(parts).subspan(1));
  EXPECT_EQ(whole, parts);
}

TEST(NumpyRandomState, NormalsEqualNumpys) {
  NumpyRandomState state(0);
  std::vector<double> values(5);
  state.standard_normal(std::span(values).first(3));
  state.standard_normal(std::span(values).subspan(3));
  const std::vector<double> want = {1.764052345967664, 0.4001572083672233, 0.9787379841057392,
                                    2.240893199201458, 1.8675579901499675};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_DOUBLE_EQ(values[i], want[i]);
}

TEST(RandomState, ShardingsDoNotChangeWhatIsDrawn) {
  const Mesh mesh = make_mesh({{"a", 3}, {"b", 2}});
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    Shape shape(random() % 4);
    for (std::int64_t& size : shape) size = static_cast<std::int64_t>(random() % 7);
    std::vector<SpecEntry> entries(shape.size(), none);
    for (const char* axis : {"a", "b"}) {
      if (!entries.empty()) entries[random() % entries.size()] = axis;
    }
    const NamedSharding split(mesh, PartitionSpec(entries));
    data::RandomState one(static_cast<std::uint32_t>(i));
    data::RandomState other(static_cast<std::uint32_t>(i));
    for (int draw = 0; draw < 2; ++draw) {  // the states stay equal, too
      const Array x = other.standard_normal(shape, split);
      EXPECT_EQ(x.to_vector<float>(), one.standard_normal(shape).to_vector<float>());
      EXPECT_TRUE(x.sharding().is_equivalent_to(split, x.rank()));
      EXPECT_EQ(other.randint(-3, 98, shape, split).to_vector<std::int32_t>(),
                one.randint(-3, 98, shape).to_vector<std::int32_t>());
    }
  }
}

TEST(NumpyRandomState, RejectsRangesWithoutI32) {
  Values out(1);
  NumpyRandomState state(0);
  EXPECT_THROW(state.randint_i32(3, 3, out), UserError);
  EXPECT_THROW(state.randint_i32(3, 2, out), UserError);
  EXPECT_THROW(state.randint_i32(0, (std::int64_t{1} << 31U) + 1, out), UserError);
  EXPECT_THROW(state.randint_i32(0, std::numeric_limits<std::int64_t>::min(), out), UserError);
  try {
    state.randint_i32(5, 5, out);
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("[5, 5)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
