// Mistakes in saving and restoring.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <unistd.h>

#include <tessera/checkpoint.h>
#include <tessera/grad.h>
#include <tessera/ops.h>

#include "tests/cases/source_dir.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Tree = std::map<std::string, Array>;

constexpr const char* kShard = "/shard-00001-model-00001-of-00001.safetensors";

/// Saves w f32[4] and b i32[2] in a new folder and returns its path.
std::string saved() {
  const fs::path folder =
      fs::path(::testing::TempDir()) /
      ("tessera_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  checkpoint::save((folder / "run").string(), Tree{{"w", ones({4})}, {"b", arange(2)}});
  return (folder / "run").string();
}

Tree target() { return {{"w", zeros({4})}, {"b", zeros({2}, DType::i32)}}; }

/// Applies `change` to the text of a file.
void edit(const std::string& path, const std::function<void(std::string&)>& change) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  change(text);
  std::ofstream(path, std::ios::binary) << text;
}

TEST(CheckpointErrors, OfAnotherModel) {
  const std::string run = saved();
  const Tree other{{"w", zeros({4, 2})}, {"c", zeros({3})}};
  const Caught error = caught([&] { checkpoint::restore(run, other); });
  EXPECT_EQ(error.text,
            "restore: the checkpoint is of another model\n"
            "  where:  <this line>\n"
            "  found:  " +
                run +
                ": it does not have c f32[3]; it has w f32[4] instead of f32[4,2]; "
                "it also has b i32[2]\n"
                "  wanted: the 2 arrays of the target\n"
                "  cure:   restore with the sizes and dtypes that were saved; "
                "`tessera checkpoint ls " +
                run +
                "` lists them; {.ignore_missing = true} keeps the values of the target for what "
                "was not saved; {.ignore_others = true} leaves out what the target does not have");
}

TEST(CheckpointErrors, OfAStateThatHoldsTheModel) {
  const std::string run = saved();
  checkpoint::save(run, std::map<std::string, Tree>{{"params", target()}, {"slots_mu", target()}});
  const Caught error = caught([&] { checkpoint::restore(run, target()); });
  EXPECT_NE(error.text.find("  cure:   restore a part of the checkpoint: {.subtree = \"params\"}"),
            std::string::npos)
      << error.text;
  const Tree found = checkpoint::restore(run, target(), {}, {.subtree = "params"});
  EXPECT_TRUE(array_equal(found.at("w"), target().at("w")));
}

TEST(CheckpointErrors, SubtreeThatDoesNotExist) {
  const std::string run = saved();
  const Caught error = caught([&] { checkpoint::restore(run, target(), {}, {.subtree = "para"}); });
  EXPECT_EQ(error.text,
            "restore: the checkpoint has no arrays at this path\n"
            "  where:  <this line>\n"
            "  found:  " +
                run +
                ": none below para\n"
                "  wanted: the path of a subtree, such as params\n"
                "  cure:   `tessera checkpoint ls " +
                run + "` lists the arrays");
}

TEST(CheckpointErrors, NothingToKeepForWhatWasNotSaved) {
  const std::string run = saved();
  Tree more = target();
  more["head"] = zeros({3});
  const Tree types = eval_shape([&] { return more; });
  const checkpoint::RestoreOptions options{.ignore_missing = true};
  EXPECT_EQ(caught([&] { checkpoint::restore(run, types, {}, options); }).text,
            "restore: an array that was not saved has no value in the target\n"
            "  where:  <this line>\n"
            "  found:  " +
                run +
                ": it does not have head f32[3], and the target has only its type\n"
                "  wanted: a target whose arrays have values, for {.ignore_missing = true}\n"
                "  cure:   make the target by the constructor of the model, not by eval_shape");
}

TEST(CheckpointErrors, NoCheckpoint) {
  const std::string run = saved() + "_of_another_day";
  const Caught error = caught([&] { checkpoint::restore(run, target()); });
  EXPECT_EQ(error.text,
            "checkpoint: this is not a checkpoint\n"
            "  found:  no folder " +
                run +
                "\n"
                "  wanted: the folder of a saved checkpoint\n"
                "  cure:   check the path; `tessera checkpoint ls` lists what a folder holds");
}

TEST(CheckpointErrors, DamagedElement) {
  const std::string run = saved();
  edit(run + kShard, [](std::string& text) { text.back() ^= 1; });
  const std::string size = std::to_string(fs::file_size(run + kShard));
  const std::string begin = std::to_string(fs::file_size(run + kShard) - 16);
  const Caught error = caught([&] { checkpoint::restore(run, target()); });
  EXPECT_EQ(error.text,
            "checkpoint: a file is damaged\n"
            "  found:  " +
                run + std::string(kShard) + ": bytes " + begin + " to " + size +
                ", of the array w, have a wrong checksum\n"
                "  wanted: the bytes that were saved\n"
                "  cure:   remove this step, so that the step before it becomes the last one; "
                "`tessera checkpoint verify` shows which files are intact");
}

TEST(CheckpointErrors, DamagedIndex) {
  const std::string run = saved();
  edit(run + "/checkpoint.json", [](std::string& text) { text.resize(text.size() / 2); });
  const Caught error = caught([&] { checkpoint::restore(run, target()); });
  EXPECT_EQ(error.text,
            "checkpoint: the index is damaged\n"
            "  found:  " +
                run +
                "/checkpoint.json: it is cut off\n"
                "  wanted: the file that was saved\n"
                "  cure:   remove this step, so that the step before it becomes the last one; "
                "`tessera checkpoint ls` lists the steps");
}

TEST(CheckpointErrors, NameTwice) {
  const std::vector<checkpoint::NamedArray> arrays = {{"a", ones({})}, {"a", ones({})}};
  const Caught error = caught([&] { checkpoint::save_arrays("x", arrays); });
  EXPECT_EQ(error.text,
            "checkpoint: the name of an array is already in use\n"
            "  where:  <this line>\n"
            "  found:  a a second time\n"
            "  wanted: different names\n"
            "  cure:   give each array its own name");
}

TEST(CheckpointErrors, NameThatIsNoText) {
  const std::string run = saved();
  const Caught error = caught([&] { checkpoint::save(run, Tree{{"\xff", ones({})}}); });
  EXPECT_EQ(error.text,
            "checkpoint: a name or a string is not UTF-8\n"
            "  found:  the name \"\\ufffd\"\n"
            "  wanted: names of arrays and metadata in UTF-8\n"
            "  cure:   encode it as UTF-8, or write its bytes as hexadecimal digits");
  EXPECT_TRUE(checkpoint::verify(run).empty());
}

TEST(CheckpointErrors, MetadataThatIsNoText) {
  const std::string run = saved();
  const Caught error = caught([&] {
    checkpoint::save(run, target(), {.metadata = {{"author", "Ren\u00e9"}, {"cafe", "caf\xe9"}}});
  });
  EXPECT_EQ(error.text,
            "checkpoint: a name or a string is not UTF-8\n"
            "  found:  the string \"caf\\ufffd\" in \"cafe\" in \"metadata\"\n"
            "  wanted: names of arrays and metadata in UTF-8\n"
            "  cure:   encode it as UTF-8, or write its bytes as hexadecimal digits");
  EXPECT_TRUE(checkpoint::verify(run).empty());
}

TEST(CheckpointErrors, PlaceOfSomethingElse) {
  const std::string folder = fs::path(saved()).parent_path().string();
  const Caught error = caught([&] { checkpoint::save(folder, target()); });
  EXPECT_EQ(error.text,
            "checkpoint: something else exists at this path\n"
            "  found:  " +
                folder +
                ", which is not a checkpoint\n"
                "  wanted: a new path, or the path of a checkpoint to replace\n"
                "  cure:   choose another path");
}

TEST(CheckpointErrors, NameOfAnotherStep) {
  const std::string folder = fs::path(saved()).parent_path().string();
  const std::string path = folder + "/step_00000012";
  const Caught saving = caught([&] { checkpoint::save(path, target(), {.step = 3}); });
  EXPECT_EQ(saving.text,
            "checkpoint: the folder has the name of another step\n"
            "  where:  <this line>\n"
            "  found:  " +
                path +
                " with step 3\n"
                "  wanted: step_00000003, or a name that is not the name of a step\n"
                "  cure:   name the folder after the step that it holds");
  fs::rename(folder + "/run", path);
  const Caught restoring = caught([&] { checkpoint::restore(path, target()); });
  EXPECT_EQ(restoring.text,
            "checkpoint: the folder has the name of another step\n"
            "  found:  " +
                path +
                " with step 0\n"
                "  wanted: step_00000000, or a name that is not the name of a step\n"
                "  cure:   name the folder after the step that it holds");
}

TEST(CheckpointErrors, FileInPlaceOfAFolder) {
  const std::string file = saved() + "/checkpoint.json";
  const Caught error = caught([&] { checkpoint::latest_step(file); });
  EXPECT_EQ(error.text,
            "checkpoint: the path is not a folder\n"
            "  found:  " +
                file +
                ", which is a file\n"
                "  wanted: the folder of a run\n"
                "  cure:   give the folder that holds the checkpoints, not a file");
}

TEST(CheckpointErrors, NegativeStep) {
  checkpoint::Checkpointer steps(fs::path(saved()).parent_path().string());
  const Caught error = caught([&] { steps.save(-1, target()); });
  EXPECT_EQ(error.text,
            "Checkpointer: the step number is negative\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: the number of steps done, 0 or more\n"
            "  cure:   count steps from 0");
}

TEST(CheckpointErrors, FolderOfAnotherProcess) {
  const std::string folder = fs::path(saved()).parent_path().string();
  const checkpoint::Checkpointer first(folder);
  const Caught error = caught([&] { checkpoint::Checkpointer second(folder); });
  EXPECT_EQ(error.text,
            "Checkpointer: another process is saving in this folder\n"
            "  where:  <this line>\n"
            "  found:  " +
                folder +
                ", which is locked\n"
                "  wanted: a separate folder for each run\n"
                "  cure:   wait until that process has ended, or choose another folder");
}

TEST(CheckpointErrors, SafetensorsThatIsNone) {
  const std::string file = saved() + "/checkpoint.json";
  const Caught error = caught([&] { checkpoint::read_safetensors(file); });
  EXPECT_EQ(error.text,
            "read_safetensors: the file cannot be read\n"
            "  where:  <this line>\n"
            "  found:  " +
                file +
                ": the header is longer than the file\n"
                "  wanted: a complete file in the safetensors format\n"
                "  cure:   copy the file again from its source");
}

TEST(CheckpointErrors, ExportOfNothing) {
  const std::string run = saved();
  const Caught error = caught([&] { checkpoint::export_checkpoint(run, "new", {.subtree = "p"}); });
  EXPECT_EQ(error.text,
            "export_checkpoint: the checkpoint has no arrays at this path\n"
            "  where:  <this line>\n"
            "  found:  none below p\n"
            "  wanted: the path of a subtree, such as params\n"
            "  cure:   `tessera checkpoint ls " +
                run + "` lists the arrays");
}

TEST(CheckpointErrors, CallbackForASpecWithTooManyEntries) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const NamedSharding split(mesh, P{none, "a"});
  const auto fill = [](const std::vector<IndexRange>&, std::span<std::byte>) {};
  const Caught error = caught([&] { make_array_from_callback({DType::f32, {4}}, split, fill); });
  EXPECT_EQ(error.text,
            "make_array_from_callback: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P(None, 'a') for f32[4]\n"
            "  wanted: no more entries than dimensions: 1\n"
            "  cure:   drop the extra entries");
}

TEST(CheckpointErrors, TensorThatIsNotThere) {
  const std::string file = saved() + "/x.safetensors";
  checkpoint::write_safetensors(file, {{"layers/kernel", ones({2})}});
  const Caught error =
      caught([&] { checkpoint::read_safetensors(file, {.names = {"layer/kernel"}}); });
  EXPECT_EQ(error.text,
            "read_safetensors: the file does not have all of these tensors\n"
            "  where:  <this line>\n"
            "  found:  " +
                file +
                " without layer/kernel\n"
                "  wanted: names of tensors in the file\n"
                "  cure:   did you mean 'layers/kernel'? list_safetensors() lists the tensors");
}

TEST(CheckpointErrors, TensorOfADtypeThatArraysLack) {
  const std::string file = saved() + "/x.safetensors";
  std::ofstream(file, std::ios::binary)
      << std::string("\x37\0\0\0\0\0\0\0", 8)
      << R"({"x":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}} )"
      << "abcdefgh";
  const Caught error = caught([&] { checkpoint::read_safetensors(file, {.names = {"x"}}); });
  EXPECT_EQ(error.text,
            "read_safetensors: the dtype of this tensor is not supported\n"
            "  where:  <this line>\n"
            "  found:  x C64[1]\n"
            "  wanted: one of BOOL, I8 to I64, U8 to U64, F8_E4M3, F8_E5M2, F16, BF16, F32, F64\n"
            "  cure:   leave it out of the names, or convert the file");
}

TEST(CheckpointErrors, IndexOfATensorThatNoFileHas) {
  const std::string folder = saved();
  checkpoint::write_safetensors(folder + "/x.safetensors", {{"x", ones({2})}});
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"weight_map":{"x":"x.safetensors","y":"x.safetensors"}})";
  const Caught error = caught([&] { checkpoint::read_safetensors(folder); });
  EXPECT_EQ(error.text,
            "read_safetensors: the file cannot be read\n"
            "  where:  <this line>\n"
            "  found:  " +
                folder +
                "/x.safetensors: it does not have y, which the index lists\n"
                "  wanted: a complete file in the safetensors format\n"
                "  cure:   copy the file again from its source");
}

/// The error of exporting arrays with these names.
std::string export_error(checkpoint::ExportFormat format, const std::vector<std::string>& names) {
  Tree tree;
  for (const std::string& name : names) tree[name] = ones({2});
  const std::string run = saved();
  checkpoint::save(run, tree);
  return caught([&] { checkpoint::export_checkpoint(run, run + ".to", {.format = format}); }).text;
}

TEST(CheckpointErrors, ExportForPyTorchOfNamesThatBecomeEqual) {
  EXPECT_EQ(export_error(checkpoint::ExportFormat::torch, {"a.b", "a/b"}),
            "export: an array cannot be written for PyTorch\n"
            "  found:  a.b and a/b\n"
            "  wanted: paths that differ when dots replace slashes\n"
            "  cure:   export safetensors instead");
}

TEST(CheckpointErrors, ExportForOrbaxOfANameThatIsNoFolder) {
  EXPECT_EQ(export_error(checkpoint::ExportFormat::orbax, {".."}),
            "export: an array cannot be written for Orbax\n"
            "  found:  the path `..`\n"
            "  wanted: paths whose keys can name a folder\n"
            "  cure:   export safetensors instead");
}

TEST(CheckpointErrors, ImportOfATensorInsideACall) {
  const std::string file = source_dir() / "tests/peers/golden/foreign/training2.pt";
  const checkpoint::ReadOptions options{.names = {"arguments.2.start"}};
  const Caught error = caught([&] { checkpoint::import_arrays(file, options); });
  EXPECT_EQ(
      error.text,
      "import_arrays: this tensor cannot be read\n"
      "  where:  <this line>\n"
      "  found:  arguments.2.start F32[2,3]: it is inside a call of argparse.Namespace, which "
      "is not run\n"
      "  wanted: names of tensors that can be read\n"
      "  cure:   leave it out of the names, or save it as a dense array in a dict or list");
}

TEST(CheckpointErrors, ImportOfANameThatTwoArraysHave) {
  const std::string file = saved() + "/x.msgpack";
  // {"a/b": 0.0, "a": {"b": 0.0}}
  const std::string number =
      std::string("\xd8\x01\x93\x90\xa7") + "float32" + std::string("\xc4\x04\0\0\0\0", 6);
  std::ofstream(file, std::ios::binary) << "\x82\xa3"
                                        << "a/b" << number << "\xa1"
                                        << "a"
                                        << "\x81\xa1"
                                        << "b" << number;
  const Caught error = caught([&] { checkpoint::import_arrays(file); });
  EXPECT_EQ(error.text,
            "import_arrays: two arrays of the file have the same name\n"
            "  where:  <this line>\n"
            "  found:  " +
                file +
                " with two arrays `a/b`\n"
                "  wanted: keys that give different names when they are joined\n"
                "  cure:   save the file again with other keys, or ask only for other names");
}

TEST(CheckpointErrors, ImportOfAnArrayWithoutAName) {
  const std::string file = saved() + "/x.npy";
  std::ofstream(file, std::ios::binary) << "\x93NUMPY";
  const Caught error = caught([&] { checkpoint::import_arrays(file); });
  EXPECT_EQ(error.text,
            "import_arrays: the file has one array without a name\n"
            "  where:  <this line>\n"
            "  found:  " +
                file +
                ", a file of numpy.save (.npy)\n"
                "  wanted: arrays with names, such as a file of numpy.savez (.npz)\n"
                "  cure:   name the array: numpy.savez(\"x.npz\", name=numpy.load(\"x.npy\"))");
}

TEST(CheckpointErrors, ImportOfAStepOfOrbaxWithoutATree) {
  const std::string folder = saved();
  std::ofstream(folder + "/_CHECKPOINT_METADATA") << "{}";
  const Caught error = caught([&] { checkpoint::import_arrays(folder); });
  EXPECT_EQ(error.text,
            "import_arrays: the checkpoint of Orbax does not have exactly one tree\n"
            "  where:  <this line>\n"
            "  found:  " +
                folder +
                ", which has no file _METADATA\n"
                "  wanted: the folder of a saved tree, or a folder with one such folder in it\n"
                "  cure:   name the folder of the item, such as STEP/default or STEP/params");
}

TEST(CheckpointErrors, ImportOfADamagedCheckpointOfOrbax) {
  const std::string folder = saved();
  std::ofstream(folder + "/_METADATA") << "{}";
  const Caught error = caught([&] { checkpoint::import_arrays(folder); });
  EXPECT_EQ(
      error.text,
      "import_arrays: the file cannot be read\n"
      "  where:  <this line>\n"
      "  found:  " +
          folder +
          ": the member tree_metadata is missing\n"
          "  wanted: safetensors, .npz, weights saved by torch.save, MessagePack of Flax, or a "
          "checkpoint of Orbax\n"
          "  cure:   save the arrays in one of these formats, for example as a state_dict");
}

}  // namespace
}  // namespace tessera
