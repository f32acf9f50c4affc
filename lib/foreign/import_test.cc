// Files that NumPy, PyTorch and Flax wrote, and damaged copies of them.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "data/npy_file.h"
#include "foreign/write.h"
#include "tests/cases/source_dir.h"

namespace tessera::checkpoint {
namespace {

std::string golden(const std::string& name) {
  return source_dir() / "tests/peers/golden/foreign" / name;
}

using Arrays = std::map<std::string, Array>;

Arrays imported(const std::string& path, std::vector<FileTensor>* left = nullptr) {
  Arrays arrays;
  for (const auto& [name, x] : import_arrays(path, {.f16_as_f32 = true, .left = left})) {
    arrays[name] = x;
  }
  return arrays;
}

std::vector<float> eighths() {
  std::vector<float> values;
  for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8);
  return values;
}

void expect_arrays(const Arrays& arrays, const std::string& kernel, const std::string& bias) {
  EXPECT_EQ(arrays.at(kernel).shape(), (Shape{3, 4}));
  EXPECT_EQ(arrays.at(kernel).to_vector<float>(), eighths());
  EXPECT_EQ(arrays.at(bias).to_vector<float>(), (std::vector<float>{1.5, -2, 65504}));
  EXPECT_EQ(arrays.at(kernel).dtype(), DType::f32);
}

TEST(Import, ReadsArraysOfNumPyAndFlax) {
  for (const char* name : {"stored.npz", "deflated.npz", "flax.msgpack"}) {
    std::vector<FileTensor> left;
    const Arrays arrays = imported(golden(name), &left);
    EXPECT_EQ(arrays.size(), 5U) << name;
    expect_arrays(arrays, "dense/kernel", "dense/bias");
    EXPECT_EQ(arrays.at("ids").to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, -2, 3, 4}));
    EXPECT_EQ(arrays.at("mask").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0}));
    EXPECT_EQ(arrays.at("steps").dtype(), DType::i64);
    EXPECT_TRUE(left.empty());
  }
}

TEST(Import, ReadsTensorsOfPyTorch) {
  std::vector<FileTensor> left;
  const Arrays arrays = imported(golden("torch.pt"), &left);
  EXPECT_EQ(arrays.size(), 10U);
  expect_arrays(arrays, "model.dense.kernel", "model.dense.bias");
  const Array& kernel = arrays.at("model.dense.kernel");
  EXPECT_TRUE(array_equal(arrays.at("model.transposed"), transpose(kernel)));
  EXPECT_TRUE(array_equal(arrays.at("model.part"), kernel.slice(0, 1).slice(1, 1, 3)));
  EXPECT_EQ(arrays.at("model.bf16").dtype(), DType::bf16);
  EXPECT_EQ(astype(arrays.at("model.bf16"), DType::f32).to_vector<float>(),
            (std::vector<float>{1, -3}));
  EXPECT_EQ(arrays.at("model.empty").shape(), (Shape{0, 2}));
  EXPECT_EQ(arrays.at("model.scalar").item<float>(), 2.5F);
  EXPECT_EQ(arrays.at("lists.0").to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(arrays.at("model.steps").dtype(), DType::i64);
  EXPECT_TRUE(left.empty());
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/tessera_import_" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Import, RefusesFilesThatAreCutOrChanged) {
  for (const char* name : {"stored.npz", "deflated.npz", "types.npz", "torch.pt", "training4.pt",
                           "views.pt", "kinds.pt", "flax.msgpack"}) {
    const std::string whole = contents(golden(name));
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 10) {
      EXPECT_THROW(imported(written(name, whole.substr(0, size))), UserError) << name << size;
    }
    std::uint32_t random = 1;
    for (int i = 0; i < 100; ++i) {
      std::string changed = whole;
      for (int k = 0; k < 2; ++k) {
        random = random * 1664525 + 1013904223;
        changed[(random >> 8) % whole.size()] = static_cast<char>(random >> 3);
      }
      try {
        imported(written(name, changed));  // is either read or refused with UserError
      } catch (const UserError&) {
        continue;
      }
    }
  }
}

TEST(Import, RefusesOldFilesOfPyTorch) {
  EXPECT_THROW(imported(written("old.pt", "\x80\x02\x8a\x0a")), UserError);
}

TEST(Import, RunsNothing) {
  const std::string path = golden("runs.pt");
  try {
    imported(path);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().found, path +
                                         ": the pickle calls posix.system, which is not run, and "
                                         "has no tensors outside of such calls");
  }
}

std::map<std::string, std::string> problems_of(const std::vector<FileTensor>& left) {
  std::map<std::string, std::string> problems;
  for (const FileTensor& tensor : left) {
    problems[tensor.name + " " + tensor.dtype + to_string(tensor.shape)] = tensor.problem;
  }
  return problems;
}

/// The error for arrays that are asked for by name.
std::string refusal(const std::string& path, const std::vector<std::string>& names) {
  try {
    import_arrays(path, {.names = names});
    return {};
  } catch (const UserError& error) {
    return error.mistake().what + "; " + error.mistake().found;
  }
}

TEST(Import, ReadsTheTensorsBesideOtherValues) {
  for (const char* name : {"training2.pt", "training4.pt"}) {
    std::vector<FileTensor> left;
    const Arrays arrays = imported(golden(name), &left);
    ASSERT_EQ(arrays.size(), 5U) << name;
    EXPECT_EQ(arrays.at("history").to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2}));
    // numpy.random.RandomState(0).get_state()[1]
    EXPECT_EQ(arrays.at("random.1.1").shape(), Shape{624});
    EXPECT_EQ(arrays.at("random.1.1").slice(0, 2, 3).item<std::uint32_t>(), 1812433255U) << name;
    const Array ones_of_2 = array<float>({1, 1});
    EXPECT_TRUE(
        array_equal(arrays.at("model.weight"), reshape(arange(0, 6, 1, DType::f32), {2, 3})))
        << name;
    EXPECT_TRUE(array_equal(arrays.at("optimizer.state.0.momentum_buffer"), ones({2, 3})));
    EXPECT_TRUE(array_equal(arrays.at("by_name.hidden.0"), ones_of_2)) << name;
    const std::string call = "it is inside a call of argparse.Namespace, which is not run";
    EXPECT_EQ(problems_of(left),
              (std::map<std::string, std::string>{
                  {"arguments.2.start F32[2,3]", call},
                  {"? F32[1]", "its key is neither a string nor a whole number"}}))
        << name;
    EXPECT_EQ(refusal(golden(name), {"arguments.2.start"}),
              "import_arrays: this tensor cannot be read; arguments.2.start F32[2,3]: " + call);
  }
}

TEST(Import, ReadsTensorsThatAreStoredInOtherWays) {
  EXPECT_EQ(imported(golden("negated.pt")).at("negated").to_vector<float>(),
            (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(imported(golden("big.pt")).at("x").to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, -2, 3, 1 << 20}));
}

TEST(Import, ReadsViewsOfAnyStrides) {
  const Arrays arrays = imported(golden("views.pt"));
  ASSERT_EQ(arrays.size(), 14U);
  for (const auto& [name, x] : arrays) {
    if (name.starts_with("copies.")) continue;
    EXPECT_TRUE(array_equal(x, arrays.at("copies." + name))) << name;
  }
  EXPECT_EQ(arrays.at("expanded").to_vector<int>(), std::vector<int>(6, 5));
}

TEST(Import, SaysWhichKindsOfTensorsItLeavesOut) {
  std::vector<FileTensor> left;
  const Arrays arrays = imported(golden("kinds.pt"), &left);
  ASSERT_EQ(arrays.size(), 2U);
  EXPECT_EQ(arrays.at("buffer").to_vector<float>(), (std::vector<float>{0, 1, 2}));
  const std::string quantised = "it is quantised; save x.dequantize() instead";
  const std::string sparse = "it is sparse; save x.to_dense() instead";
  const std::string meta = "it is on the device `meta`, so it has no elements";
  const std::string dtype = "arrays cannot have this dtype";
  EXPECT_EQ(
      problems_of(left),
      (std::map<std::string, std::string>{
          {"quantised QInt8Storage[2,3]", quantised},
          {"channels QUInt8Storage[2,3]", quantised},
          {"sparse F32[3,3]", sparse},
          {"rows F32[3,3]", sparse},
          {"meta F64[2,3]", meta},
          {"parameter F64[2,3]", meta},
          {"complex ComplexFloatStorage[2]", dtype},
          {"float8 float8_e5m2[2]", dtype},
          {"hidden.2.m F64[2,3]", "it is inside a call of argparse.Namespace, which is not run"}}));
  EXPECT_EQ(refusal(golden("kinds.pt"), {"sparse"}),
            "import_arrays: this tensor cannot be read; sparse F32[3,3]: " + sparse);
}

TEST(Import, LeavesOtherTypesOfNumPy) {
  std::vector<FileTensor> left;
  const std::string path = golden("types.npz");
  EXPECT_EQ(imported(path, &left).size(), 1U);
  const std::string problem = "arrays cannot have this dtype";
  EXPECT_EQ(problems_of(left),
            (std::map<std::string, std::string>{{"fields [('a', '<f4'), ('b', '<i4')][2]", problem},
                                                {"names <U2[2]", problem},
                                                {"big >f4[2,2]", problem},
                                                {"complex <c8[1]", problem},
                                                {"object |O[1]", problem},
                                                {"day <M8[D][1]", problem}}));
  EXPECT_EQ(refusal(path, {"weight"}), "");
  EXPECT_EQ(refusal(path, {"weight", "names"}),
            "import_arrays: the dtype of this tensor is not supported; names <U2[2]");
}

// --- files that no program writes

/// Values in the language of pickles.
std::string text_value(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string bytes = "X";
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(size >> 8 * i & 0xFF);
  return bytes + text;
}
/// A call of torch._utils with these arguments.
std::string torch_call(const std::string& function, const std::string& arguments) {
  return "ctorch._utils\n" + function + "\n(" + arguments + "tR";
}
/// A tensor of u8 in the file `0`. Its shape and strides are lists of numbers.
std::string view_value(const std::string& shape, const std::string& strides) {
  const std::string storage =
      "(" + text_value("storage") + "ctorch\nByteStorage\n" + text_value("0") + "NNtQ";
  return torch_call("_rebuild_tensor_v2",
                    storage + std::string("K\0(", 3) + shape + "t(" + strides + "tNN");
}
/// A tensor u8[size] in the file `0`.
std::string bytes_value(const std::string& size) { return view_value(size, "K\1"); }
/// An archive with a pickle and the file `0` of so many bytes.
std::string torch_file(const std::string& name, const std::string& pickle, std::size_t size = 1) {
  std::string archive;
  foreign::ZipWriter zip([&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  zip.add("a/data.pkl", std::as_bytes(std::span(pickle)));
  zip.add("a/data/0", std::vector<std::byte>(size));
  zip.finish();
  return written(name, archive);
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Import, RefusesATensorThatIsRepeatedTooOften) {
  const std::string million("J\x00\x00\x10\x00", 5);
  const auto file_with = [&](int times) {
    const std::string rest = repeated("h\1", times);
    return torch_file("bomb.pt", "]q\2(" + bytes_value(million) + "q\1" + rest + "e.", 1 << 20);
  };
  EXPECT_EQ(imported(file_with(3)).size(), 4U);
  EXPECT_NE(refusal(file_with(3000), {}).find("too often"), std::string::npos);
}

TEST(Import, RefusesViewsThatAreTooLargeOrOutsideTheirStorage) {
  const auto refusal_of = [](const std::string& shape, const std::string& strides) {
    const std::string pickle = "}" + text_value("x") + view_value(shape, strides) + "s.";
    const std::string path = torch_file("view.pt", pickle, 16);
    const std::string text = refusal(path, {});
    const std::string start = "import_arrays: the file cannot be read; " + path + ": ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const std::string zero("K\0", 2), most("J\xff\xff\xff\x7f", 5), mega("J\0\0\x10\0", 5);
  EXPECT_EQ(refusal_of(mega, zero), "");
  EXPECT_EQ(refusal_of("K\4K\4", "K\4K\1"), "");
  EXPECT_EQ(refusal_of("K\4K\5", "K\4K\1"), "x is not inside its storage");
  EXPECT_EQ(refusal_of("K\2K\2", most + most), "x is not inside its storage");
  EXPECT_EQ(refusal_of("K\2K\2", "K\1"), "x is not inside its storage");
  EXPECT_EQ(refusal_of("K\2", "J\xff\xff\xff\xff"),
            "a tensor has a shape that is no list of at most 64 sizes");
  EXPECT_EQ(refusal_of(most, zero),
            "its tensors repeat the same elements too often, for example those of x; save fewer "
            "copies of them");
  EXPECT_EQ(refusal_of(most + most + most, zero + zero + zero), "an array is too large");
}

TEST(Import, RefusesListsThatRepeatEachOther) {
  // Each list has the list before it twice.
  std::string pickle = bytes_value(std::string("K\0", 2)) + "q\1";
  for (char i = 1; i < 23; ++i) {
    pickle += std::string("](h") + i + "h" + i + "eq" + static_cast<char>(i + 1);
  }
  EXPECT_NE(refusal(torch_file("laughs.pt", pickle + "."), {}).find("too often"),
            std::string::npos);
}

TEST(Import, KeepsRepeatedNamesAndParametersSmall) {
  // Each class is named after the class before it: the name would double in length.
  EXPECT_NE(refusal(torch_file("names.pt", "ca\nb\n" + repeated("q\1h\1h\1\x93", 40) + "."), {})
                .find("the name of a class is not a text"),
            std::string::npos);
  // A parameter of what is not a tensor is not copied, but left out.
  const std::string list = "](" + repeated("N", 100'000) + "eq\1";
  const std::string calls = repeated("ctorch._utils\n_rebuild_parameter\nh\1\x85R0", 100'000) +
                            "}" + text_value("x") + bytes_value("K\1") + "s.";
  EXPECT_EQ(imported(torch_file("parameters.pt", list + "0" + calls)).size(), 1U);
}

/// torch.save({"x": Namespace(numpy.array([1, 2], "u1")), "big": numpy.array([1], ">i2")})
TEST(Import, ListsArraysOfNumPyThatItCannotRead) {
  const auto array = [](const std::string& type, const std::string& shape,
                        const std::string& elements) {
    return "cnumpy.core.multiarray\n_reconstruct\n)R(K\1" + shape + "\x85" + "cnumpy\ndtype\n" +
           text_value(type.substr(1)) + "\x85R(K\3" + text_value(type.substr(0, 1)) + "tbK" + '\0' +
           text_value(elements) + "tb";
  };
  const std::string pickle = "}(" + text_value("x") + "cargparse\nNamespace\n" +
                             array("|u1", "K\2", "ab") + "\x85R" + text_value("big") +
                             array(">i2", "K\1", "ab") + text_value("y") +
                             array("|u1", "K\1", "a") + "u.";
  std::vector<FileTensor> left;
  const Arrays arrays = imported(torch_file("numpy.pt", pickle), &left);
  EXPECT_EQ(arrays.size(), 1U);
  EXPECT_EQ(arrays.at("y").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{'a'}));
  EXPECT_EQ(problems_of(left),
            (std::map<std::string, std::string>{
                {"x.1.0 U8[2]", "it is inside a call of argparse.Namespace, which is not run"},
                {"big >i2[1]", "arrays cannot have this dtype"}}));
}

/// 1.5F as an array without dimensions, in an extension of 16 bytes.
std::string scalar_of_flax(char kind) {
  return std::string("\xd8") + kind + "\x93\x90\xa7" + "float32" +
         std::string("\xc4\x04\0\0\xc0\x3f", 6);
}

std::string name_clash(const std::string& path) {
  const std::string what = "import_arrays: two arrays of the file have the same name; ";
  const std::string text = refusal(path, {});
  return text.starts_with(what) ? text.substr(what.size() + path.size()) : text;
}

TEST(Import, RefusesKeysThatGiveTheSameName) {
  const std::string x = bytes_value("K\1");
  const std::string number = "K\1" + x + text_value("1") + x;
  EXPECT_EQ(name_clash(torch_file("number.pt", "}(" + number + "u.")), " with two arrays `1`");
  const std::string dot =
      text_value("a.b") + x + text_value("a") + "}(" + text_value("b") + x + "u";
  EXPECT_EQ(name_clash(torch_file("dot.pt", "}(" + dot + "u.")), " with two arrays `a.b`");
  const std::string slash = "\x82\xa3" + std::string("a/b") + scalar_of_flax(1) + "\xa1" + "a" +
                            "\x81\xa1" + "b" + scalar_of_flax(1);
  EXPECT_EQ(name_clash(written("slash.msgpack", slash)), " with two arrays `a/b`");
}

TEST(Import, TakesTheLastOfEqualFiles) {
  std::string archive;
  foreign::ZipWriter zip([&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  for (const std::int32_t value : {1, 2}) {
    const std::string file = data::npy_bytes(scalar(value));
    zip.add("x.npy", std::as_bytes(std::span(file)));
  }
  zip.finish();
  EXPECT_EQ(imported(written("twice.npz", archive)).at("x").item<int>(), 2);
}

TEST(Import, ReadsNumbersOfNumPyInMessagePack) {
  const Arrays arrays = imported(written("scalar.msgpack", "\x81\xa1s" + scalar_of_flax(3)));
  EXPECT_EQ(arrays.at("s").shape(), Shape{});
  EXPECT_EQ(arrays.at("s").item<float>(), 1.5F);
}

TEST(Import, SaysWhatToDoWithOtherFiles) {
  EXPECT_EQ(refusal(written("x.npy", data::npy_bytes(scalar(1))), {}).substr(0, 54),
            "import_arrays: the file has one array without a name; ");
}

}  // namespace
}  // namespace tessera::checkpoint
