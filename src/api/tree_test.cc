#include <gtest/gtest.h>
#include <map>
#include <optional>

#include <tessera/error.h>
#include <tessera/shardings.h>
#include <tessera/tree.h>

namespace tessera {
namespace {

Param param(const std::string& path, float value = 0.0F) { return Param(scalar(value), path); }

struct Dense {
  Param kernel, bias;
  explicit Dense(const std::string& scope)
      : kernel(scalar(1.0F), scope + "/kernel", P{"model"}), bias(param(scope + "/bias", 2.0F)) {}
  TESSERA_MODULE(kernel, bias)
};

struct Model {
  std::vector<Dense> layers;
  std::optional<Dense> head;
  Array table;
  TESSERA_MODULE(layers, head, table)
};

struct State {
  Model params;
  std::vector<Param> moments;
  Array step;
  double rate = 0.5;
  std::map<std::string, Array> extra;
  Key key;
  std::string name;
  TESSERA_TREE(params, moments, step, rate, extra, key, name)
};

struct Empty {
  TESSERA_TREE()
};

State make_state() {
  State state;
  state.params.layers = {Dense("Dense_0"), Dense("Dense_1")};
  state.params.table = scalar(3.0F);
  state.moments = {param("Dense_0/kernel"), param("Dense_0/bias")};
  state.step = scalar(7);
  state.extra["loss"] = scalar(4.0F);
  state.key = Key(1);
  return state;
}

TEST(Tree, PathsFollowScopesAndFields) {
  const std::vector<std::string> expected = {"params/Dense_0/kernel",
                                             "params/Dense_0/bias",
                                             "params/Dense_1/kernel",
                                             "params/Dense_1/bias",
                                             "params/table",
                                             "moments/Dense_0/kernel",
                                             "moments/Dense_0/bias",
                                             "step",
                                             "extra/loss",
                                             "key"};
  EXPECT_EQ(tree_paths(make_state()), expected);
}

TEST(Tree, TuplesAndListsCount) {
  const auto tree = std::tuple(std::vector<Array>{scalar(1), scalar(2)}, std::pair(scalar(3), 4),
                               Empty(), std::array<Array, 1>{scalar(5)});
  EXPECT_EQ(tree_paths(tree), (std::vector<std::string>{"0/0", "0/1", "1/0", "3/0"}));
  EXPECT_EQ(tree_paths(scalar(1)), std::vector<std::string>{""});
}

TEST(Tree, MapKeepsParametersAndStatics) {
  const State state = make_state();
  int count = 0;
  const State mapped = tree_map(
      [&](const Array& a, const Array& b) {
        EXPECT_EQ(a.node(), b.node());
        ++count;
        return scalar(count);
      },
      state, state);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(mapped.params.layers[1].kernel.path(), "Dense_1/kernel");
  EXPECT_EQ(mapped.params.layers[1].kernel.spec(), P{"model"});
  EXPECT_EQ(mapped.params.layers[1].kernel.item<int>(), 3);
  EXPECT_EQ(mapped.key.data().item<int>(), 10);
  EXPECT_EQ(mapped.rate, 0.5);
  EXPECT_EQ(state.step.item<int>(), 7);
}

TEST(Tree, MapWithPath) {
  std::string seen;
  tree_map_with_path(
      [&](const std::string& path, const Array& leaf) {
        seen += path + ";";
        return leaf;
      },
      std::pair(scalar(1), std::vector<Array>{scalar(2)}));
  EXPECT_EQ(seen, "0;1/0;");
}

TEST(Tree, ParamsNameEveryLeaf) {
  const std::vector<Param> params = tree_params(make_state());
  EXPECT_EQ(params[0].path(), "Dense_0/kernel");
  EXPECT_EQ(params[0].spec(), P{"model"});
  EXPECT_EQ(params[7].path(), "step");
}

TEST(Tree, StructureTellsStaticsApart) {
  auto structure = [](const State& state) {
    return detail::walked(state, detail::Walk::Want::structure).structure();
  };
  const State state = make_state();
  EXPECT_EQ(structure(state), structure(make_state()));
  State other = state;
  other.rate = 0.25;
  EXPECT_NE(structure(state), structure(other));
  other = state;
  other.params.head = Dense("head");
  EXPECT_NE(structure(state), structure(other));
  other = state;
  other.name = "other";
  EXPECT_NE(structure(state), structure(other));
}

TEST(Tree, StaticValuesTellProgramsApart) {
  enum class Mode : std::uint8_t { off, on };
  const auto scaled =
      jit([](Array x, Static<double> by, Static<Mode> mode, Static<std::string> name) {
        return x * *by + (*mode == Mode::on ? 1.0 : 0.0) + static_cast<double>(name->size());
      });
  const auto call = [&](double by, Mode mode, const std::string& name) {
    return scaled(scalar(2.0F), Static<double>{by}, Static<Mode>{mode}, Static<std::string>{name})
        .item<float>();
  };
  EXPECT_EQ(call(2, Mode::off, ""), 4);
  EXPECT_EQ(call(5, Mode::off, ""), 10);
  EXPECT_EQ(call(5, Mode::on, ""), 11);
  EXPECT_EQ(call(5, Mode::on, "ab"), 13);
  EXPECT_EQ(call(2, Mode::off, ""), 4);
  EXPECT_EQ(scaled.num_traces(), 4);
  // Numbers that print alike have programs of their own.
  call(0.1, Mode::off, "");
  call(std::nextafter(0.1, 1), Mode::off, "");
  EXPECT_EQ(scaled.num_traces(), 6);
}

TEST(Tree, EqualPathsAreAnError) {
  State state = make_state();
  state.params.layers[1] = Dense("Dense_0");
  try {
    tree_paths(state);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().found, "params/Dense_0/kernel");
  }
}

struct Forgetful {
  Array a, forgotten, b;
  TESSERA_TREE(a, b)
};

TEST(Tree, ForgottenFieldsAreAnError) {
  try {
    tree_paths(Forgetful{scalar(1), scalar(2), scalar(3)});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().what, "TESSERA_TREE(a, b): a field is not listed");
  }
}

template <typename T>
bool lists_all(const T& tree) {
  try {
    tree_paths(tree);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(Tree, ForgottenNumbersAreAnError) {
  struct Last {
    Array a;
    double rate = 0.5;
    TESSERA_TREE(a)
  };
  struct Between {
    Array a;
    int size = 1;
    Array b;
    TESSERA_TREE(a, b)
  };
  struct Flag {
    Array a;
    bool is_on = true;
    int size = 1;
    TESSERA_TREE(a, size)
  };
  EXPECT_FALSE(lists_all(Last{scalar(1)}));
  EXPECT_FALSE(lists_all(Between{scalar(1), 1, scalar(2)}));
  EXPECT_FALSE(lists_all(Flag{scalar(1)}));
}

TEST(Tree, BytesThatAlignFieldsAreNoField) {
  struct Mixed {
    bool is_on = true;
    double rate = 1.0;
    Array a = scalar(1);
    bool is_off = false;
    TESSERA_TREE(is_on, rate, a, is_off)
  };
  struct Virtual {
    Array a = scalar(1);
    virtual ~Virtual() = default;
    TESSERA_TREE(a)
  };
  EXPECT_TRUE(lists_all(Mixed()));
  EXPECT_TRUE(lists_all(Virtual()));
}

TEST(Tree, AStructMayBeDerivedFromAnother) {
  struct Base {
    Array a;
    TESSERA_TREE(a)
  };
  struct Renamed : Base {};
  struct Larger : Base {
    Array b;
    TESSERA_TREE(a, b)
  };
  EXPECT_EQ(tree_paths(Renamed{{scalar(1)}}), std::vector<std::string>{"a"});
  EXPECT_EQ(tree_paths(Larger{{scalar(1)}, scalar(2)}), (std::vector<std::string>{"a", "b"}));
}

TEST(Tree, SpecsAreATree) {
  const Shardings specs = get_partition_spec(make_state());
  EXPECT_EQ(specs["params/Dense_0/kernel"], Shardings(P{"model"}));
  EXPECT_EQ(specs["params/Dense_1/bias"], Shardings(P{}));
  EXPECT_EQ(specs["params"]["Dense_1"]["kernel"], Shardings(P{"model"}));
  EXPECT_THROW(specs["nothing"], UserError);
}

TEST(Tree, FsdpSplitsTheFirstLargestDimension) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const auto tree =
      std::tuple(detail::array_from(DType::f32, {0, 3, 3}, nullptr, 0, {}), scalar(1));
  const Shardings shardings = fsdp_shardings(mesh, tree);
  EXPECT_EQ(shardings["0"], Shardings(NamedSharding(mesh, P{none, "data"})));
  EXPECT_EQ(shardings["1"], Shardings(NamedSharding(mesh, P{})));
}

}  // namespace
}  // namespace tessera
