// safetensors files, and checkpoints exported for other frameworks.
#include <algorithm>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_support.h"
#include "foreign/write.h"

namespace tessera::checkpoint {
namespace {

Tree tree_of(const std::vector<NamedArray>& arrays) {
  Tree tree;
  for (const NamedArray& item : arrays) tree[item.name] = item.array;
  return tree;
}

TEST(Safetensors, HasBf16AsItIs) {
  const std::vector<bfloat16> values = {bfloat16(1.5F), bfloat16(-0.0F), bfloat16(0x1p-130F)};
  const std::string path = test_folder() + "/bf16.safetensors";
  write_safetensors(path, {{"x", array(values)}});
  const std::string file = read_file(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string header = file.substr(8, header_bytes);
  EXPECT_EQ(nlohmann::json::parse(header),
            nlohmann::json::parse(R"({"x":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})"));
  ASSERT_EQ(file.size(), 8 + header_bytes + 6);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, file.data() + 8 + header_bytes + 2 * i, sizeof(bits));
    EXPECT_EQ(bits, values[i].bits());
  }
}

TEST(Safetensors, ReadsWhatItWrites) {
  const std::string path = test_folder() + "/all.safetensors";
  const Tree tree = sample_tree();
  write_safetensors(path, named_arrays(tree));
  EXPECT_TRUE(has_same_bits(tree_of(read_safetensors(path)), tree));
  EXPECT_EQ(fs::directory_iterator(fs::path(path).parent_path())->path(), path);
  EXPECT_THROW(write_safetensors(path, {{"a", ones({})}, {"a", ones({})}}), UserError);
  EXPECT_TRUE(has_same_bits(tree_of(read_safetensors(path)), tree));
}

TEST(Safetensors, FollowsLinksAndKeepsPermissions) {
  const std::string folder = test_folder();
  const std::string file = folder + "/there.safetensors";
  write_file(file, "old");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  fs::create_symlink("there.safetensors", folder + "/link");
  const Tree tree = {{"x", ones({3})}};
  write_safetensors(folder + "/link", named_arrays(tree));
  EXPECT_TRUE(fs::is_symlink(folder + "/link"));
  EXPECT_TRUE(has_same_bits(tree_of(read_safetensors(file)), tree));
  EXPECT_EQ(fs::status(file).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

TEST(Safetensors, WritesIntoAPipe) {
  const std::string folder = test_folder();
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Opened for both directions, so that neither side waits for the other.
  const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  const Tree tree = {{"x", ones({3})}, {"y", arange(5)}};
  write_safetensors(pipe, named_arrays(tree));
  EXPECT_TRUE(fs::is_fifo(pipe));
  std::string found(4096, '\0');
  found.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, read(reader, found.data(), found.size()))));
  close(reader);
  write_safetensors(folder + "/file.safetensors", named_arrays(tree));
  EXPECT_EQ(found, read_file(folder + "/file.safetensors"));
}

/// The reason why a header with this text is refused; empty if it is accepted.
std::string refusal(const std::string& json, std::int64_t data_bytes) {
  try {
    parse_header(json, 8 + static_cast<std::int64_t>(json.size()) + data_bytes);
    return {};
  } catch (const BadText& error) {
    return error.what();
  }
}

TEST(Safetensors, RefusesHeadersThatAreWrong) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  EXPECT_EQ(refusal(entry("F32", "[2]", "[0,8]"), 8), "");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"b"}})", 0), "");
  EXPECT_NE(refusal("{", 0).find("it is not valid JSON: "), std::string::npos);
  EXPECT_EQ(refusal("[]", 0), "the header is not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), "__metadata__ is not an object of strings");
  EXPECT_EQ(refusal("{\"__metadata__\":{\"a\":\"b\",\"cafe\":\"caf\xe9\"}}", 0),
            "a string is not UTF-8: \"caf\\ufffd\" in \"cafe\" in \"__metadata__\"");
  EXPECT_EQ(refusal("{\"__metadata__\":{\"a\":\"b\",\"caf\xe9\":\"\"}}", 0),
            "a string is not UTF-8: \"caf\\ufffd\" in \"__metadata__\"");
  EXPECT_EQ(refusal(R"({"x":1})", 0), "the parent of dtype is not an object");
  EXPECT_EQ(refusal(R"({"x":{"dtype":"F32"}})", 0), "the member shape is missing");
  EXPECT_EQ(refusal(entry("F16", "[2]", "[0,4]"), 4), "");
  EXPECT_EQ(refusal(entry("F16", "[2]", "[0,8]"), 8), "data_offsets do not match the shape");
  EXPECT_EQ(refusal(entry("NEW", "[2]", "[0,9]"), 9), "");
  EXPECT_EQ(refusal(entry("F32", "[2]", "[0,4]"), 4), "data_offsets do not match the shape");
  EXPECT_EQ(refusal(entry("F32", "[2]", "[8,0]"), 8), "data_offsets do not match the shape");
  EXPECT_EQ(refusal(entry("F32", "[2]", "[0]"), 8), "data_offsets are not two numbers");
  EXPECT_EQ(refusal(entry("F32", "[-2]", "[0,8]"), 8),
            "a value is not a whole number of 0 or more");
  EXPECT_EQ(refusal(entry("F32", "[4611686018427387904,4,0]", "[0,0]"), 0), "shape is too large");
  EXPECT_EQ(refusal(entry("F32", "[99999999999999999999]", "[0,0]"), 0),
            "a value is not a whole number of 0 or more");
  EXPECT_EQ(refusal(entry("F32", "[2]", "[4,12]"), 12), "the arrays overlap, or leave a gap");
  EXPECT_EQ(refusal(entry("F32", "[2]", "[0,8]"), 9),
            "its arrays have 8 bytes, and 9 follow the header");
  EXPECT_EQ(refusal(R"({"a":1,"a":2})", 0), "the name \"a\" occurs twice");
  EXPECT_EQ(refusal(std::string(200'000, '['), 0), "it is nested too deeply");
}

TEST(Safetensors, RefusesFilesThatAreCut) {
  const std::string path = test_folder() + "/x.safetensors";
  write_safetensors(path, {{"x", ones({4})}});
  const std::string good = read_file(path);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_file(path, good.substr(0, size));
    EXPECT_THROW(read_safetensors(path), UserError) << size;
  }
  write_file(path, good + " ");
  EXPECT_THROW(read_safetensors(path), UserError);
  EXPECT_THROW(read_safetensors(path + ".nowhere"), UserError);
  EXPECT_THROW(read_safetensors(fs::path(path).parent_path().string()), UserError);
}

TEST(Export, WritesWholeArraysWithAnIndex) {
  const std::string folder = test_folder();
  const Mesh mesh = make_mesh({{"a", 3}});
  Tree tree;
  for (const auto& [name, x] : sample_tree()) {
    tree["params/" + name] = x.rank() > 0 ? device_put(x, NamedSharding(mesh, P{"a"})) : x;
  }
  tree["other"] = ones({2});
  save(folder + "/saved", tree);
  export_checkpoint(folder + "/saved", folder + "/all");
  export_checkpoint(folder + "/saved", folder + "/params",
                    {.subtree = "params", .file_bytes = 100'000});
  EXPECT_TRUE(has_same_bits(
      tree_of(read_safetensors(folder + "/all/model-00001-of-00001.safetensors")), tree));
  const auto index =
      nlohmann::json::parse(read_file(folder + "/params/model.safetensors.index.json"));
  Tree found;
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    files.insert(file);
    found[name] = tree_of(read_safetensors(folder + "/params/" + std::string(file))).at(name);
  }
  EXPECT_EQ(files.size(), 3U);
  EXPECT_TRUE(has_same_bits(found, sample_tree()));
}

TEST(Export, TakesFoldersAndSingleArrays) {
  const std::string folder = test_folder();
  save(folder + "/saved", Tree{{"params/layer/w", ones({2})}, {"params/n", scalar(7)}});
  const auto names = [&](const std::string& subtree) {
    fs::remove_all(folder + "/to");
    export_checkpoint(folder + "/saved", folder + "/to", {.subtree = subtree});
    std::vector<std::string> found;
    for (const NamedArray& item : read_safetensors(folder + "/to")) found.push_back(item.name);
    return found;
  };
  EXPECT_EQ(names("params/"), (std::vector<std::string>{"layer/w", "n"}));
  EXPECT_EQ(names("params/layer/w"), std::vector<std::string>{"w"});
}

TEST(Export, WritesAFolderOfZarrArrays) {
  const std::string folder = test_folder();
  save(folder + "/saved", Tree{{"a/w", array<float>({1, 2, 3, 4}, {2, 2})}, {"n", scalar(7)}});
  export_checkpoint(folder + "/saved", folder + "/orbax", {.format = ExportFormat::orbax});
  const auto files = files_below(folder + "/orbax");
  EXPECT_EQ(files.size(), 7U);
  const float values[] = {1, 2, 3, 4};
  EXPECT_EQ(files.at("a.w/0.0"),
            std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  const auto zarray = nlohmann::json::parse(files.at("a.w/.zarray"));
  EXPECT_EQ(zarray["shape"], nlohmann::json({2, 2}));
  EXPECT_EQ(zarray["dtype"], "<f4");
  const auto tree = nlohmann::json::parse(files.at("_METADATA"))["tree_metadata"];
  EXPECT_EQ(tree["('a', 'w')"]["key_metadata"][1]["key"], "w");
  EXPECT_TRUE(tree.contains("('n',)"));
}

TEST(Export, WritesFilesThatImportArraysReads) {
  const std::string folder = test_folder();
  Tree tree = sample_tree();
  for (const DType dtype : kAllDTypes) {
    tree["each/" + std::string(name(dtype))] = astype(arange(6) % 2, dtype);
  }
  tree["each/empty"] = zeros({0, 3});
  save(folder + "/saved", tree);
  const auto imported = [&](ExportFormat format, const std::string& file) {
    const std::string to = folder + "/" + file + ".d";
    export_checkpoint(folder + "/saved", to, {.format = format});
    return tree_of(import_arrays(to + "/" + file));
  };
  EXPECT_TRUE(has_same_bits(imported(ExportFormat::msgpack, "arrays.msgpack"), tree));
  EXPECT_TRUE(has_same_bits(imported(ExportFormat::npz, "arrays.npz"), tree));
  Tree with_dots;
  for (const auto& [path, x] : tree) {
    std::string name = path;
    std::replace(name.begin(), name.end(), '/', '.');
    with_dots[name] = x;
  }
  EXPECT_TRUE(has_same_bits(imported(ExportFormat::torch, "weights.pt"), with_dots));
}

/// The error of exporting arrays with these names; empty if there is none.
std::string export_error(const std::string& folder, ExportFormat format,
                         const std::vector<std::string>& names) {
  Tree tree;
  for (const std::string& name : names) tree[name] = ones({2});
  fs::remove_all(folder + "/to");
  save(folder + "/saved", tree);
  try {
    export_checkpoint(folder + "/saved", folder + "/to", {.format = format});
    return {};
  } catch (const UserError& error) {
    EXPECT_FALSE(fs::exists(folder + "/to"));
    return error.mistake().found + "; " + error.mistake().wanted;
  }
}

TEST(Export, RefusesNamesThatBecomeEqual) {
  const std::string folder = test_folder();
  const std::string dots = "a.b and a/b; paths that differ when dots replace slashes";
  EXPECT_EQ(export_error(folder, ExportFormat::torch, {"a.b", "a/b"}), dots);
  EXPECT_EQ(export_error(folder, ExportFormat::torch, {"a", "a/b"}), "");
  const auto orbax = [&](const std::vector<std::string>& names) {
    return export_error(folder, ExportFormat::orbax, names);
  };
  EXPECT_EQ(orbax({"a.b", "a/b"}), dots);
  EXPECT_EQ(orbax({"a", "a.c", "a/b/c"}), "a and a/b/c; paths none of which continues another");
  for (const std::string name : {"/c", "a//c", ".", "..", "_METADATA"}) {
    EXPECT_EQ(orbax({name}), "the path `" + name + "`; paths whose keys can name a folder");
  }
  EXPECT_EQ(orbax({std::string(256, 'x')}),
            std::string(64, 'x') + "... of 256 bytes; paths of at most 255 bytes");
  EXPECT_EQ(orbax({std::string(255, 'x'), ".a/b", "a.c/d"}), "");
}

TEST(Export, ArchivesOfMoreThanFourGigabytes) {
  const std::string path = test_folder() + "/wide.npz";
  std::string archive;
  const auto append = [&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  foreign::ZipWriter zip(append, /*wide=*/0);  // every file counts as one
  std::string plain;
  const foreign::Source source{.name = "x", .type = {DType::u8, {3}}, .elements = [] {
                                 return std::vector<std::byte>(3, std::byte{7});
                               }};
  foreign::write_npz({source}, [&](std::span<const std::byte> bytes) {
    plain.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  const std::string npy = plain.substr(30 + 5, 128 + 3);
  zip.add("x.npy", std::as_bytes(std::span(npy)));
  zip.add("y.npy", std::as_bytes(std::span(npy)));
  zip.finish();
  write_file(path, archive);
  const Array x = array<std::uint8_t>({7, 7, 7});
  EXPECT_TRUE(has_same_bits(tree_of(import_arrays(path)), {{"x", x}, {"y", x}}));
}

TEST(Export, LeavesWhatIsThere) {
  const std::string folder = test_folder();
  save(folder + "/saved", sample_tree());
  write_file(folder + "/taken", "mine");
  const auto before = files_below(folder);
  EXPECT_THROW(export_checkpoint(folder + "/saved", folder + "/taken"), UserError);
  EXPECT_THROW(export_checkpoint(folder + "/saved", folder + "/new", {.subtree = "nothing"}),
               UserError);
  EXPECT_EQ(files_below(folder), before);
}

}  // namespace
}  // namespace tessera::checkpoint
