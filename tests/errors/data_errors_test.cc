// Mistakes in files of data and in streams of records.
#include <gtest/gtest.h>

#include <tessera/data.h>

#include "tests/data/cifar_folder.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using data::Record;

/// Runs each test in a working folder below the temporary folder.
class DataFileErrors : public ::testing::Test {
 protected:
  DataFileErrors() : before_(fs::current_path()) {
    fs::create_directories(::testing::TempDir() + "data_errors");
    fs::current_path(::testing::TempDir() + "data_errors");
    fs::remove_all("set");
  }
  ~DataFileErrors() override { fs::current_path(before_); }
  static void write_set(const std::string& test_batch) {
    testing::write_cifar_folder("set", testing::CifarLayout::binary, 2);
    testing::write_file("set/test_batch.bin", test_batch);
  }
  static void write_pickle(const std::string& bytes) {
    testing::write_cifar_folder("set", testing::CifarLayout::python, 2);
    testing::write_file("set/test_batch", bytes);
  }
  static std::string text_of(data::Split split) {
    return caught([&] { data::cifar10("set", split); }).text;
  }

 private:
  fs::path before_;
};

data::Dataset numbers(std::int64_t count) {
  return data::sequences(
      data::Tokens(std::vector<std::int32_t>(static_cast<std::size_t>(count)), 1));
}

TEST_F(DataFileErrors, FolderWithoutTheSet) {
  fs::create_directories("set");
  EXPECT_EQ(text_of(data::Split::train),
            "cifar10: the folder does not hold the data set\n"
            "  where:  <this line>\n"
            "  found:  set: neither data_batch_1.bin nor data_batch_1\n"
            "  wanted: the files of CIFAR-10 in their binary or Python layout\n"
            "  cure:   unpack cifar-10-binary.tar.gz there, or give the folder that has the files");
}

TEST_F(DataFileErrors, OneFileIsMissing) {
  write_set(testing::cifar_binary(0, 2));
  fs::remove("set/data_batch_3.bin");
  EXPECT_EQ(text_of(data::Split::train),
            "cifar10: the file cannot be read\n"
            "  where:  <this line>\n"
            "  found:  set/data_batch_3.bin: No such file or directory\n"
            "  wanted: all files of the data set\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, FileIsCutOff) {
  write_set(testing::cifar_binary(0, 2).substr(0, 4000));
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: the file is not in the format of CIFAR-10\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch.bin at byte 4000: the end of the file\n"
            "  wanted: records of 3073 bytes: a label and the planes of an image\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, LabelOutOfRange) {
  std::string file = testing::cifar_binary(0, 2);
  file[3073] = 10;
  write_set(file);
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: a label is out of range\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch.bin: image 1 with the label 10\n"
            "  wanted: labels from 0 to 9\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, NothingToValidateWith) {
  testing::write_cifar_folder("set", testing::CifarLayout::binary, 1);
  EXPECT_EQ(text_of(data::Split::validation),
            "cifar10: there are too few images to hold some back for validation\n"
            "  where:  <this line>\n"
            "  found:  set with 5 training images\n"
            "  wanted: at least 10\n"
            "  cure:   use a larger data set");
}

TEST_F(DataFileErrors, PickleThatRunsACommand) {
  write_pickle("cos\nsystem\nU\x04true\x85R.");
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: the file is not in the format of CIFAR-10\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch: a call of os.system, which is not run\n"
            "  wanted: a dict with `data`, an array [n,3072] of bytes, and `labels`, a list of n "
            "numbers\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, PickleWithoutImages) {
  write_pickle("\x80\x02}.");
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: the file is not in the format of CIFAR-10\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch: no array `data` of bytes\n"
            "  wanted: a dict with `data`, an array [n,3072] of bytes, and `labels`, a list of n "
            "numbers\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, PickleWithAnUnknownOperation) {
  write_pickle("\x80\x02\x97.");
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: the file is not in the format of CIFAR-10\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch: at byte 2 of the pickle: it has an operation that does not "
            "describe data: 151\n"
            "  wanted: a dict with `data`, an array [n,3072] of bytes, and `labels`, a list of n "
            "numbers\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, PickleIsCutOff) {
  write_pickle("\x80\x02}q\x01(U\x05lab");
  EXPECT_EQ(text_of(data::Split::test),
            "cifar10: the file is not in the format of CIFAR-10\n"
            "  where:  <this line>\n"
            "  found:  set/test_batch: at byte 6 of the pickle: it is cut off\n"
            "  wanted: a dict with `data`, an array [n,3072] of bytes, and `labels`, a list of n "
            "numbers\n"
            "  cure:   unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again");
}

TEST_F(DataFileErrors, NpyOfAnotherType) {
  testing::write_file("x.npy", std::string("\x93NUMPY\x01\x00\x3c\x00", 10) +
                                   "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }  \n");
  EXPECT_EQ(
      caught([] { data::npy("x.npy"); }).text,
      "npy: the file cannot be read as an array\n"
      "  where:  <this line>\n"
      "  found:  x.npy at byte 10: the type `<f8`\n"
      "  wanted: an array of |u1, <i4 or <f4 with at least one dimension\n"
      "  cure:   write it with numpy.save(path, array.astype(\"<f4\")), or as \"<i4\" or \"|u1\"");
}

TEST_F(DataFileErrors, NpyOfComplexNumbers) {
  testing::write_file("x.npy", std::string("\x93NUMPY\x01\x00\x3c\x00", 10) +
                                   "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }  \n");
  EXPECT_EQ(caught([] { data::npy("x.npy"); }).text,
            "npy: the file cannot be read as an array\n"
            "  where:  <this line>\n"
            "  found:  x.npy at byte 10: the type `<c8`\n"
            "  wanted: an array of |u1, <i4 or <f4 with at least one dimension\n"
            "  cure:   save two arrays: array.real and array.imag");
}

TEST_F(DataFileErrors, NpyOfASingleNumber) {
  testing::write_file("x.npy", std::string("\x93NUMPY\x01\x00\x3a\x00", 10) +
                                   "{'descr': '<f4', 'fortran_order': False, 'shape': (), }  \n" +
                                   std::string(4, '\0'));
  EXPECT_EQ(caught([] { data::npy("x.npy"); }).text,
            "npy: the file cannot be read as an array\n"
            "  where:  <this line>\n"
            "  found:  x.npy at byte 10: a single number\n"
            "  wanted: an array of |u1, <i4 or <f4 with at least one dimension\n"
            "  cure:   write it with numpy.save(path, numpy.atleast_1d(array))");
}

TEST_F(DataFileErrors, NpyThatIsCut) {
  testing::write_file("x.npy", std::string("\x93NUMPY\x01\x00\x3c\x00", 10) +
                                   "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }  \n");
  EXPECT_EQ(caught([] { data::npy("x.npy"); }).text,
            "npy: the file cannot be read as an array\n"
            "  where:  <this line>\n"
            "  found:  x.npy at byte 70: 0 bytes of data, 4 in the header\n"
            "  wanted: an array of |u1, <i4 or <f4 with at least one dimension\n"
            "  cure:   write the file again with NumPy");
}

TEST_F(DataFileErrors, ArrayRecordOfAnotherFormat) {
  testing::write_file("x.array_record", std::string(200000, 'x'));
  EXPECT_EQ(caught([] { data::array_record("x.array_record"); }).text,
            "array_record: the file is damaged\n"
            "  where:  <this line>\n"
            "  found:  x.array_record at byte 0: the header of a chunk with a wrong checksum\n"
            "  wanted: an ArrayRecord file as its writer left it\n"
            "  cure:   copy or write the file again");
}

TEST_F(DataFileErrors, ArrayRecordIsMissing) {
  EXPECT_EQ(caught([] { data::array_record("nothing.array_record"); }).text,
            "array_record: the file cannot be opened\n"
            "  where:  <this line>\n"
            "  found:  nothing.array_record: No such file or directory\n"
            "  wanted: a readable ArrayRecord file\n"
            "  cure:   check the path");
}

TEST(StreamErrors, SeedIsNegative) {
  EXPECT_EQ(caught([] { data::shuffle(-1); }).text,
            "shuffle: the seed does not fit in u32\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: 0 to 4294967295\n"
            "  cure:   pass a smaller number, for example 12");
}

TEST(StreamErrors, NoEpochs) {
  EXPECT_EQ(caught([] { data::repeat(0); }).text,
            "repeat: the number of epochs is not valid\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: at least 1, or data::endless\n"
            "  cure:   write data::repeat() for an endless stream");
}

TEST(StreamErrors, NoSuchShard) {
  EXPECT_EQ(caught([] { data::shard(4, 4); }).text,
            "shard: there is no such shard\n"
            "  where:  <this line>\n"
            "  found:  shard 4 of 4\n"
            "  wanted: 0 <= index < num_shards\n"
            "  cure:   count shards from 0: data::shard(process_index(), process_count())");
}

TEST(StreamErrors, MoreShardsThanRecords) {
  EXPECT_EQ(caught([] { numbers(3) | data::shard(0, 4); }).text,
            "shard: some shards would be empty\n"
            "  where:  <this line>\n"
            "  found:  3 records in 4 shards\n"
            "  wanted: at least one record in each shard\n"
            "  cure:   use fewer shards or more data");
}

TEST(StreamErrors, BatchIsEmpty) {
  EXPECT_EQ(caught([] { data::batch(0); }).text,
            "batch: the size or the number of threads is not valid\n"
            "  where:  <this line>\n"
            "  found:  size 0, 1 workers\n"
            "  wanted: a size of at least 1 and 0 to 1024 workers\n"
            "  cure:   write for example data::batch(128)");
}

TEST(StreamErrors, BatchIsLargerThanTheData) {
  EXPECT_EQ(caught([] { numbers(3) | data::batch(4, data::drop_remainder); }).text,
            "batch: the batch is larger than the data\n"
            "  where:  <this line>\n"
            "  found:  batches of 4 from 3 records\n"
            "  wanted: at least one whole batch\n"
            "  cure:   use a smaller batch, more epochs, or keep the remainder");
}

TEST(StreamErrors, RecordsOfDifferentShapes) {
  const auto grow = [](Record x) {
    const auto value = std::get<std::vector<std::int32_t>>(x[0].values)[0];
    if (value == 1) x[0] = {.shape = {1}, .values = std::vector<float>{0.5F}};
    return x;
  };
  data::Batches batches =
      data::sequences(data::Tokens({0, 0, 1}, 1)) | data::map(grow) | data::batch(3);
  EXPECT_EQ(caught([&] { batches.next(); }).text,
            "batch: records of different shapes cannot be stacked\n"
            "  found:  i32[1] at position 0 of the stream, f32[1] at position 2\n"
            "  wanted: the same fields, types and shapes in each record\n"
            "  cure:   give them the same shape first: dataset | data::map(...)");
}

TEST(StreamErrors, RecordWithoutItsElements) {
  const auto shorten = [](Record x) {
    x[0].shape = {3};
    return x;
  };
  data::Batches batches =
      data::sequences(data::Tokens({0, 1, 2, 3}, 2)) | data::map(shorten) | data::batch(2);
  EXPECT_EQ(caught([&] { batches.next(); }).text,
            "batch: a field of a record has the wrong number of elements for its shape\n"
            "  found:  i32[3] with 2 elements at position 0 of the stream\n"
            "  wanted: as many elements as the sizes of the shape multiply to\n"
            "  cure:   set shape and values together in the source or in data::map");
}

TEST(StreamErrors, FieldsWithoutASplitDimension) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const std::string line = "  where:  " + line_of(1);
  data::Batches batches = numbers(4) | data::batch(4);
  batches.place(NamedSharding(mesh, P{none, none, "data"}));
  EXPECT_EQ(caught([&] { batches.next(); }).text,
            "make_array_from_callback: the spec has more entries than the array has dimensions\n" +
                line +
                "\n  found:  P(None, None, 'data') for i32[4,1]\n"
                "  wanted: no more entries than dimensions: 2\n"
                "  cure:   drop the extra entries");
}

TEST(StreamErrors, SourceWithoutASize) {
  struct Endless final : data::Source {
    std::int64_t size() const override { return -1; }
    Record read(std::int64_t /*record*/, data::RecordRandom& /*random*/) const override {
      return {};
    }
  };
  EXPECT_EQ(caught([&] { data::Dataset(std::make_shared<Endless>()); }).text,
            "Dataset: the source has no valid number of records\n"
            "  found:  -1\n"
            "  wanted: a source whose size() is 0 or more\n"
            "  cure:   for an endless stream, repeat a source: dataset | data::repeat()");
  EXPECT_EQ(caught([&] { data::Dataset(std::shared_ptr<Endless>()); }).text,
            "Dataset: the source has no valid number of records\n"
            "  found:  no source\n"
            "  wanted: a source whose size() is 0 or more\n"
            "  cure:   for an endless stream, repeat a source: dataset | data::repeat()");
}

TEST(StreamErrors, SeekInAnotherStream) {
  data::Batches batches = numbers(9) | data::shuffle(3) | data::batch(2);
  const data::Position position = (numbers(9) | data::shuffle(4) | data::batch(2)).position();
  EXPECT_EQ(caught([&] { batches.seek(position); }).text,
            "seek: the position belongs to another stream\n"
            "  where:  <this line>\n"
            "  found:  seed 4, shard 0 of 1, 9 records\n"
            "  wanted: seed 3, shard 0 of 1, 9 records\n"
            "  cure:   use the data and the flags of the run that saved it");
}

TEST(StreamErrors, SeekWithAnotherSeedOfRandomNumbers) {
  data::Batches batches = numbers(9) | data::batch(2);
  const data::Position other{.order = {.num_records = 9, .seed = 4, .epochs = 2}};
  const Caught error = caught([&] { batches.seek(other); });
  EXPECT_EQ(error.text,
            "seek: the position belongs to another stream\n"
            "  where:  <this line>\n"
            "  found:  not shuffled, seed 4, shard 0 of 1, 9 records\n"
            "  wanted: not shuffled, seed 0, shard 0 of 1, 9 records\n"
            "  cure:   use the data and the flags of the run that saved it");
  batches.seek({.order = {.num_records = 9, .epochs = 2}});  // a run may go on for longer
}

TEST(StreamErrors, SeekBehindTheEnd) {
  data::Batches batches = numbers(9) | data::batch(2);
  data::Position position = batches.position();
  position.place = 10;
  EXPECT_EQ(caught([&] { batches.seek(position); }).text,
            "seek: the stream ends before the position\n"
            "  where:  <this line>\n"
            "  found:  position 10\n"
            "  wanted: at most 9\n"
            "  cure:   repeat the data at least as often as the run that saved it");
}

TEST(StreamErrors, IntegersOfNoPosition) {
  EXPECT_EQ(
      caught([] {
        data::Position::from_integers(std::vector<std::int64_t>{1, 2});
      }).text,
      "Position: these integers are not a position\n"
      "  where:  <this line>\n"
      "  found:  2 integers: 1 2\n"
      "  wanted: 7 integers: position, number of records, 0 or 1, seed, epochs, shard, shards\n"
      "  cure:   pass what Position::integers() returned");
}

TEST(StreamErrors, ZipOfDifferentSizes) {
  EXPECT_EQ(caught([] { data::zip(numbers(3), numbers(4)); }).text,
            "zip: the numbers of records differ\n"
            "  where:  <this line>\n"
            "  found:  3 and 4 records\n"
            "  wanted: the same number of records in both\n"
            "  cure:   pass files that were written together");
}

TEST(StreamErrors, ZipWithAnOrderOfItsOwn) {
  EXPECT_EQ(caught([] { data::zip(numbers(3), numbers(3) | data::shuffle(1)); }).text,
            "zip: the second data set has an order of its own\n"
            "  where:  <this line>\n"
            "  found:  shuffle, repeat or shard before zip\n"
            "  wanted: records in the order in which they are stored\n"
            "  cure:   shuffle the result: zip(first, second) | shuffle(seed)");
}

TEST(StreamErrors, ReadBehindTheEnd) {
  EXPECT_EQ(caught([] { std::ignore = numbers(3).read(3); }).text,
            "Order: the position is not in the stream\n"
            "  where:  <this line>\n"
            "  found:  3\n"
            "  wanted: at least 0 and less than 3\n"
            "  cure:   read positions below size()");
}

TEST(StreamErrors, RecordBeforeTheStream) {
  EXPECT_EQ(caught([] { std::ignore = data::Order{.num_records = 3}.record(-1); }).text,
            "Order: the position is not in the stream\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: at least 0 and less than 3\n"
            "  cure:   read positions below size()");
}

TEST(StreamErrors, DrawFromAnEmptyRange) {
  data::RecordRandom random(1);
  EXPECT_EQ(caught([&] { random.integer(3, 2); }).text,
            "RecordRandom::integer: nothing can be drawn from the range\n"
            "  where:  <this line>\n"
            "  found:  [3, 2]\n"
            "  wanted: low <= high <= low + 4294967295\n"
            "  cure:   pass the smaller number first; both of them can be drawn");
}

TEST(ImageErrors, FlipOfNumbers) {
  data::RecordRandom random(1);
  const data::HostArray numbers{.shape = {2}, .values = std::vector<float>{1, 2}};
  EXPECT_EQ(caught([&] { data::random_horizontal_flip(numbers, random); }).text,
            "random_horizontal_flip: the field is not an image\n"
            "  found:  numbers [2]\n"
            "  wanted: u8[height,width,channels]\n"
            "  cure:   transform images while they are u8, and normalise them last");
}

TEST(ImageErrors, CropOfMoreThanTheImage) {
  data::RecordRandom random(1);
  const data::HostArray image{.shape = {1, 1, 1}, .values = std::vector<std::uint8_t>{1}};
  EXPECT_EQ(
      caught([&] {
        data::random_resized_crop(image, random, {.scale = {1.0, 1.5}});
      }).text,
      "random_resized_crop: the options are not valid\n"
      "  found:  size 32, scale 1.000000 to 1.500000, ratio 0.750000 to 1.333333\n"
      "  wanted: a size of at least 1, 0 < scale <= 1 and 0 < ratio, the smaller bound first\n"
      "  cure:   write for example {.size = 32, .scale = {0.9, 1.0}, .ratio = {0.9, 1.1}}");
}

TEST(ImageErrors, ResizedToNothing) {
  const data::HostArray image{.shape = {1, 1, 1}, .values = std::vector<std::uint8_t>{1}};
  EXPECT_EQ(caught([&] { data::resized(image, 0, 3); }).text,
            "resized: the size is not valid\n"
            "  found:  0 x 3\n"
            "  wanted: a height and a width of 1 to 65536\n"
            "  cure:   pass both in pixels, the height first");
}

TEST(ImageErrors, OneMeanForThreeChannels) {
  const data::HostArray image{.shape = {1, 1, 3}, .values = std::vector<std::uint8_t>{1, 2, 3}};
  const std::vector<double> one = {0.5};
  EXPECT_EQ(
      caught([&] { data::normalised(image, one, one); }).text,
      "normalised: the numbers of means and deviations do not match the channels of the image\n"
      "  found:  1 means and 1 deviations\n"
      "  wanted: 3 of both\n"
      "  cure:   pass one mean and one deviation per channel");
}

/// A tokenizer of the letters a and b.
data::BytePairTokenizer small_tokenizer() {
  const std::string folder = ::testing::TempDir();
  testing::write_file(folder + "small_vocab.json", R"({"a":0,"b":1,"ab":2})");
  testing::write_file(folder + "small_merges.txt", "a b\n");
  return {folder + "small_vocab.json", folder + "small_merges.txt"};
}

TEST(TokenErrors, TextThatIsNotUtf8) {
  const Caught error = caught([&] { small_tokenizer().encode("ab\xc3"); });
  EXPECT_EQ(error.text,
            "BytePairTokenizer: the text is not UTF-8\n"
            "  where:  <this line>\n"
            "  found:  invalid bytes at position 2\n"
            "  wanted: text in UTF-8\n"
            "  cure:   convert it, for example with iconv -t UTF-8");
}

TEST(TokenErrors, ByteWithoutAToken) {
  const Caught error = caught([&] { small_tokenizer().encode("abc"); });
  EXPECT_EQ(error.text,
            "BytePairTokenizer: the vocabulary cannot express this text\n"
            "  where:  <this line>\n"
            "  found:  byte 99, which has no token\n"
            "  wanted: a vocabulary with a token for each of the 256 bytes\n"
            "  cure:   use another vocabulary, or leave the character out");
}

TEST(TokenErrors, IdThatIsNone) {
  const Caught error = caught([&] { small_tokenizer().decode(std::vector<std::int32_t>{3}); });
  EXPECT_EQ(error.text,
            "BytePairTokenizer: the vocabulary does not have this id\n"
            "  where:  <this line>\n"
            "  found:  3\n"
            "  wanted: ids from 0 to 2\n"
            "  cure:   use the vocabulary of the model that made the ids");
}

TEST(StreamErrors, NegativeNumberOfRandomSequences) {
  EXPECT_EQ(caught([] { data::random_tokens(0, -1, 8, 10); }).text,
            "random_tokens: the number of sequences is not valid\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: 0 or more, and at most 2^40 tokens in all\n"
            "  cure:   give the number of sequences, for example 1024");
}

TEST(TokenErrors, SequencesOfNoLength) {
  const std::string wanted =
      "Tokens: the length of the sequences is not positive\n"
      "  where:  <this line>\n"
      "  found:  0\n"
      "  wanted: 1 or more\n"
      "  cure:   give the number of tokens of one sequence";
  const std::vector<std::int32_t> tokens = {1, 2};
  EXPECT_EQ(caught([&] { data::Tokens(tokens, 0); }).text, wanted);
  const std::vector<std::uint8_t> text = {1, 2};
  EXPECT_EQ(caught([&] { data::consecutive_windows(text, 0); }).text, wanted);
}

TEST(TokenErrors, LastSequenceIsNotWhole) {
  EXPECT_EQ(caught([] {
              data::Tokens({1, 2, 3}, 2);
            }).text,
            "Tokens: the tokens do not divide into whole sequences\n"
            "  where:  <this line>\n"
            "  found:  3 tokens, and sequences of 2\n"
            "  wanted: a number of tokens that is a multiple of the length\n"
            "  cure:   leave out the last 1, or add padding to the last sequence");
}

TEST(TokenErrors, BatchThatDoesNotExist) {
  const data::Tokens tokens({1, 2, 3, 4}, 2);
  EXPECT_EQ(caught([&] { tokens.batch(-3, 3); }).text,
            "Tokens: there is no such batch\n"
            "  where:  <this line>\n"
            "  found:  first = -3, size = 3 of 2 sequences\n"
            "  wanted: first and size of 0 or more, and at least one sequence to take\n"
            "  cure:   count sequences from 0, and give some tokens to the constructor");
  EXPECT_THROW(tokens.batch(0, -2), UserError);
  const data::Tokens none({}, 4);
  EXPECT_THROW(none.batch(0, 2), UserError);
  EXPECT_EQ(none.batch(0, 0).shape(), Shape({0, 4}));
}

TEST(TokenErrors, MergeOfUnknownTokens) {
  const std::string folder = ::testing::TempDir();
  small_tokenizer();
  const std::string merges = folder + "bad_merges.txt";
  testing::write_file(merges, "a b\nb a\n");
  const std::string vocab = folder + "small_vocab.json";
  const Caught error = caught([&] { data::BytePairTokenizer(vocab, merges); });
  EXPECT_EQ(error.text,
            "BytePairTokenizer: the file is damaged or belongs to another tokenizer\n"
            "  where:  <this line>\n"
            "  found:  " +
                merges +
                ": line 2: the vocabulary does not have one of the tokens\n"
                "  wanted: two tokens of the vocabulary on each line\n"
                "  cure:   copy the file again from its source");
}

TEST(TokenErrors, NoMerges) {
  const std::string folder = ::testing::TempDir();
  small_tokenizer();
  const std::string vocab = folder + "small_vocab.json";
  const std::string merges = folder + "no_merges.txt";
  const Caught error = caught([&] { data::BytePairTokenizer(vocab, merges); });
  EXPECT_EQ(error.text,
            "BytePairTokenizer: the file cannot be read\n"
            "  where:  <this line>\n"
            "  found:  " +
                merges +
                ": No such file or directory\n"
                "  wanted: the merges of a tokenizer\n"
                "  cure:   check the path; vocab.json and merges.txt are beside the weights of "
                "GPT-2");
}

}  // namespace
}  // namespace tessera
