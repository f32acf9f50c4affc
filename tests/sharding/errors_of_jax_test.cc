// Every mistake about meshes, specs and placement that JAX reports is a UserError here, with the
// line and a cure. tests/errors checks the whole texts.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include <tessera/tessera.h>

#include "tests/errors/grid.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

using Mistakes = std::map<std::string, std::function<void()>>;

Array twice(const Array& x) { return x * 2; }

void call_with_out_sharding(const Array& x, const P& spec, bool strict) {
  jit([](Array v) { return twice(v); },
      {.out_shardings = NamedSharding(grid(), spec), .strict = strict})(x);
}

void call_on_two_orders() {
  const Mesh turned = make_mesh({{"data", 2}, {"model", 4}}, {7, 6, 5, 4, 3, 2, 1, 0});
  const Array a = device_put(ones({8, 16}), NamedSharding(grid(), P{"data"}));
  const Array b = device_put(ones({8, 16}), NamedSharding(turned, P{"data"}));
  jit([](Array x, Array y) { return x + y; })(a, b);
}

void call_with_other_in_sharding() {
  const Array x = device_put(ones({8, 16}), NamedSharding(grid(), P{"model"}));
  jit([](Array v) { return twice(v); }, {.in_shardings = {NamedSharding(grid(), P{"data"})}})(x);
}

void call_with_too_few_in_shardings() {
  jit([](Array v, Array w) { return v + w; }, {.in_shardings = {NamedSharding(grid(), P{})}})(
      ones({8, 16}), ones({8, 16}));
}

void use_donated() {
  Array x = ones({8, 16});
  jit([](Array v) { return twice(v); }, {.donate_argnums = {0}})(x);
  x.to_vector<float>();
}

void constrain(const P& spec) {
  const use_mesh scope(grid());
  jit([&](Array v) { return with_sharding_constraint(v, spec); })(ones({8, 16}));
}

/// Mistakes by the names of their golden entries.
Mistakes mistakes() {
  const Array ten = ones({10, 3});
  return {
      {"Mesh: names != ndim",
       [] {
         Mesh(create_device_mesh({2, 4}), {"data"});
       }},
      {"create_device_mesh: fewer than devices",
       [] {
         make_mesh({{"a", 2}, {"b", 2}}, {0, 1, 2, 3, 4, 5, 6, 7});
       }},
      {"NamedSharding: duplicate axis two dims",
       [] {
         NamedSharding(grid(), (P{"data", "data"}));
       }},
      {"NamedSharding: non-string entry", [] { NamedSharding(grid(), P{"3"}); }},
      {"device_put: indivisible",
       [=] { device_put(ten, NamedSharding(grid(), P{"model"}), {.strict = true}); }},
      {"device_put: scalar with spec",
       [] { device_put(scalar(1.0F), NamedSharding(grid(), P{"data"})); }},
      {"device_put: P without mesh", [=] { device_put(ten, P{"data"}); }},
      {"jit out_shardings indivisible", [=] { call_with_out_sharding(ten, P{"model"}, true); }},
      {"jit out_shardings rank",
       [] {
         call_with_out_sharding(ones({8}), P{"data", "model"}, false);
       }},
      {"jit in_shardings tree mismatch", call_with_too_few_in_shardings},
      {"jit in_shardings vs committed arg mismatch", call_with_other_in_sharding},
      {"jit args on meshes with other device order", call_on_two_orders},
      {"donated buffer reuse", use_donated},
      {"wsc unknown axis under set_mesh", [] { constrain(P{"foo"}); }},
      {"wsc duplicate axis",
       [] {
         constrain(P{"data", "data"});
       }},
  };
}

TEST(ErrorsOfJax, AreErrorsHere) {
  const nlohmann::json golden = read_golden("jax_errors.json");
  for (const auto& [name, mistake] : mistakes()) {
    EXPECT_NE(golden.at(name)["type"].get<std::string>(), "NO ERROR") << name;
    try {
      mistake();
      ADD_FAILURE() << name << ": no error";
    } catch (const UserError& error) {
      EXPECT_EQ(error.mistake().where.file.find("errors_of_jax_test.cc") != std::string::npos, true)
          << name << "\n"
          << error.what();
      EXPECT_FALSE(error.mistake().cure.empty()) << name;
    }
  }
}

TEST(ErrorsOfJax, WhatJaxAllowsIsAllowed) {
  const nlohmann::json golden = read_golden("jax_errors.json");
  const Mistakes allowed = {
      {"jax.make_mesh: fewer devices ok",
       [] {
         make_mesh({{"a", 2}, {"b", 2}});
       }},
      {"wsc spec shorter than rank ok", [] { constrain(P{"data"}); }},
      {"wsc indivisible internal then sum",
       [] {
         const use_mesh scope(grid());
         auto f = jit([](Array v) { return sum(with_sharding_constraint(v, P{"model"})); });
         EXPECT_EQ(f(ones({10, 3})).item<float>(), 30.0F);
       }},
      {"jit auto output of uncommitted under set_mesh", [] {
         const use_mesh scope(grid());
         EXPECT_EQ(twice(ones({8})).sharding(), NamedSharding(grid(), P{}));
       }}};
  for (const auto& [name, call] : allowed) {
    EXPECT_EQ(golden.at(name)["type"].get<std::string>(), "NO ERROR") << name;
    EXPECT_NO_THROW(call()) << name;
  }
}

TEST(ErrorsOfJax, OthersHaveAReason) {
  const std::set<std::string> more_is_possible_here = {
      "shard_shape indivisible",   // shards may differ by one
      "wsc P without mesh (jit)",  // models with constraints run without a mesh
      "visualize 3D"};
  const std::set<std::string> tested_above = {
      "jax.make_mesh: fewer devices ok", "wsc spec shorter than rank ok",
      "wsc indivisible internal then sum", "jit auto output of uncommitted under set_mesh"};
  const Mistakes tested = mistakes();
  const nlohmann::json all = read_golden("jax_errors.json");
  for (const auto& [name, error] : all.items()) {
    const bool is_of_another_part =
        name == "Mesh: axis_types length" || name.rfind("explicit", 0) == 0 ||
        name.rfind("shard_map", 0) == 0 || name.rfind("psum", 0) == 0 ||
        name.rfind("all_to_all", 0) == 0 || name.rfind("ppermute", 0) == 0 ||
        name.rfind("flax", 0) == 0 || name.find("logical") != std::string::npos;
    if (is_of_another_part) continue;
    EXPECT_EQ(tested.count(name) + tested_above.count(name) + more_is_possible_here.count(name), 1U)
        << name;
  }
}

TEST(ErrorsOfJax, IndivisibleShapesHaveShards) {
  const NamedSharding sharding(grid(), P{"model"});
  EXPECT_EQ(sharding.shard_shape({10, 3}), (Shape{3, 3}));
  EXPECT_EQ(sharding.shard_shape({10, 3}, 0), (Shape{2, 3}));
  EXPECT_EQ(sharding.shard_shape({10, 3}, 5), (Shape{3, 3}));
}

}  // namespace
}  // namespace tessera
