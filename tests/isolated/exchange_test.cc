// Collectives between processes: the same bits, counts and bytes as in one process for all devices,
// for every number of devices per process.
#include "compile/host/exchange/exchange.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "ir/text.h"
#include "partition/test_programs.h"
#include "tests/isolated/processes.h"

namespace tessera::testing {
namespace {

using ir::Function;
using ops::HostArray;

/// Random values between -3 and 3. Sums of the floats depend on their order.
HostArray random_array(const Type& type, std::uint32_t seed) {
  std::minstd_rand random(seed + 1);
  HostArray array(type);
  ops::dispatch(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& value : array.data<T>()) {
      value = static_cast<T>((static_cast<float>(random() % 4097) / 1024.0F - 2.0F) * 1.3F);
    }
  });
  return array;
}

Arrays inputs_of(const Function& function) {
  Arrays inputs;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    inputs.push_back(random_array(function.type(function.inputs[i]), static_cast<unsigned>(i)));
  }
  return inputs;
}

void check(const Function& function, const std::vector<int>& alias = {}) {
  check_in_processes(function, alias, inputs_of(function), ir::print(function));
}

Function parsed(const std::string& mesh, const std::string& text) {
  // 24 grains can be split evenly over 2, 3 and 4 devices.
  Function function = ir::parse("function main[mesh=\"" + mesh + "\", grains=24]" + text);
  ir::verify(function, "the test");
  return function;
}

/// Moves an array from one sharding to another, with ops around it so that views and fusion take
/// part.
Function moved(const Mesh& mesh, const Shape& shape, const P& from, const P& to) {
  partition::testing::Program p(mesh);
  const ir::ValueId x = p.input(shape);
  const ir::ValueId y = p.transpose(p.scaled(x, 2), {1, 0});
  const P turned{to.entries().size() > 1 ? to.entries()[1] : SpecEntry(none), to.entries()[0]};
  const ir::ValueId z = p.constrain(y, turned);
  p.b.set_outputs({p.scaled(z, 3)});
  return partition_verified(p.function, {.inputs = {p.spec(x, from)}});
}

TEST(SplitBox, RangesInRowMajorOrder) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5}, Shape{2, 1, 9}, Shape{4, 3, 2}}) {
    for (std::int64_t most : {1, 2, 3, 5, 8, 100}) {
      std::int64_t next = 0;
      for (const compile::host::SubBox& box : compile::host::split_box(shape, most)) {
        std::int64_t first = 0;
        for (std::size_t d = 0; d < shape.size(); ++d) first = first * shape[d] + box.start[d];
        EXPECT_EQ(first, next);
        EXPECT_LE(num_elements(box.size), most);
        next += num_elements(box.size);
      }
      EXPECT_EQ(next, num_elements(shape));
    }
  }
  EXPECT_TRUE(compile::host::split_box({3, 0}, 4).empty());
}

TEST(Exchange, MovesBetweenAllShardings) {
  const Mesh line = make_mesh({{"a", 3}});
  const Mesh square = make_mesh({{"a", 2}, {"b", 2}});
  for (const Shape& shape : {Shape{6, 8}, Shape{5, 7}, Shape{1, 9}, Shape{200, 300}}) {
    for (const P& from : {P{}, P{"a"}, P{none, "a"}}) {
      for (const P& to : {P{none}, P{"a"}, P{none, "a"}}) check(moved(line, shape, from, to));
    }
    for (const P& from : {P{"a", "b"}, P{"b", "a"}, P{SpecEntry{"a", "b"}}}) {
      for (const P& to : {P{none}, P{"b", "a"}, P{none, SpecEntry{"b", "a"}}, P{"b"}}) {
        check(moved(square, shape, from, to));
      }
    }
  }
}

TEST(Exchange, MovesBetweenDevicesInAnyOrder) {
  const Mesh square = make_mesh({{"a", 2}, {"b", 2}}, {2, 0, 3, 1});
  for (const P& from : {P{}, P{"a", "b"}, P{"b", "a"}, P{SpecEntry{"a", "b"}}}) {
    for (const P& to : {P{none}, P{"b", "a"}, P{none, SpecEntry{"b", "a"}}, P{"b"}}) {
      check(moved(square, {5, 7}, from, to));
    }
  }
}

TEST(Exchange, ReductionsInTreeOrder) {
  for (const char* kind : {"sum", "max", "min"}) {
    for (const char* sizes : {"6,5", "1,1", "3,7", "160,240"}) {
      for (const char* mesh : {"data=2", "data=3", "data=4", "data=4@2,0,3,1"}) {
        const std::string type = "f32[24," + std::string(sizes) + "]";
        const std::string result = "f32[" + std::string(sizes) + "]";
        const std::string text =
            "(%0: " + type + "<{data},{},{}>) {\n  %1: " + result + "<{},{}+{data}> = reduce_" +
            kind + "[dims=[0]] %0\n  %2: " + result + "<{},{}> = all_reduce[reduction=\"" + kind +
            "\"] %1\n  %3: " + result + "<{},{}+{data}> = reduce_" + kind +
            "[dims=[0]] %0\n  %4: " + result + "<{},{data}> = reduce_scatter[reduction=\"" + kind +
            "\"] %3\n  return %2, %4\n}";
        check(parsed(mesh, text));
      }
    }
  }
}

TEST(Exchange, RowsThatIndicesName) {
  for (const char* mesh : {"data=2", "data=3", "data=4", "data=4@2,0,3,1"}) {
    for (const char* dtype : {"f32", "i32"}) {  // indices from -2 to 2
      check(parsed(mesh, fmt::format(R"((%0: {0}[5,12]<{{data}},{{}}>, %1: i32[20]<{{}}>) {{
  %2: {0}[20,12]<{{}},{{}}+{{data}}> = gather[dim=0, num_batch=0] %0, %1
  %3: {0}[20,12]<{{}},{{}}> = all_reduce[reduction="bit_or"] %2
  %4: {0}[20,12]<{{}},{{}}+{{data}}> = gather[dim=0, num_batch=0] %0, %1
  %5: {0}[20,12]<{{}},{{data}}> = reduce_scatter[reduction="bit_or"] %4
  %6: {0}[5,12]<{{data}},{{}}> = scatter_add[dim=0, num_batch=0, size=5] %1, %3
  return %5, %6
}})",
                                     dtype)));
    }
  }
}

TEST(Exchange, TrainingSteps) {
  using partition::testing::MlpStep;
  for (const Mesh& mesh : {make_mesh({{"data", 2}}), make_mesh({{"data", 3}}),
                           make_mesh({{"data", 4}}), make_mesh({{"data", 2}, {"model", 2}}),
                           make_mesh({{"data", 2}, {"model", 2}}, {3, 1, 0, 2})}) {
    const MlpStep step(mesh, 12, 10, 18, 2);
    for (const P& weights : {P{}, P{"data"}}) {
      const auto options = step.options(P{"data"}, weights, weights);
      check(partition::partition(step.program.function, options), options.output_follows);
    }
    if (!mesh.has_axis("model")) continue;
    const auto options = step.options(P{"data"}, P{none, "model"}, P{"model"});
    check(partition::partition(step.program.function, options), options.output_follows);
  }
}

TEST(Exchange, ReceivesWhatTheRingModelSays) {
  const Function f = parsed("data=4", R"((%0: f32[64,32]<{data},{}>) {
  %1: f32[32]<{}+{data}> = reduce_sum[dims=[0]] %0
  %2: f32[32]<{}> = all_reduce[reduction="sum"] %1
  %3: f32[64,32]<{},{}> = all_gather %0
  return %2, %3
})");
  std::int64_t wire_bytes = 0;
  for (const auto& info : partition::explain(f)) wire_bytes += info.wire_bytes;
  const Arrays inputs = inputs_of(f);
  EXPECT_EQ(in_processes(4,
                         [&] {
                           const BothWays both(f, {});
                           both.check(inputs);
                           expect(both.received_bytes == wire_bytes, "other bytes than explained");
                         }),
            0);
}

/// Appends ops that read x, which is split by rows, and by columns if the mesh has an axis y.
using Emit = std::function<ir::ValueId(partition::testing::Program&, ir::ValueId x)>;

Function of_rows(const Mesh& mesh, const Shape& shape, const Emit& emit) {
  partition::testing::Program p(mesh);
  const ir::ValueId x = p.input(shape);
  p.b.set_outputs({p.scaled(emit(p, p.scaled(x, 2)), 3)});
  const P spec = mesh.has_axis("y") ? P{"x", "y"} : P{"x"};
  return partition_verified(p.function, {.inputs = {p.spec(x, spec)}});
}

TEST(Exchange, WindowsOfNeighbours) {
  const std::vector<Emit> programs = {
      [](auto& p, auto x) {
        return ops::slice(p.b, x, {7, 1}, {19, 8}, {2, 3});
      },
      [](auto& p, auto x) {
        return ops::slice(p.b, x, {5, 0}, {6, 9});
      },
      [](auto& p, auto x) {
        return ops::reverse(p.b, x, {0, 1});
      },
      [](auto& p, auto x) {
        return ops::pad(p.b, x, ops::scalar(p.b, 7, DType::f32), {5, 0}, {0, 4});
      },
      [](auto& p, auto x) {
        return ops::concatenate(p.b, {x, p.scaled(x, 2), x}, 0);
      },
      [](auto& p, auto x) {
        const ir::Ints window = {9, 2};
        return p.b.emit("reduce_window_sum", {{"stride", ir::Ints{1, 3}}, {"window", window}}, {x});
      },
      [](auto& p, auto x) {
        const ir::ValueId image = p.reshape(x, {1, 19, 9, 1});
        return ops::conv(p.b, image, p.full(0.5, {3, 2, 1, 4}), {2, 1}, {3, 1});
      },
      [](auto& p, auto x) {
        const ir::ValueId image = p.reshape(x, {1, 19, 9, 1});
        const ir::ValueId value = ops::scalar(p.b, 7, DType::f32);
        const ir::ValueId padded = ops::pad(p.b, image, value, {0, 2, 1, 0}, {0, 1, 0, 0});
        return ops::conv(p.b, padded, p.full(0.5, {3, 2, 1, 4}), {1, 1}, {2, 1});
      },
  };
  for (const Mesh& mesh : {make_mesh({{"x", 2}}), make_mesh({{"x", 3}}),
                           make_mesh({{"x", 2}, {"y", 2}}, {2, 0, 3, 1})}) {
    for (const Emit& emit : programs) {
      const Function f = of_rows(mesh, {19, 9}, emit);
      EXPECT_TRUE(std::any_of(f.equations.begin(), f.equations.end(), [](const auto& e) {
        return e.op == &ops::halo_exchange_op;
      })) << ir::print(f);
      check(f);
    }
  }
}

TEST(Exchange, RollsAndSelections) {
  const std::vector<Emit> programs = {
      [](auto& p, auto x) {
        return ops::concatenate(
            p.b, {ops::slice_dim(p.b, x, 0, 19, 24), ops::slice_dim(p.b, x, 0, 0, 19)}, 0);
      },
      [](auto& p, auto x) {
        const ir::ValueId largest = p.b.emit("argmax", {{"dim", std::int64_t{0}}}, {x});
        return ops::convert(p.b, largest, DType::f32);
      },
      [](auto& p, auto x) {
        return p.b.emit_all("top_k", {{"dim", std::int64_t{0}}, {"k", std::int64_t{3}}}, {x})[0];
      },
      [](auto& p, auto x) {
        return p.b.emit("cumsum", {{"dim", std::int64_t{0}}, {"reverse", false}}, {x});
      },
  };
  for (const Mesh& mesh : {make_mesh({{"x", 2}}), make_mesh({{"x", 3}}),
                           make_mesh({{"x", 2}, {"y", 2}}, {2, 0, 3, 1})}) {
    for (const Emit& emit : programs) check(of_rows(mesh, {24, 128}, emit));
  }
}

/// If queries are whole, partial results are exchanged; otherwise keys and values visit the
/// queries.
TEST(Exchange, AttentionOfSplitKeys) {
  for (const Mesh& mesh : {make_mesh({{"x", 2}}), make_mesh({{"x", 4}}, {2, 0, 3, 1})}) {
    for (const auto& [queries, of_queries] : {std::pair(3, P{}), std::pair(1100, P{"x"})}) {
      partition::testing::Program p(mesh);
      const ir::ValueId q = p.input({queries, 1, 32});
      const ir::ValueId k = p.input({1100, 1, 32});
      const ir::ValueId v = p.input({1100, 1, 8});
      const ir::Attributes attributes = {{"after", std::int64_t{700}}, {"before", std::int64_t{-1}},
                                         {"drop_rate", 0.0},           {"has_bias", false},
                                         {"has_lengths", false},       {"scale", 0.5}};
      p.b.set_outputs({p.b.emit_all("attention", attributes, {q, k, v})[0]});
      const Sharding keys = p.spec(k, P{"x"});
      const Function f =
          partition_verified(p.function, {.inputs = {p.spec(q, of_queries), keys, keys}});
      EXPECT_NE(ir::print(f).find("attention_parts"), std::string::npos) << ir::print(f);
      check(f);
    }
  }
}

TEST(Exchange, ReceivesTheHaloAlone) {
  const Function f = parsed("data=4", R"((%0: f32[64,32]<{data},{}>) {
  %1: f32[64,32]<[0+60{data}+5],{}> = halo_exchange %0
  %2: f32[60,32]<{data},{}> = reduce_window_max[stride=[1,1], window=[5,1]] %1
  return %2
})");
  partition::verify_partitioned(f, "the test");
  const auto infos = partition::explain(f);
  ASSERT_EQ(infos.size(), 1U);
  // The windows of the second device read rows 15 to 33, of which it owns rows 16 to 31.
  EXPECT_EQ(infos[0].wire_bytes, 3 * 32 * 4);
  EXPECT_EQ(infos[0].bytes, 19 * 32 * 4);
  const Arrays inputs = inputs_of(f);
  EXPECT_EQ(in_processes(4,
                         [&] {
                           const BothWays both(f, {});
                           both.check(inputs);
                           expect(both.received_bytes == 3 * 32 * 4, "other bytes than explained");
                         }),
            0);
}

TEST(Exchange, CollectivesInBodies) {
  check(parsed("data=2,model=2", R"((%0: f32[6,3]<{model},{}>, %1: f32[5,3]<{data},{}>,
    %2: f32[4,5,6]<{},{data},{model}>, %3: f32[4,3]<{},{}>, %4: i32[]<>) {
  %5: f32[5,3]<{data},{}>, %6: f32[4,5,3]<{},{data},{}>, %7: f32[4]<{}> = scan[
      body={(%0: f32[6,3]<{model},{}>, %1: f32[5,3]<{data},{}>, %2: f32[5,6]<{data},{model}>,
             %3: f32[3]<{}>) {
    %4: f32[5,3]<{data},{}+{model}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
        rhs_contract=[0]] %2, %0
    %5: f32[5,3]<{data},{}> = all_reduce[reduction="sum"] %4
    %6: f32[5,3]<{data},{}> = broadcast_in_dim[dims=[1], shape=[5,3]] %3
    %7: f32[5,3]<{data},{}> = mul %1, %6
    %8: f32[5,3]<{data},{}> = add %5, %7
    %9: f32[]<+{data}> = reduce_sum[dims=[0,1]] %8
    %10: f32[]<> = all_reduce[reduction="sum"] %9
    %11: f32[5,3]<{data},{}> = mul %8, %1
    return %8, %11, %10
  }}, length=4, num_carry=1, num_consts=1, reverse=false] %0, %1, %2, %3
  %8: f32[5,3]<{},{}> = cond[branches={(%0: f32[5,3]<{data},{}>) {
    %1: f32[5,3]<{},{}> = all_gather %0
    return %1
  }, (%0: f32[5,3]<{data},{}>) {
    %1: f32[5,3]<{data},{}> = mul %0, %0
    %2: f32[5,3]<{},{}> = all_gather %1
    return %2
  }}] %4, %5
  return %6, %7, %8
})"));
  check(parsed("data=2", R"((%0: f32[8]<{data}>, %1: f32[]<>) {
  %2: f32[8]<{data}>, %3: f32[]<> = while[body={(%0: f32[8]<{data}>, %1: f32[]<>) {
    %2: f32[8]<{data}> = mul %0, %0
    %3: f32[]<+{data}> = reduce_sum[dims=[0]] %2
    %4: f32[]<> = all_reduce[reduction="sum"] %3
    %5: f32[]<> = max %4, %1
    %6: f32[]<> = add %5, %5
    return %2, %6
  }}, condition={(%0: f32[8]<{data}>, %1: f32[]<>) {
    %2: f32[]<> = constant[dtype=f32, shape=[], value=1000.0]
    %3: bool[]<> = compare[direction="lt"] %1, %2
    return %3
  }}, num_consts=0] %0, %1
  return %2, %3
})"));
}

TEST(Exchange, PlansTheMemoryOfOneDevice) {
  using partition::testing::MlpStep;
  const Mesh mesh = make_mesh({{"data", 4}});
  const MlpStep step(mesh, 512, 64, 256, 2);
  const auto options = step.options(P{"data"}, P{"data"}, P{"data"});
  const Function f = partition::partition(step.program.function, options);
  EXPECT_EQ(in_processes(4,
                         [&] {
                           const BothWays both(f, options.output_follows);
                           const auto planned = both.isolated->device_peak_bytes;
                           const auto before = both.shared->device_peak_bytes;
                           expect(planned < before * 105 / 100 && planned > before * 95 / 100,
                                  fmt::format("planned {}, for all devices {}", planned, before));
                         }),
            0);
}

}  // namespace
}  // namespace tessera::testing
