// Logical names: Flax's translation of random rules, constraints, boxes, and rules in scope.
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

SpecEntry entry_of(const nlohmann::json& axes) {
  if (axes.is_null()) return none;
  SpecEntry entry(none);
  if (axes.is_string()) entry.axes = {axes.get<std::string>()};
  if (axes.is_array()) entry.axes = axes.get<std::vector<std::string>>();
  return entry;
}

PartitionSpec spec_of(const nlohmann::json& entries) {
  std::vector<SpecEntry> result;
  for (const auto& entry : entries) result.push_back(entry_of(entry));
  return PartitionSpec(std::move(result));
}

TEST(LogicalNames, BecomeTheAxesThatFlaxGives) {
  std::size_t num_errors = 0;
  const nlohmann::json golden = read_golden("logical_rules.json");
  for (const auto& item : golden["cases"]) {
    SCOPED_TRACE(item.dump());
    const PartitionSpec names = spec_of(item["names"]);
    LogicalRules rules;
    for (const auto& rule : item["rules"]) rules.push_back({rule[0], entry_of(rule[1])});
    if (item.contains("error")) {
      ++num_errors;
      EXPECT_THROW(logical_to_mesh_axes(names, rules), UserError);
    } else {
      const std::string want = to_string(spec_of(item["spec"]));
      EXPECT_EQ(to_string(logical_to_mesh_axes(names, rules)), want);
      const std::string told = explain_rules(names, rules);
      EXPECT_TRUE(told.starts_with(to_string(names) + " -> " + want + "\n")) << told;
      EXPECT_EQ(told.find("did not: \n"), std::string::npos) << told;
    }
  }
  EXPECT_GT(num_errors, 0U);
}

TEST(LogicalNames, RulesExplainThemselves) {
  const LogicalRules rules{
      {"embed", "data"}, {"embed", "model"}, {"batch", "data"}, {"heads", none}};
  EXPECT_EQ(explain_rules({"batch", "embed", none, "heads", "seq"}, rules),
            "P('batch', 'embed', None, 'heads', 'seq') -> P(None, 'data', None, None, None)\n"
            "  'batch' -> None: rule 2 ('batch', 'data') did not: 'data' already splits 'embed'\n"
            "  'embed' -> 'data': rule 0 ('embed', 'data') fired; rule 1 ('embed', 'model') did "
            "not: an earlier rule fired\n"
            "  None -> None: has no name\n"
            "  'heads' -> None: rule 3 ('heads', None) fired\n"
            "  'seq' -> None: no rule has this name\n");
  const LogicalRules wide{{"a", "x"}, {"b", "y"}, {"c", {"x", "y", "z"}}, {"c", "z"}};
  EXPECT_EQ(
      explain_rules({"a", "b", "c"}, wide),
      "P('a', 'b', 'c') -> P('x', 'y', 'z')\n"
      "  'a' -> 'x': rule 0 ('a', 'x') fired\n"
      "  'b' -> 'y': rule 1 ('b', 'y') fired\n"
      "  'c' -> 'z': rule 2 ('c', ('x', 'y', 'z')) did not: 'x' already splits 'a', 'y' already "
      "splits 'b'; rule 3 ('c', 'z') fired\n");
}

struct Weights {
  Param plain, logical, bare;
  Weights()
      : plain(ones({4, 8}), "plain", P{none, "model"}),
        logical(ones({4, 8}), "logical", P{"embed", "hidden"}, AxisNames::logical),
        bare(ones({4}), "bare") {}
  TESSERA_MODULE(plain, logical, bare)
};

const LogicalRules& rules() {
  static const LogicalRules all{{"batch", "data"}, {"hidden", "model"}};
  return all;
}

TEST(LogicalNames, OfATreeAreTranslatedAndMeshAxesStay) {
  const Shardings specs = get_partition_spec(Weights());
  EXPECT_EQ(to_string(specs),
            "plain: P(None, 'model')\n"
            "logical: P('embed', 'hidden')\n"
            "bare: P()\n");
  const Shardings translated = logical_to_mesh(specs, rules());
  EXPECT_EQ(to_string(translated),
            "plain: P(None, 'model')\n"
            "logical: P(None, 'model')\n"
            "bare: P()\n");
  EXPECT_EQ(translated["logical"], translated["plain"]);
  EXPECT_NE(specs["logical"], translated["logical"]);
  const logical_axis_rules scope(rules());
  EXPECT_EQ(logical_to_mesh(specs), translated);
}

TEST(Boxes, StayInMapsAndThroughJit) {
  const Weights weights = jit([](Weights w) {
    return tree_map([](const Array& a, const Array& b) { return a - b; }, w, w);
  })(Weights());
  EXPECT_EQ(weights.logical.path(), "logical");
  EXPECT_EQ(weights.logical.spec(), (P{"embed", "hidden"}));
  EXPECT_TRUE(weights.logical.is_logical());
  EXPECT_FALSE(weights.plain.is_logical());
  EXPECT_EQ(weights.logical.value().to_vector<float>(), std::vector<float>(32));
}

TEST(Boxes, AreStripped) {
  const Weights bare = unbox(Weights());
  EXPECT_FALSE(bare.plain.is_annotated());
  EXPECT_FALSE(bare.logical.is_annotated());
  EXPECT_FALSE(bare.logical.is_logical());
  EXPECT_EQ(bare.logical.path(), "logical");
  EXPECT_EQ(to_string(get_partition_spec(bare)), "plain: P()\nlogical: P()\nbare: P()\n");
}

TEST(Boxes, DifferInTheKindOfTheirNamesAlone) {
  const Param mesh_names(ones({2}), "w", P{"data"});
  const Param logical_names(ones({2}), "w", P{"data"}, AxisNames::logical);
  EXPECT_FALSE(mesh_names.is_logical());
  EXPECT_TRUE(logical_names.is_logical());
}

/// The spec of a result that is constrained inside a jitted function.
PartitionSpec spec_inside(const PartitionSpec& names, const LogicalConstraint& options) {
  auto f = jit([&](Array x) { return with_logical_constraint(x * 2, names, options); });
  return f(ones({8, 8})).sharding().spec;
}

TEST(LogicalConstraint, SplitsAsTheRulesSay) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  EXPECT_EQ(spec_inside({"batch", "hidden"}, {}), P());  // no rules
  EXPECT_EQ(spec_inside({"batch", "hidden"}, {.rules = rules()}), (P{"data", "model"}));
  EXPECT_EQ(spec_inside({"batch", "seq"}, {.rules = rules()}), P{"data"});
  EXPECT_EQ(
      spec_inside({"batch", "seq"}, {.rules = rules(), .fallback = RulesFallback::no_constraint}),
      P());
  const LogicalConstraint strict{.rules = rules(), .fallback = RulesFallback::raise_error};
  EXPECT_THROW(spec_inside({"batch", "seq"}, strict), UserError);
  EXPECT_EQ(spec_inside({"batch", none}, strict), P{"data"});  // none is not a name
}

TEST(LogicalConstraint, WithoutAMeshOrRulesIsTheArray) {
  const Array x = ones({8, 8});
  EXPECT_TRUE(array_equal(with_logical_constraint(x, {"batch"}, {.rules = rules()}), x));
  EXPECT_EQ(with_logical_constraint(x, {"batch"}, {.rules = rules()}).sharding().spec, P());
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const LogicalConstraint on_mesh{.rules = rules(), .mesh = mesh};
  EXPECT_EQ(with_logical_constraint(x, {"batch"}, on_mesh).sharding(),
            NamedSharding(mesh, P{"data"}));
}

TEST(LogicalConstraint, JitCompilesForTheRulesInScope) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh on_mesh(mesh);
  auto f = jit([](Array x) { return with_logical_constraint(x * 2, {"batch"}); });
  {
    const logical_axis_rules scope(rules());
    EXPECT_EQ(f(ones({8})).sharding().spec, P{"data"});
    const logical_axis_rules inner({{"batch", {"data", "model"}}});
    EXPECT_EQ(f(ones({8})).sharding().spec, (P{{"data", "model"}}));
  }
  EXPECT_TRUE(get_logical_axis_rules().empty());
  EXPECT_EQ(f(ones({8})).sharding().spec, P());
  EXPECT_EQ(f.num_traces(), 3);
  EXPECT_EQ(f.why_recompiled(),
            "setting logical axis rules: ('batch', ('data', 'model')) before, none now\n");
}

}  // namespace
}  // namespace tessera
