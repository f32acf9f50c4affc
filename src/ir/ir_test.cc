#include "ir/ir.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

#include <tessera/error.h>

#include "base/sanitized.h"
#include "ir/builder.h"
#include "ir/simplify.h"
#include "ir/text.h"
#include "ops/control/control.h"
#include "ops/emit.h"

namespace tessera::ir {
namespace {

// --- text ----------------------------------------------------------------------------------------

constexpr const char* kGolden =
    R"(function step[mesh="data=4,model=6", grains=16](%0: f32[4,8]<{data},{model}>, )"
    R"(%1: f32[8]<{model#1}>, %2: i32[]<>) {
  %3: f32[4,8]<{data},{}> = broadcast_in_dim[dims=[1], shape=[4,8]] %1  # src/a file.cc:12
  %4: f32[4,8]<{data#1 model},{data#0}> = mul %0, %3
  %5: bool[4,8]<{},{}> = compare[direction="lt"] %3, %4  # b.cc:1
  %6: f32[]<+{data#1 model#0}> = reduce_sum[dims=[0,1]] %4
  %7: f32[]<+{data model}> = constant[dtype=f32, shape=[], value=-0.0]
  %8: f64[2]<{}> = constant[dtype=f64, shape=[2], value=inf]
  %9: f64[2]<{}> = constant[dtype=f64, shape=[2], value=-inf]
  %10: f64[0]<{}> = constant[dtype=f64, shape=[0], value=nan]
  %11: f64[]<> = constant[dtype=f64, shape=[], value=5e-324]
  %12: f32[4,8]<{},{}> = sharding_constraint[sharding=<{data},{model#0}>] %0
  %13: f32[]<> = sharding_constraint[sharding=<>] %6
  %14: f32[4,8]<{},{}>, %15: i32[4,8]<{},{}> = sort[dim=1] %0, %16
  return %14, %2
}
)";

/// The golden text with the operand that sort requires.
std::string golden_text() {
  std::string text = kGolden;
  const std::string sort = "  %14: f32[4,8]<{},{}>, %15";
  const std::string iota = "  %16: i32[4,8]<{},{}> = iota[dim=1, dtype=i32, shape=[4,8]]\n";
  return text.insert(text.find(sort), iota);
}

TEST(Text, OpenDimensionsAndDeviceOrders) {
  const std::string text =
      "function f[mesh=\"data=2,model=2@3,1,0,2\", grains=8](%0: f32[4,8]) {\n"
      "  %1: f32[4,8] = sharding_constraint[sharding=<{?},{model}>] %0\n"
      "  %2: f32[4,8] = sharding_constraint[sharding=<{data ?},{?}>] %1\n"
      "  return %2\n}\n";
  const Function f = parse(text);
  EXPECT_EQ(print(f), text);
  EXPECT_EQ(f.mesh.device_ids(), (std::vector<std::int64_t>{3, 1, 0, 2}));
  EXPECT_EQ(f.equations[1].attributes.get<Sharding>("sharding"), (Sharding{{{0}, {}}, {}, {0, 1}}));
  for (const char* wrong : {"<{? data},{}>", "<{??},{}>", "<{},{}+{?}>"}) {
    std::string other = text;
    EXPECT_THROW(parse(other.replace(other.find("<{?}"), 12, wrong)), UserError) << wrong;
  }
}

TEST(Text, GoldenTextIsParsedAndPrintedAlike) {
  const Function f = parse(golden_text());
  EXPECT_EQ(print(f), golden_text());
  EXPECT_EQ(parse(print(f)), f);
  verify(f, "parse");
  EXPECT_EQ(f.name, "step");
  EXPECT_EQ(f.grains, 16);
  EXPECT_EQ(f.mesh, make_mesh({{"data", 4}, {"model", 6}}));
  EXPECT_EQ(f.inputs, (std::vector<ValueId>{0, 1, 2}));
  EXPECT_EQ(f.outputs, (std::vector<ValueId>{14, 2}));
  EXPECT_EQ(f.equations[0].span, Span("src/a file.cc", 12));
  EXPECT_EQ(f.equations[1].span, Span());
  EXPECT_EQ(f.sharding(4), (Sharding{{{1, 2, 3}, {0}}, {}}));
  EXPECT_EQ(f.sharding(6), (Sharding{{}, {1, 2}}));
  EXPECT_EQ(f.equations[9].attributes.get<Sharding>("sharding"), (Sharding{{{0, 1}, {2}}, {}}));
  EXPECT_EQ(f.equations[2].attributes.get<std::string>("direction"), "lt");
  EXPECT_EQ(f.equations[0].attributes.ints("shape"), (Ints{4, 8}));
  EXPECT_EQ(f.equations[4].attributes.get<DType>("dtype"), DType::f32);
  EXPECT_TRUE(std::signbit(f.equations[4].attributes.get<double>("value")));
  EXPECT_TRUE(std::isnan(f.equations[7].attributes.get<double>("value")));
}

TEST(Text, CommentsAreSkipped) {
  const std::string text =
      "function f[mesh=\"data=2\", grains=8](%0: f32[4]) {\n"
      "  %1: f32[4] = neg %0  # a.cc:1\n"
      "  return %1\n}\n";
  std::string with_comments = "# a comment\n\n  # another one\n" + text + "# at the end";
  for (const char* line : {"  %1", "  return", "}"}) {
    with_comments.insert(with_comments.find(line), "  # before " + std::string(line) + "\n");
  }
  EXPECT_EQ(print(parse(with_comments)), text);
  try {
    parse("# one\n# two\nno function\n");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(error.mistake().what.find("line 3"), std::string::npos) << error.mistake().what;
  }
}

TEST(Text, WindowsAreParsedAndPrintedAlike) {
  const std::string text =
      "function main[mesh=\"a=2,b=3\", grains=8](%0: f32[9,4]<{a},{}>) {\n"
      "  %1: f32[9,4]<[-1+2*5{a}+3],{b}> = halo_exchange %0\n"
      "  %2: f32[9,4]<[8-9{b}],[(1-2)/3]> = halo_exchange %0\n"
      "  return %0\n}\n";
  const Function f = parse(text);
  EXPECT_EQ(print(f), text);
  verify(f, "the test");
  const Window first{0, -1, {{5, 2, 1}, {3, 1, 0}}};
  EXPECT_EQ(f.sharding(1), (Sharding{{{0}, {1}}, {}, {}, {first}}));
  for (const char* wrong : {"[", "[1", "[1+", "[1+2*", "[1+-2]", "[1+0*2]", "[1+9{c}]", "[1 2]",
                            "[(1+2)/0]", "[(1+2]", "[9999999999999]", "[1+1099511627776*2]"}) {
    std::string other = text;
    EXPECT_THROW(parse(other.replace(other.find("[8-9{b}]"), 8, wrong)), UserError) << wrong;
  }
  std::string other = text;
  EXPECT_THROW(verify(parse(other.replace(other.find("<{a},{}>"), 8, "<[1+2],{}>")), "the test"),
               InternalError);
}

TEST(Text, SpansAreLeftOutWhereAsked) {
  const std::string text = print(parse(golden_text()), {.spans = false});
  EXPECT_EQ(text.find("# "), std::string::npos);
  EXPECT_EQ(parse(text).equations.size(), 13U);
}

TEST(Text, AttributesOfEveryKind) {
  const Mesh mesh = make_mesh({{"a", 2}});
  EXPECT_EQ(to_string(mesh, Attribute(true)), "true");
  EXPECT_EQ(to_string(mesh, Attribute(std::int64_t{-7})), "-7");
  EXPECT_EQ(to_string(mesh, Attribute(7.0)), "7.0");
  EXPECT_EQ(to_string(mesh, Attribute(1e30)), "1e+30");
  EXPECT_EQ(to_string(mesh, Attribute(0.1)), "0.1");
  EXPECT_EQ(to_string(mesh, Attribute(std::string("sum"))), "\"sum\"");
  EXPECT_EQ(to_string(mesh, Attribute(DType::boolean)), "bool");
  EXPECT_EQ(to_string(mesh, Attribute(Ints{})), "[]");
  EXPECT_EQ(to_string(mesh, Attribute(Sharding{{{0}, {}}, {}})), "<{a},{}>");
}

TEST(Text, EveryDoubleSurvives) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isnan(value)) continue;
    Function f;
    Builder b(f);
    b.set_outputs({ops::scalar(b, value, DType::f64)});
    ASSERT_EQ(parse(print(f)), f) << value;
  }
}

/// Where parse locates the mistake, such as `line 3`. The whole message if it names no line.
std::string line_of_error(std::string_view text) {
  try {
    parse(text);
  } catch (const UserError& error) {
    const std::string message = error.what();
    const std::size_t at = message.find("line ");
    if (at == std::string::npos) return message;
    return message.substr(at, message.find_first_not_of("0123456789", at + 5) - at);
  }
  return "no error";
}

TEST(Text, ErrorsNameTheLine) {
  const std::string good = golden_text();
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_EQ(line_of_error(good), "no error");
  EXPECT_EQ(line_of_error(with("function", "func")), "line 1");
  EXPECT_EQ(line_of_error(with("data=4", "data=0")), "line 1");
  EXPECT_EQ(line_of_error(with("grains=16", "grains=0")), "line 1");
  EXPECT_EQ(line_of_error(with("%2: i32[]", "%1: i32[]")), "line 1");
  EXPECT_EQ(line_of_error(with("mul %0, %3", "mul %0, %4")), "line 3");
  EXPECT_EQ(line_of_error(with("mul %0, %3", "mull %0, %3")), "line 3");
  EXPECT_EQ(line_of_error(with("%4: f32", "%3: f32")), "line 3");
  EXPECT_EQ(line_of_error(with("{data#1 model}", "{data#2 model}")), "line 3");
  EXPECT_EQ(line_of_error(with("{data#1 model}", "{batch}")), "line 3");
  EXPECT_EQ(line_of_error(with("%5: bool[4,8]", "%5: f32[4,8]")), "line 4");
  EXPECT_EQ(line_of_error(with("b.cc:1", "b.cc")), "line 4");
  EXPECT_EQ(line_of_error(with("%5: bool[4,8]<{},{}>", "%5: bool[4,8]<{}>")), "line 4");
  EXPECT_EQ(line_of_error(with("value=5e-324", "value=")), "line 10");
  EXPECT_EQ(line_of_error(with("return %14, %2", "return %14, %99")), "line 15");
  EXPECT_EQ(line_of_error(good + "x"), "line 17");
}

TEST(Text, BrokenTextsGiveUserErrors) {
  const std::string good = golden_text();
  for (std::size_t size = 0; size + 2 < good.size(); ++size) {
    EXPECT_EQ(line_of_error(std::string_view(good).substr(0, size)).substr(0, 5), "line ") << size;
  }
  const std::string spare = "%#=[]<>{}\",:\n -0129axe.+return";
  std::mt19937 random(1);
  int num_errors = 0;
  for (int i = 0; i < num_cases(20000); ++i) {
    std::string text = good;
    for (std::size_t n = random() % 3 + 1; n > 0; --n) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) text[at] = spare[random() % spare.size()];
      if (random() % 3 == 0) text.erase(at, random() % 4);
    }
    try {
      const Function f = parse(text);
      EXPECT_EQ(print(parse(print(f))), print(f)) << text;
    } catch (const UserError&) {
      num_errors += 1;
    }
  }
  EXPECT_GT(num_errors, num_cases(10000));
}

// --- attributes ----------------------------------------------------------------------------------

TEST(Attributes, AreSortedAndNumbersAreComparedByBits) {
  Attributes a{{"shape", Ints{1}}, {"dims", Ints{2}}};
  EXPECT_EQ(a.items()[0].first, "dims");
  a.set("dims", Ints{3});
  EXPECT_EQ(a.ints("dims"), Ints{3});
  EXPECT_EQ(a.items().size(), 2U);
  EXPECT_TRUE(a.has("shape"));
  EXPECT_FALSE(a.has("value"));
  EXPECT_THROW(a.integer("dims"), InternalError);
  EXPECT_THROW(a.ints("value"), InternalError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto of = [](Attribute value) { return Attributes{{"value", std::move(value)}}; };
  EXPECT_EQ(of(nan), of(nan));
  EXPECT_EQ(of(0.0), of(0.0));
  EXPECT_FALSE(of(0.0) == of(-0.0));
  EXPECT_FALSE(of(1.0) == of(std::int64_t{1}));
  EXPECT_FALSE((Attributes{{"a", true}}) == (Attributes{{"b", true}}));
  EXPECT_FALSE((Attributes{{"a", true}}) == (Attributes{{"a", true}, {"b", true}}));
}

// --- verify --------------------------------------------------------------------------------------

/// `exp` of an f32[2], built by hand.
Function exp_function() {
  Function f;
  Builder b(f);
  b.set_outputs({ops::exp(b, b.add_input({DType::f32, {2}}))});
  return f;
}

std::string broken_rule(const Function& function) {
  try {
    verify(function, "a test");
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("after a test"), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

#define EXPECT_BROKEN(function, rule) \
  EXPECT_NE(broken_rule(function).find(rule), std::string::npos) << broken_rule(function)

TEST(Verify, FindsEveryBrokenRule) {
  const Function good = exp_function();
  EXPECT_EQ(broken_rule(good), "no error");
  Function f = good;
  std::swap(f.equations[0].operands, f.equations[0].results);
  f.inputs.clear();
  EXPECT_BROKEN(f, "not defined before its use");
  f = good;
  f.equations[0].operands = {7};
  EXPECT_BROKEN(f, "not defined before its use");
  f = good;
  f.equations.push_back(f.equations[0]);
  EXPECT_BROKEN(f, "defined twice");
  f = good;
  f.equations[0].results = {0};
  EXPECT_BROKEN(f, "defined twice");
  f = good;
  f.inputs = {0, 0};
  EXPECT_BROKEN(f, "an input is defined twice");
  f = good;
  f.values[1].type.shape = {3};
  EXPECT_BROKEN(f, "result types differ");
  f = good;
  f.equations[0].results.clear();
  EXPECT_BROKEN(f, "result types differ");
  f = good;
  f.equations[0].results = {9};
  EXPECT_BROKEN(f, "a result is not a value");
  f = good;
  f.equations[0].attributes.set("dims", Ints{});
  EXPECT_BROKEN(f, "exp");
  f = good;
  f.values[0].type.dtype = DType::i32;
  EXPECT_BROKEN(f, "exp");
  f = good;
  f.values[1].sharding = replicated_sharding(2);
  EXPECT_BROKEN(f, "different ranks");
  f = good;
  f.mesh = make_mesh({{"a", 2}});
  f.values[1].sharding = Sharding{{{0}}, {0}};
  EXPECT_BROKEN(f, "an atom twice");
  f.values[1].sharding = Sharding{{{1}}, {}};
  EXPECT_BROKEN(f, "the mesh lacks");
  f.values[1].sharding = Sharding{{{}}, {0}};
  EXPECT_EQ(broken_rule(f), "no error");
  f.values[1].sharding = Sharding{{{}}, {}, {0}};
  EXPECT_BROKEN(f, "open dimensions");
  f = good;
  f.add_value({.type = {}, .sharding = {}});
  f.outputs = {2};
  EXPECT_BROKEN(f, "an output is not defined");
}

TEST(Text, NumericsAreThoseOfNestedFunctionsToo) {
  const std::string text =
      "function f[mesh=\"none\", grains=8, numerics=\"fast\"](%0: f32[2]) {\n"
      "  %1: f32[2] = call[body={(%0: f32[2]) {\n"
      "    %1: f32[2] = exp %0\n"
      "    return %1\n"
      "  }}, name=\"g\"] %0\n"
      "  return %1\n}\n";
  const Function f = parse(text);
  EXPECT_EQ(f.numerics, Numerics::fast);
  EXPECT_EQ(bodies_of(f.equations[0])[0]->numerics, Numerics::fast);
  EXPECT_EQ(print(f), text);
  Function other = f;
  other.numerics = Numerics::exact;
  EXPECT_NE(other, f);
  EXPECT_THROW(verify(other, "a change"), InternalError);
}

// --- rewrites ------------------------------------------------------------------------------------

TEST(DeadCode, UnneededEquationsGoAndInputsStay) {
  Function f;
  f.name = "f";
  f.grains = 4;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2}});
  const ValueId unused = b.add_input({DType::f32, {3}});
  ops::exp(b, unused);
  const ValueId dead = ops::exp(b, x);
  ops::sin(b, dead);
  const ValueId y = ops::cos(b, x);
  const std::vector<ValueId> sorted = ops::sort(b, {y, x}, 0);  // one result of two is needed
  b.set_outputs({sorted[1], x});
  const Function out = without_dead_code(f);
  EXPECT_EQ(print(out),
            "function f[mesh=\"none\", grains=4](%0: f32[2], %1: f32[3]) {\n"
            "  %2: f32[2] = cos %0\n"
            "  %3: f32[2], %4: f32[2] = sort[dim=0] %2, %0\n"
            "  return %4, %0\n}\n");
  EXPECT_EQ(without_dead_code(out), out);
  EXPECT_TRUE(has_dead_code(f));
  EXPECT_FALSE(has_dead_code(out));
}

TEST(DeadCode, ValuesOutOfOrderAndNestedOnesCount) {
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2}});
  const ValueId y = b.add_input({DType::f32, {2}});
  b.set_outputs({ops::add(b, x, y)});
  EXPECT_FALSE(has_dead_code(f));
  Function swapped = f;
  std::swap(swapped.inputs[0], swapped.inputs[1]);
  EXPECT_TRUE(has_dead_code(swapped));
  EXPECT_EQ(without_dead_code(swapped).inputs, f.inputs);

  const auto body = [](bool has_dead) {
    auto inner = std::make_shared<Function>();
    Builder in(*inner);
    const ValueId z = in.add_input({DType::f32, {2}});
    if (has_dead) ops::sin(in, z);
    in.set_outputs({ops::cos(in, z)});
    return inner;
  };
  for (const bool has_dead : {false, true}) {
    Function outer;
    Builder out(outer);
    const ValueId z = out.add_input({DType::f32, {2}});
    const std::shared_ptr<const Function> nested = body(has_dead);
    out.set_outputs(ops::call(out, "f", nested, {z}));
    EXPECT_EQ(has_dead_code(outer), has_dead);
    const Function pruned = without_dead_code(outer);
    // A body of which everything is needed stays the same object.
    EXPECT_EQ(pruned.equations[0].attributes.shared_body("body") == nested, !has_dead);
    EXPECT_EQ(pruned.equations[0].attributes.body("body"), *body(false));
  }
}

TEST(CommonSubexpressions, EqualEquationsMergeAndZerosOfBothSignsDoNot) {
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2}});
  auto scaled = [&](double by) { return ops::mul(b, ops::exp(b, x), ops::full_like(b, by, x)); };
  b.set_outputs({scaled(0.0), scaled(-0.0), scaled(0.0), scaled(NAN), scaled(NAN)});
  const Function out = without_common_subexpressions(f);
  verify(out, "common subexpressions");
  ASSERT_EQ(out.outputs.size(), 5U);
  EXPECT_EQ(out.outputs[0], out.outputs[2]);
  EXPECT_NE(out.outputs[0], out.outputs[1]);
  EXPECT_EQ(out.outputs[3], out.outputs[4]);
  std::map<std::string, int> counts;
  for (const Equation& equation : out.equations) counts[std::string(op_name(*equation.op))] += 1;
  EXPECT_EQ(counts["exp"], 1);
  EXPECT_EQ(counts["constant"], 3);
  EXPECT_EQ(counts["mul"], 3);
  EXPECT_EQ(without_common_subexpressions(out), out);
}

TEST(CommonSubexpressions, WhatIsWidenedAndNarrowedAgainIsTheSame) {
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::bf16, {2}});
  const ValueId wide = ops::convert(b, x, DType::f32);
  const ValueId back = ops::convert(b, wide, DType::bf16);
  const ValueId rounded = ops::convert(b, ops::exp(b, wide), DType::bf16);
  b.set_outputs({ops::neg(b, back), ops::convert(b, rounded, DType::f32)});
  EXPECT_EQ(print(without_common_subexpressions(f)),
            "function main[mesh=\"none\", grains=8](%0: bf16[2]) {\n"
            "  %1: f32[2] = convert[dtype=f32] %0\n"
            "  %2: f32[2] = exp %1\n"
            "  %3: bf16[2] = convert[dtype=bf16] %2\n"
            "  %4: bf16[2] = neg %0\n"
            "  %5: f32[2] = convert[dtype=f32] %3\n"
            "  return %4, %5\n}\n");
}

TEST(CommonSubexpressions, OtherAttributesOperandsOrOrderStay) {
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2, 2}});
  const ValueId y = b.add_input({DType::f32, {2, 2}});
  b.set_outputs({ops::sub(b, x, y), ops::sub(b, y, x), ops::reduce_sum(b, x, {0}),
                 ops::reduce_sum(b, x, {1}), ops::reduce_max(b, x, {0}),
                 ops::compare(b, "lt", x, y), ops::compare(b, "le", x, y)});
  EXPECT_EQ(without_common_subexpressions(f), f);
}

// --- bodies --------------------------------------------------------------------------------------

TEST(Bodies, EqualOnesAreChangedOnceAndShareTheResult) {
  const auto task = [](const std::string& result, const std::string& value) {
    return "  " + result + R"(: f32[4]<{}> = task[body={(%0: f32[4]<{}>) {
    %1: f32[4]<{}> = constant[dtype=f32, shape=[4], value=)" +
           value + R"(]
    %2: f32[4]<{}> = add %0, %1
    return %2
  }}, group=0, microbatch=-1, name="a", shares=[-1], stage=-1] %0
)";
  };
  const Function f = parse(R"(function main[mesh="none", grains=8](%0: f32[4]<{}>) {
)" + task("%1", "0.0") + task("%2", "0.0") +
                           task("%3", "-0.0") + "  return %1, %2, %3\n}");
  int num_changes = 0;
  const Function g = with_changed_bodies(f, [&](const Function& body) {
    ++num_changes;
    return body;
  });
  EXPECT_EQ(num_changes, 2) << "zeros of both signs differ";
  EXPECT_EQ(g, f);
  EXPECT_EQ(bodies_of(g.equations[0]), bodies_of(g.equations[1]));
  EXPECT_NE(bodies_of(g.equations[0]), bodies_of(g.equations[2]));
}

// --- builder -------------------------------------------------------------------------------------

TEST(Builder, InlinesAFunction) {
  Function callee;
  {
    Builder b(callee);
    const ValueId x = b.add_input({DType::f32, {2}});
    const ValueId y = b.add_input({DType::f32, {2}});
    b.set_span(Span("callee.cc", 7));
    b.set_outputs({ops::sub(b, x, ops::exp(b, y)), y});
  }
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2}});
  b.set_span(Span("caller.cc", 1));
  const std::vector<ValueId> outputs = b.inline_function(callee, {ops::sin(b, x), x});
  EXPECT_EQ(outputs[1], x);
  b.set_outputs({b.inline_function(callee, outputs)[0]});
  verify(f, "inlining");
  EXPECT_EQ(print(f),
            "function main[mesh=\"none\", grains=8](%0: f32[2]) {\n"
            "  %1: f32[2] = sin %0  # caller.cc:1\n"
            "  %2: f32[2] = exp %0  # callee.cc:7\n"
            "  %3: f32[2] = sub %1, %2  # callee.cc:7\n"
            "  %4: f32[2] = exp %0  # callee.cc:7\n"
            "  %5: f32[2] = sub %3, %4  # callee.cc:7\n"
            "  return %5\n}\n");
  EXPECT_THROW(b.inline_function(callee, {x}), InternalError);
}

TEST(Builder, OperandsThatDoNotFitGiveAUserErrorWithTheSpan) {
  Function f;
  Builder b(f);
  const ValueId x = b.add_input({DType::f32, {2}});
  const ValueId y = b.add_input({DType::f32, {3}});
  b.set_span(Span("model.cc", 41));
  try {
    ops::add(b, x, y);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().where, Span("model.cc", 41));
  }
  EXPECT_TRUE(f.equations.empty());
  EXPECT_EQ(f.values.size(), 2U);
  EXPECT_THROW(b.emit("sort", {{"dim", 0}}, {x, x}), InternalError);
}

}  // namespace
}  // namespace tessera::ir
