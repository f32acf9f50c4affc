#include "trace/trace.h"

#include <gtest/gtest.h>
#include <thread>

#include "ir/text.h"
#include "ops/emit.h"

namespace tessera::trace {
namespace {

TEST(Trace, CapturesOnceAndRecords) {
  auto trace = std::make_shared<Trace>(Mesh(), 8, Numerics::exact);
  const Type type{DType::f32, {2}};
  const ir::ValueId x = trace->add_input(type);
  const auto outer = std::make_shared<int>(1);
  const ir::ValueId c = trace->capture(outer, type);
  EXPECT_EQ(trace->capture(outer, type), c);
  EXPECT_EQ(trace->captured().size(), 1U);
  const ir::ValueId y = ops::add(trace->builder(), x, c);
  const ir::Function function = trace->finish({y});
  EXPECT_EQ(function.inputs, (std::vector<ir::ValueId>{x, c}));
  ir::verify(function, "tracing");
}

TEST(Trace, EachThreadHasAStack) {
  const auto outer = std::make_shared<Trace>(Mesh(), 8, Numerics::exact);
  EXPECT_EQ(innermost(), nullptr);
  const Tracing tracing(outer, Span());
  {
    const auto inner = std::make_shared<Trace>(Mesh(), 8, Numerics::exact);
    const Tracing nested(inner, Span());
    EXPECT_EQ(innermost(), inner);
    EXPECT_TRUE(is_active(*outer));
    std::thread([&] { EXPECT_FALSE(is_active(*outer)); }).join();
    const Outside outside;
    EXPECT_EQ(innermost(), nullptr);
  }
  EXPECT_EQ(innermost(), outer);
}

TEST(Trace, KnowsItsThreadWhileItIsOpen) {
  const auto trace = std::make_shared<Trace>(Mesh(), 8, Numerics::exact);
  EXPECT_EQ(trace->thread(), std::thread::id());
  {
    const Tracing tracing(trace, Span());
    EXPECT_EQ(trace->thread(), std::this_thread::get_id());
    const Outside outside;
    EXPECT_EQ(trace->thread(), std::this_thread::get_id());
  }
  EXPECT_EQ(trace->thread(), std::thread::id());
}

TEST(Trace, TheOutermostCallNamesTheLine) {
  const auto first = std::source_location::current();
  const auto second = std::source_location::current();
  EXPECT_TRUE(open_call(first));
  EXPECT_FALSE(open_call(second));
  EXPECT_EQ(call_span(second).line, first.line());
  close_call();
  EXPECT_EQ(call_span(second).line, second.line());
}

}  // namespace
}  // namespace tessera::trace
