// CIFAR-10 in both layouts, .npy and ArrayRecord files.
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "data/npy_file.h"
#include "tests/data/cifar_folder.h"
#include "tests/peers/golden.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CifarLayout;
using Bytes = std::vector<std::uint8_t>;
using Values = std::vector<std::int32_t>;

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + name;
  testing::write_file(path, bytes);
  return path;
}

std::string cifar_folder(CifarLayout layout, std::size_t count) {
  const std::string path = ::testing::TempDir() + "cifar_" +
                           (layout == CifarLayout::binary ? "bin" : "py") + std::to_string(count);
  testing::write_cifar_folder(path, layout, count);
  return path;
}

Record record(const Dataset& dataset, std::int64_t i) { return dataset.read(i); }

/// The number of the generated image that a record holds. Checks all pixels of the record.
std::size_t number_of(const Record& x) {
  const auto& pixels = std::get<Bytes>(x[0].values);
  EXPECT_EQ(x[0].shape, (Shape{32, 32, 3}));
  EXPECT_EQ(x[1].shape, Shape{});
  std::size_t n = 0;
  while (testing::cifar_byte(n, 0) != pixels[0] || testing::cifar_byte(n, 1) != pixels[3] ||
         testing::cifar_label(n) != std::get<Values>(x[1].values)[0]) {
    ++n;
  }
  for (std::size_t i = 0; i < 3072; ++i) {
    EXPECT_EQ(pixels[i % 1024 * 3 + i / 1024], testing::cifar_byte(n, i));
  }
  return n;
}

TEST(Cifar10, BothLayoutsHoldTheSameImages) {
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    const Dataset binary = cifar10(cifar_folder(CifarLayout::binary, 12), split);
    const Dataset python = cifar10(cifar_folder(CifarLayout::python, 12), split);
    ASSERT_EQ(binary.size(), split == Split::train ? 54 : split == Split::validation ? 6 : 12);
    ASSERT_EQ(python.size(), binary.size());
    for (std::int64_t i = 0; i < binary.size(); ++i) {
      const std::size_t n = number_of(record(binary, i));
      EXPECT_EQ(n, number_of(record(python, i)));
      EXPECT_EQ(n >= 60, split == Split::test);
    }
  }
}

TEST(Cifar10, ValidationIsWhatIsNotTrainedOn) {
  const std::string folder = cifar_folder(CifarLayout::binary, 20);
  std::set<std::size_t> train;
  std::set<std::size_t> validation;
  const Dataset large = cifar10(folder, Split::train);
  const Dataset small = cifar10(folder, Split::validation);
  for (std::int64_t i = 0; i < large.size(); ++i) train.insert(number_of(record(large, i)));
  for (std::int64_t i = 0; i < small.size(); ++i) validation.insert(number_of(record(small, i)));
  EXPECT_EQ(train.size(), 90U);
  EXPECT_EQ(validation.size(), 10U);
  for (const std::size_t n : validation) EXPECT_FALSE(train.contains(n));
  EXPECT_GT(*validation.begin(), 0U);
  EXPECT_LT(*validation.begin(), 60U) << "they come from everywhere";
}

TEST(Cifar10, FindsTheUsualSubfoldersAndNames) {
  const fs::path folder = ::testing::TempDir() + "cifar_parent";
  testing::write_cifar_folder(folder / "cifar-10-batches-py", CifarLayout::python, 2);
  EXPECT_EQ(cifar10(folder.string(), Split::test).size(), 2);
  EXPECT_EQ(cifar10_classes(folder.string())[9], "9");
  testing::write_file(folder / "cifar-10-batches-py/batches.meta",
                      "\x80\x02}q\x01" + testing::pickled_text("label_names") + "]q\x02(" +
                          testing::pickled_text("airplane") + "q\x03" +
                          testing::pickled_text("automobile") + "es.");
  EXPECT_EQ(cifar10_classes(folder.string())[1], "automobile");
  EXPECT_EQ(cifar10_classes(folder.string())[2], "2");
  const std::string binary = cifar_folder(CifarLayout::binary, 3);
  testing::write_file(binary + "/batches.meta.txt", "airplane\nautomobile\n\n");
  EXPECT_EQ(cifar10_classes(binary)[0], "airplane");
  EXPECT_EQ(cifar10_classes(binary)[9], "9");
}

TEST(Cifar10, EveryCutOffFileIsRefused) {
  const std::string binary = cifar_folder(CifarLayout::binary, 4);
  const std::string python = cifar_folder(CifarLayout::python, 4);
  const std::string whole_binary = testing::cifar_binary(0, 4);
  const std::string whole_python = testing::cifar_python(0, 4);
  for (std::size_t size = 0; size < whole_binary.size(); size += 97) {
    testing::write_file(binary + "/test_batch.bin", whole_binary.substr(0, size));
    EXPECT_THROW(cifar10(binary, Split::test), UserError) << size;
  }
  for (std::size_t size = 0; size < whole_python.size(); size += size < 400 ? 1 : 53) {
    testing::write_file(python + "/test_batch", whole_python.substr(0, size));
    EXPECT_THROW(cifar10(python, Split::test), UserError) << size;
  }
  fs::remove(python + "/data_batch_4");
  EXPECT_THROW(cifar10(python, Split::train), UserError);
}

TEST(Cifar10, ReadsEveryProtocolOfPickle) {
  const std::string folder = cifar_folder(CifarLayout::python, 3);
  std::set<Bytes> found;
  for (const json& item : data_golden().at("pickles")) {
    testing::write_file(folder + "/test_batch", from_hex(item.at("bytes")));
    const Dataset images = cifar10(folder, Split::test);
    ASSERT_EQ(images.size(), 3) << item.at("protocol");
    const Record last = record(images, 1);
    EXPECT_EQ(std::get<Values>(last[1].values), Values{9});
    found.insert(std::get<Bytes>(last[0].values));
  }
  EXPECT_EQ(found.size(), 1U) << "the same pixels in all protocols";
}

TEST(Npy, RefusesElementsOfSeveralFields) {
  std::string bytes = npy_bytes(arange(4));
  bytes.replace(bytes.find("'<i4'"), 5, "[('', '<i4')]");
  bytes.erase(bytes.find("        "), 8);  // the header keeps its size
  try {
    read_npy(written("x.npy", bytes));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(error.mistake().found.find("the type `[('', '<i4')]"), std::string::npos);
  }
}

/// The header that NumPy writes for
/// numpy.zeros((2, 3), [("shape", "<f4", (2,)), ("fortran_order", "<i4")], order="F").
TEST(Npy, DescribesArraysOfAllTypes) {
  const std::string type = "[('shape', '<f4', (2,)), ('fortran_order', '<i4')]";
  std::string text = "{'descr': " + type + ", 'fortran_order': True, 'shape': (2, 3), }";
  text.resize(0xb6, ' ');
  const std::string file = std::string("\x93NUMPY\x01\x00\xb6\x00", 10) + text;
  const NpyReader reader{.types = {"<f4"}, .wanted = "f32", .cure = "save it as f32"};
  const NpyHeader header = npy_header(
      {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "x.npy", reader);
  EXPECT_EQ(header.type, type);
  EXPECT_FALSE(reader.takes(header.type));
  EXPECT_TRUE(header.is_column_major);
  EXPECT_EQ(header.shape, (Shape{2, 3}));
  EXPECT_EQ(header.begin, file.size());
}

TEST(Npy, ReadsTheTypesOfBatches) {
  for (const json& item : data_golden().at("npys")) {
    const std::string bytes = from_hex(item.at("bytes"));
    const Dataset dataset = npy(written("x.npy", bytes));
    ASSERT_EQ(dataset.size(), 4);
    const Record last = record(dataset, 3);
    EXPECT_EQ(last[0].shape, (Shape{3, 2}));
    const std::size_t type = last[0].values.index();
    EXPECT_EQ(item.at("dtype"), (std::vector<std::string>{"|u1", "<i4", "<f4"})[type]);
    std::vector<double> values;
    std::visit([&](const auto& x) { values.assign(x.begin(), x.end()); }, last[0].values);
    const double shift = type == 0 ? 0 : 7;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(values[i], static_cast<double>((18 + i) * 5) - shift);
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(npy(written("cut.npy", bytes.substr(0, size))), UserError) << size;
    }
    EXPECT_THROW(npy(written("long.npy", bytes + "x")), UserError);
  }
}

TEST(Npy, IsWrittenAsNumpyWritesIt) {
  for (const json& item : data_golden().at("npys")) {
    if (item.at("dtype") == "|u1") continue;
    const std::string bytes = from_hex(item.at("bytes"));
    EXPECT_EQ(npy_bytes(read_npy(written("x.npy", bytes))), bytes);
  }
  for (const DType dtype : {DType::boolean, DType::i32, DType::u32, DType::f32}) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3, 4}, Shape{0, 3}, Shape{3, 0}}) {
      const Array x = astype(reshape(arange(num_elements(shape)), shape) > 1, dtype);
      const Array again = read_npy(written("x.npy", npy_bytes(x)));
      EXPECT_EQ(again.type(), x.type());
      EXPECT_EQ(npy_bytes(again), npy_bytes(x)) << to_string(x.type());
    }
  }
}

/// NumPy saves a transposed array in column-major order.
TEST(Npy, ReadsColumnMajorArrays) {
  const Array x = reshape(arange(24), {2, 3, 4});
  const std::string rows = npy_bytes(x);
  // The transpose of the reversed shape has the same elements in memory.
  std::string columns = npy_bytes(transpose(x, {2, 1, 0}));
  columns.replace(columns.find("(4, 3, 2)"), 9, "(2, 3, 4)");
  columns.replace(columns.find("False, "), 7, "True,  ");
  EXPECT_EQ(npy_bytes(read_npy(written("x.npy", columns))), rows);
  EXPECT_EQ(
      std::get<std::vector<std::int32_t>>(record(npy(written("y.npy", columns)), 1)[0].values),
      std::get<std::vector<std::int32_t>>(record(npy(written("z.npy", rows)), 1)[0].values));
}

TEST(Zip, PutsFieldsTogether) {
  const json& npys = data_golden().at("npys");
  const Dataset images = npy(written("images.npy", from_hex(npys[0].at("bytes"))));
  const Dataset labels = npy(written("labels.npy", from_hex(npys[1].at("bytes"))));
  Batches batches = zip(images, labels) | shuffle(3) | batch(4);
  const auto fields = batches.next();
  ASSERT_EQ(fields->size(), 2U);
  const auto first = fields->at(0).to_vector<std::int32_t>();
  const auto second = fields->at(1).to_vector<std::int32_t>();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i], second[i] + 7);
}

/// The bytes of the file of one golden case.
std::string array_record_file(const json& item) {
  std::string bytes(item.at("size_bytes").get<std::size_t>(), '\0');
  for (const json& part : item.at("parts")) {
    const std::string filled = from_hex(part[1]);
    bytes.replace(part[0].get<std::size_t>(), filled.size(), filled);
  }
  return bytes;
}

TEST(ArrayRecord, ReadsWhatItsWriterWrites) {
  int read = 0;
  for (const json& item : data_golden().at("array_records")) {
    SCOPED_TRACE(item.at("options"));
    const std::string path = written("x.array_record", array_record_file(item));
    if (item.at("options") == "group_size:1,brotli:5") {
      EXPECT_THROW(array_record(path).read(0), UserError);
      continue;
    }
    ++read;
    const Dataset dataset = array_record(path);  // one has no records
    const auto count = item.at("count").get<std::int64_t>();
    const auto size = item.at("record_bytes").get<std::size_t>();
    ASSERT_EQ(dataset.size(), count);
    for (std::int64_t i = count - 1; i >= 0; --i) {
      Bytes want(size);
      for (std::size_t j = 0; j < size; ++j) {
        if (j % 5000 >= 300) continue;
        want[j] = static_cast<std::uint8_t>((static_cast<std::size_t>(i) * 7 + j * 3) % 251);
      }
      const Record x = record(dataset, i);
      ASSERT_EQ(x[0].shape, (Shape{static_cast<std::int64_t>(size)}));
      ASSERT_EQ(std::get<Bytes>(x[0].values), want) << i;
    }
  }
  EXPECT_EQ(read, 7);
}

TEST(ArrayRecord, EveryFlippedByteThatMattersIsFound) {
  const json& item = data_golden().at("array_records")[0];
  const std::string whole = array_record_file(item);
  // Reading uses the records, and the chunk in the last block that says where they end. It does not
  // use the index of the records, the padding or the block headers.
  constexpr std::size_t kEnd = 0x17b;
  constexpr std::size_t kIndexPlace = 0x10018;
  constexpr std::size_t kPadding = 0x1006c;
  const auto matters = [](std::size_t at) {
    return (at >= 24 && at < kEnd) || (at >= kIndexPlace && at < kPadding);
  };
  int refused = 0;
  for (const json& part : item.at("parts")) {
    const auto begin = part[0].get<std::size_t>();
    for (std::size_t at = begin; at < begin + part[1].get<std::string>().size() / 2; ++at) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
      bool is_refused = false;
      try {
        const Dataset dataset = array_record(written("flipped.array_record", bytes));
        for (std::int64_t i = 0; i < dataset.size(); ++i) record(dataset, i);
      } catch (const UserError&) {
        is_refused = true;
        ++refused;
      }
      EXPECT_EQ(is_refused, matters(at)) << "byte " << at;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(ArrayRecord, EveryCutOffFileIsRefused) {
  const std::string whole = array_record_file(data_golden().at("array_records")[1]);
  for (std::size_t size = 0; size < whole.size(); size += size < 2000 ? 61 : 4099) {
    EXPECT_THROW(array_record(written("cut.array_record", whole.substr(0, size))), UserError)
        << size;
  }
}

}  // namespace
}  // namespace tessera::data
