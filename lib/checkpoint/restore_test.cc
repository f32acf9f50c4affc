// Arrays saved on one mesh are restored on any other with the same bits, and damage is reported.
#include <gtest/gtest.h>
#include <random>

#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/optim.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/json.h"
#include "checkpoint/read_tile.h"
#include "checkpoint/test_support.h"

namespace tessera::checkpoint {
namespace {

/// Splits dimension i of each array over axes[i]; "" leaves a dimension whole.
Shardings split(const Mesh& mesh, const Tree& tree, const std::vector<std::string>& axes) {
  Shardings shardings;
  for (const auto& [name, x] : tree) {
    std::vector<SpecEntry> entries;
    for (std::size_t i = 0; i < axes.size() && i < x.shape().size(); ++i) {
      entries.push_back(axes[i].empty() ? SpecEntry(none) : SpecEntry(axes[i]));
    }
    shardings.set(name, NamedSharding(mesh, PartitionSpec(entries)));
  }
  return shardings;
}

struct Place {
  Mesh mesh;
  std::vector<std::string> axes;
};

std::vector<Place> places() {
  return {{make_mesh({{"a", 1}}), {}},
          {make_mesh({{"a", 8}}), {"a"}},
          {make_mesh({{"a", 2}, {"b", 3}}), {"a", "b"}},
          {make_mesh({{"a", 3}, {"b", 2}}, {5, 3, 1, 0, 2, 4}), {"b", "a"}},
          {make_mesh({{"a", 4}, {"b", 2}}), {"", "a", "b"}},
          {make_mesh({{"a", 5}}), {"", "a"}}};
}

TEST(Restore, SameBitsFromAnyMeshToAnyOther) {
  const std::string path = test_folder() + "/saved";
  const Tree tree = sample_tree();
  for (const Place& from : places()) {
    save(path, device_put(tree, split(from.mesh, tree, from.axes)));
    EXPECT_EQ(verify(path), std::vector<std::string>());
    for (const Place& to : places()) {
      const Shardings wanted = split(to.mesh, tree, to.axes);
      const Tree restored = restore(path, tree, wanted);
      EXPECT_TRUE(has_same_bits(restored, tree))
          << to_string(from.mesh) << " to " << to_string(to.mesh);
      for (const auto& [name, x] : restored) {
        const NamedSharding place(to.mesh, wanted.find(name)->spec);
        EXPECT_EQ(x.sharding().mesh, to.mesh) << name;
        EXPECT_TRUE(x.sharding().is_equivalent_to(place, x.rank())) << name;
      }
    }
  }
}

TEST(Restore, WithoutShardingsLiesAsTheTargetDoes) {
  const std::string path = test_folder() + "/saved";
  const Tree tree = sample_tree();
  save(path, tree);
  const Mesh mesh = make_mesh({{"a", 4}});
  const Tree target = device_put(sample_tree(1), split(mesh, tree, {"a"}));
  const Tree restored = restore(path, target);
  EXPECT_TRUE(has_same_bits(restored, tree));
  EXPECT_EQ(restored.at("w").sharding(), target.at("w").sharding());
  EXPECT_TRUE(has_same_bits(restore(path, eval_shape([] { return sample_tree(); })), tree));
}

TEST(Restore, ArraysWithoutElements) {
  const std::string folder = test_folder();
  const std::string path = folder + "/saved";
  const Tree tree{{"first", zeros({0, 3})},
                  {"last", zeros({3, 0})},
                  {"middle", zeros({2, 0, 3})},
                  {"full", ones({2})}};
  save(path, tree);
  EXPECT_EQ(verify(path), std::vector<std::string>());
  const Mesh mesh = make_mesh({{"a", 2}});
  EXPECT_TRUE(has_same_bits(restore(path, tree), tree));
  EXPECT_TRUE(has_same_bits(restore(path, tree, split(mesh, tree, {"a"})), tree));
  save(path, device_put(tree, split(mesh, tree, {"a"})));
  EXPECT_EQ(verify(path), std::vector<std::string>());
  EXPECT_TRUE(has_same_bits(restore(path, tree), tree));
  export_checkpoint(path, folder + "/exported");
  Tree exported;
  for (const auto& [name, x] : read_safetensors(folder + "/exported")) exported[name] = x;
  EXPECT_TRUE(has_same_bits(exported, tree));
}

TEST(Restore, KeepsParametersKeysAndTheStateOfTheOptimizer) {
  struct Model {
    Param w;
    TESSERA_MODULE(w)
  };
  struct Run {
    TrainState<Model> state;
    Key key;
    TESSERA_TREE(state, key)
  };
  const std::string path = test_folder() + "/saved";
  Run run{{Model{Param(random::normal(Key(1), {4, 6}), "w", P{none, "a"})}, optim::adam()}, Key(3)};
  for (int i = 0; i < 3; ++i) run.state = run.state.apply_gradients(run.state.params);
  save(path, run);
  const Mesh mesh = make_mesh({{"a", 3}});
  const Run blank = eval_shape([&] { return run; });
  const Run back = restore(path, blank, from_annotations(mesh));
  EXPECT_EQ(fingerprint(named_arrays(back)), fingerprint(named_arrays(run)));
  EXPECT_EQ(back.state.params.w.sharding().spec, (P{none, "a"}));
  EXPECT_EQ(back.state.step.item<int>(), 3);
  EXPECT_TRUE(array_equal(random::bits(back.key), random::bits(Key(3))));
}

TEST(Restore, ReadsTheBlocksThatHoldWhatIsWanted) {
  const std::string path = test_folder() + "/saved";
  const std::int64_t columns = 1 << 18;  // a row has 16 blocks
  const Array x = random::normal(Key(0), {8, columns});
  save(path, Tree{{"x", device_put(x, NamedSharding(make_mesh({{"a", 2}}), P{"a"}))}});
  // Damage the second half of the last row of each tile.
  const Index index = read_index(path);
  for (const SavedTile& tile : index.find("x")->tiles) {
    std::string bytes = read_file(path + "/" + tile.file);
    bytes[bytes.size() - 10] ^= 1;
    write_file(path + "/" + tile.file, bytes);
  }
  EXPECT_EQ(verify(path).size(), 2U);
  SavedFiles files(path, index);
  std::vector<float> half(static_cast<std::size_t>(8 * columns / 2));
  read_part(files, *index.find("x"), {{0, 8}, {0, columns / 2}},
            std::as_writable_bytes(std::span(half)));
  const std::vector<float> all = x.to_vector<float>();
  for (std::size_t row = 0; row < 8; ++row) {
    EXPECT_EQ(std::memcmp(half.data() + row * static_cast<std::size_t>(columns / 2),
                          all.data() + row * static_cast<std::size_t>(columns),
                          static_cast<std::size_t>(columns) * 2),
              0);
  }
  EXPECT_THROW(read_part(files, *index.find("x"), {{0, 8}, {columns / 2, columns}},
                         std::as_writable_bytes(std::span(half))),
               UserError);
}

TEST(Restore, TellsWhatDiffersInAnotherModel) {
  const std::string path = test_folder() + "/saved";
  save(path, Tree{{"kernel", zeros({4, 8})}, {"bias", zeros({8})}, {"old", zeros({2})}});
  const Tree target{{"kernel", zeros({4, 16})}, {"bias", zeros({8})}, {"scale", zeros({8})}};
  try {
    restore(path, target);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().found,
              path +
                  ": it does not have scale f32[8]; it has kernel f32[4,8] instead of f32[4,16]; "
                  "it also has old f32[2]");
  }
  const Tree part = restore(path, Tree{{"bias", ones({8})}}, {}, {.ignore_others = true});
  EXPECT_TRUE(array_equal(part.at("bias"), zeros({8})));
  EXPECT_THROW(restore(path, Tree{{"bias", ones({8})}}), UserError);
}

TEST(Restore, KeepsTheTargetForWhatWasNotSaved) {
  const std::string path = test_folder() + "/saved";
  save(path, Tree{{"kernel", ones({4})}, {"old", zeros({2})}});
  const Tree target{{"kernel", zeros({4})}, {"head", full({3}, 7.0)}};
  const RestoreOptions options{.ignore_others = true, .ignore_missing = true};
  const Tree found = restore(path, target, {}, options);
  EXPECT_TRUE(array_equal(found.at("kernel"), ones({4})));
  EXPECT_TRUE(array_equal(found.at("head"), full({3}, 7.0)));
  EXPECT_THROW(restore(path, target, {}, {.ignore_missing = true}), UserError);
  EXPECT_THROW(restore(path, target, {}, {.ignore_others = true}), UserError);
  // Arrays of another shape are never ignored.
  EXPECT_THROW(restore(path, Tree{{"kernel", zeros({5})}}, {}, options), UserError);
  const Tree types = eval_shape([&] { return target; });
  EXPECT_THROW(restore(path, types, {}, options), UserError);
  // A leaf that is kept gets its sharding too.
  const Mesh mesh = make_mesh({{"data", 2}});
  const Tree sharded = restore(path, target, replicated(mesh, target), options);
  EXPECT_EQ(sharded.at("head").sharding(), sharded.at("kernel").sharding());
}

TEST(Restore, ReadsASubtree) {
  const std::string path = test_folder() + "/saved";
  const auto saved = [](double factor) {
    return Tree{{"a", full({2}, factor)}, {"b", full({3}, 2 * factor)}};
  };
  const std::map<std::string, Tree> state = {
      {"mu", saved(1)}, {"params", saved(2)}, {"params_before", saved(3)}};
  save(path, state);
  const Tree found = restore(path, saved(0), {}, {.subtree = "params"});
  EXPECT_TRUE(has_same_bits(found, saved(2)));
  // The rest of the subtree still counts.
  const Tree part{{"a", zeros({2})}};
  EXPECT_THROW(restore(path, part, {}, {.subtree = "params"}), UserError);
  const RestoreOptions options{.ignore_others = true, .subtree = "params"};
  EXPECT_TRUE(array_equal(restore(path, part, {}, options).at("a"), full({2}, 2.0)));
  EXPECT_THROW(restore(path, part, {}, {.subtree = "param"}), UserError);
}

/// Whether restoring gives these values or throws UserError; anything else fails the test.
enum class Outcome { same, refused };
Outcome outcome_of(const std::string& path, const Tree& tree) {
  try {
    const Tree restored = restore(path, tree);
    EXPECT_TRUE(has_same_bits(restored, tree)) << "other values were taken for those saved";
    return Outcome::same;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return Outcome::refused;
  }
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = test_folder() + "/saved";
    tree_ = {{"w", random::normal(Key(0), {6, 5})},
             {"b", astype(random::normal(Key(1), {7}), DType::bf16)}};
    const Mesh mesh = make_mesh({{"a", 2}});
    save(path_, device_put(tree_, split(mesh, tree_, {"a"})), {.metadata = {{"run", "test"}}});
    files_ = files_below(path_);
    ASSERT_EQ(files_.size(), 3U);
  }
  void expect_refused(const std::string& name, const std::string& bytes, const std::string& what) {
    write_file(path_ + "/" + name, bytes);
    EXPECT_EQ(outcome_of(path_, tree_), Outcome::refused) << name << ": " << what;
    EXPECT_FALSE(verify(path_).empty()) << name << ": " << what;
    write_file(path_ + "/" + name, files_.at(name));
  }

  std::string path_;
  Tree tree_;
  std::map<std::string, std::string> files_;
};

TEST_F(Damage, OfAnyByteIsTold) {
  for (const auto& [name, good] : files_) {
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (const char flip : {'\x01', '\x80', '\x20'}) {
        std::string bytes = good;
        bytes[i] = static_cast<char>(bytes[i] ^ flip);
        expect_refused(name, bytes, "byte " + std::to_string(i));
      }
    }
  }
  EXPECT_EQ(outcome_of(path_, tree_), Outcome::same);
}

TEST_F(Damage, OfAnyLengthIsTold) {
  for (const auto& [name, good] : files_) {
    for (std::size_t size = 0; size < good.size(); ++size)
      expect_refused(name, good.substr(0, size), "cut to " + std::to_string(size));
    expect_refused(name, good + "\n", "longer");
    expect_refused(name, good + good, "twice");
  }
}

TEST_F(Damage, ByAMissingFileIsTold) {
  for (const auto& [name, good] : files_) {
    fs::remove(path_ + "/" + name);
    EXPECT_EQ(outcome_of(path_, tree_), Outcome::refused) << name;
    EXPECT_FALSE(verify(path_).empty()) << name;
    fs::create_directory(path_ + "/" + name);
    EXPECT_EQ(outcome_of(path_, tree_), Outcome::refused) << name << " is a folder";
    fs::remove(path_ + "/" + name);
    write_file(path_ + "/" + name, good);
  }
}

TEST_F(Damage, OfFilesThatAreSwappedIsTold) {
  std::vector<std::string> names;
  for (const auto& [name, good] : files_) names.push_back(name);
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      if (a != b) expect_refused(a, files_.at(b), b);
    }
  }
}

}  // namespace
}  // namespace tessera::checkpoint
