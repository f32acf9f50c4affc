// Training data: records are read from files, shuffled, augmented and batched ahead of time. The
// stream does not depend on the number of threads.
//
//   auto change = [](data::Record x, data::RecordRandom& random) {
//     x[0] = data::normalised(data::random_horizontal_flip(x[0], random), means, deviations);
//     return x;
//   };
//   auto train = data::cifar10(dir, data::Split::train) | data::shuffle(12) | data::map(change) |
//                data::batch(128, data::drop_remainder);
//   while (auto batch = train.next()) step(batch->at(0), batch->at(1));  // images, labels
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/array.h>
#include <tessera/mesh.h>

namespace TESSERA_EXPORT tessera {
namespace data {
// --- records
/// Row-major elements in host memory.
struct HostArray {
  Shape shape;
  std::variant<std::vector<std::uint8_t>, std::vector<std::int32_t>, std::vector<float>> values;
};
/// The fields of an example, such as an image u8 [height, width, channels] and a label i32 [].
using Record = std::vector<HostArray>;

/// The random numbers of one record: numpy.random.Generator(numpy.random.Philox(key=key)).
class RecordRandom {
 public:
  explicit RecordRandom(std::uint64_t key) : key_(key) {}
  std::uint32_t next_u32();
  std::uint64_t next_u64();
  double random();  // in [0, 1), with 53 bits
  /// In [low, high]. Throws UserError unless low <= high and high - low fits u32.
  std::int64_t integer(std::int64_t low, std::int64_t high,
                       std::source_location where = std::source_location::current());

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
  std::array<std::uint64_t, 4> block_ = {};
  std::size_t used_ = 4;  // how many words of the block are used
  std::optional<std::uint32_t> half_;
};

/// Records that any thread may read in any order. File sources do not use `random`.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::int64_t size() const = 0;
  virtual Record read(std::int64_t record, RecordRandom& random) const = 0;  // record < size()
};

// --- the order of records
inline constexpr std::int64_t endless = -1;

/// The order of Grain's IndexSampler: each epoch has its own permutation of the records of a shard,
/// and a shard is a contiguous range of records. Nothing is stored per record.
struct Order {
  std::int64_t num_records = 0;
  bool is_shuffled = false;
  std::int64_t seed = 0;
  std::int64_t epochs = 1;  // or endless
  std::int64_t shard = 0;
  std::int64_t num_shards = 1;

  std::int64_t shard_size() const;
  std::int64_t size() const;  // of all epochs; INT64_MAX if endless
  bool operator==(const Order&) const = default;
  std::int64_t record(std::int64_t place,  // UserError unless below size()
                      std::source_location where = std::source_location::current()) const;
  /// The key of the random numbers of a record: seed + place * num_shards + shard.
  std::uint64_t random_key(std::int64_t place) const;
};

/// A position in a stream, for saving and restoring.
struct Position {
  std::int64_t place = 0;  // of the next record
  Order order;

  std::array<std::int64_t, 7> integers() const;
  /// Throws UserError for numbers that integers() cannot have returned.
  static Position from_integers(std::span<const std::int64_t> integers,
                                std::source_location where = std::source_location::current());
};

// --- streams
/// Records in a given order.
class Dataset {
 public:
  explicit Dataset(const std::shared_ptr<const Source>& source);
  Dataset(std::shared_ptr<const Source> source, const Order& order);
  const std::shared_ptr<const Source>& source() const { return source_; }
  const Order& order() const { return order_; }
  std::int64_t size() const { return order_.size(); }
  Record read(std::int64_t place,  // a position of the stream; thread-safe
              std::source_location where = std::source_location::current()) const;

 private:
  std::shared_ptr<const Source> source_;
  Order order_;
};

/// What shuffle(), repeat() and shard() return, for `dataset | shuffle(12)`.
struct Reorder {
  std::optional<std::int64_t> seed = {}, epochs = {}, shard = {};
  std::int64_t num_shards = 1;
  std::source_location where;
};
/// A random order. Throws UserError unless the seed fits u32.
Reorder shuffle(std::int64_t seed, std::source_location where = std::source_location::current());
Reorder repeat(std::int64_t epochs = endless,
               std::source_location where = std::source_location::current());
/// One of `num_shards` shards. Throws UserError if there are more shards than records.
Reorder shard(std::int64_t index, std::int64_t num_shards,
              std::source_location where = std::source_location::current());
Dataset operator|(const Dataset& dataset, const Reorder& reorder);

/// A change of records, made by map().
class Change {
 public:
  virtual ~Change() = default;
  virtual Record apply(Record record, RecordRandom& random) const = 0;
};
/// Changes each record by function(record) or function(record, RecordRandom&), called on any
/// thread. The random numbers depend only on the seed and the position in the stream.
template <typename F>
std::shared_ptr<const Change> map(F function) {
  struct Function final : Change {
    explicit Function(F f) : call(std::move(f)) {}
    Record apply(Record record, RecordRandom& random) const override {
      if constexpr (std::is_invocable_v<const F&, Record, RecordRandom&>) {
        return call(std::move(record), random);
      } else {
        return call(std::move(record));
      }
    }
    F call;
  };
  return std::make_shared<Function>(std::move(function));
}
Dataset operator|(const Dataset& dataset, std::shared_ptr<const Change> change);

// --- batches
enum class Remainder : std::uint8_t { keep, drop };
inline constexpr Remainder drop_remainder = Remainder::drop;
/// What batch() returns, for `dataset | batch(128)`.
struct BatchOptions {
  std::int64_t size;
  Remainder remainder;
  int workers;  // threads in addition to the caller's
  std::source_location where;
};
/// Batches of `size` records. The last one may be smaller, unless it is dropped.
BatchOptions batch(std::int64_t size, Remainder remainder = Remainder::keep, int workers = 1,
                   std::source_location where = std::source_location::current());

/// A stream of batches. Its threads prepare two batches ahead. Use it from one thread only.
class Batches {
 public:
  Batches(const Dataset& dataset, const BatchOptions& options);
  Batches(Batches&& other) noexcept;
  Batches& operator=(Batches&& other) noexcept;
  ~Batches();
  std::int64_t size() const;  // INT64_MAX if endless
  /// The next batch: one array per field, with the records along dimension 0; u8 becomes i32. Empty
  /// at the end. If a record cannot be read, this call and all later ones throw that error.
  std::optional<std::vector<Array>> next();
  /// From now on, arrays have this sharding, and each process reads only its own records.
  void place(NamedSharding sharding);
  Position position() const;
  /// Continues at this position. Throws UserError for a position of another stream.
  void seek(const Position& position, std::source_location where = std::source_location::current());

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Batches operator|(const Dataset& dataset, const BatchOptions& options);

// --- files; all throw UserError, with file and offset, for malformed content
/// train: nine tenths of the images in the training files; validation: the remaining tenth. The
/// choice is random but always the same: 50000 images give 45000 and 5000.
enum class Split : std::uint8_t { train, validation, test };
/// A folder with CIFAR-10 in its binary or Python format, directly or in the usual subfolder.
Dataset cifar10(const std::string& folder, Split split,
                std::source_location where = std::source_location::current());
/// The names of the classes; their numbers if the folder has no names.
std::vector<std::string> cifar10_classes(
    const std::string& folder, std::source_location where = std::source_location::current());
/// A NumPy file (.npy) of u8, i32 or f32. Records lie along dimension 0.
Dataset npy(const std::string& path, std::source_location where = std::source_location::current());
/// The records of an ArrayRecord file as u8 [size], uncompressed or compressed by zstd.
Dataset array_record(const std::string& path,
                     std::source_location where = std::source_location::current());
/// Records with the fields of both. Throws UserError for different numbers of records.
Dataset zip(const Dataset& first, const Dataset& second,
            std::source_location where = std::source_location::current());

// --- images, by torchvision's rules and Pillow's arithmetic
HostArray random_horizontal_flip(HostArray image, RecordRandom& random, double probability = 0.5);
struct CropOptions {
  std::int64_t size = 32;  // height and width of the result
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  // width to height
};
/// A part of the image of random size and position, resized.
HostArray random_resized_crop(const HostArray& image, RecordRandom& random,
                              const CropOptions& options = {});
HostArray resized(const HostArray& image, std::int64_t height, std::int64_t width);  // bilinear
/// f32: (x / 255 - mean) / deviation of the channel, computed in f64.
HostArray normalised(const HostArray& image, std::span<const double> means,
                     std::span<const double> deviations);

/// Tokens, cut into sequences of `length`. Throws UserError unless this divides their number.
class Tokens {
 public:
  Tokens(std::vector<std::int32_t> tokens, std::int64_t length,
         std::source_location where = std::source_location::current());
  std::int64_t num_sequences() const;
  std::int64_t length() const { return length_; }
  const std::vector<std::int32_t>& values() const { return tokens_; }
  /// i32 [size, length]: sequences first, first + 1, ..., starting over after the last one.
  /// Throws UserError if a number is negative, or if there are no sequences.
  Array batch(std::int64_t first, std::int64_t size, const NamedSharding& sharding = {},
              std::source_location where = std::source_location::current()) const;

 private:
  std::vector<std::int32_t> tokens_;
  std::int64_t length_;
};
Dataset sequences(Tokens tokens);  // records i32 [length]

/// numpy.random.RandomState(seed). Copies share the state. Each process keeps only its own tiles.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed);
  /// Drawn in f64, then rounded to f32.
  Array standard_normal(const Shape& shape, const NamedSharding& sharding = {});
  /// i32 in [low, high). Throws UserError if the range is empty or exceeds i32.
  Array randint(std::int32_t low, std::int64_t high, const Shape& shape,
                const NamedSharding& sharding = {},
                std::source_location where = std::source_location::current());

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// numpy.random.RandomState(seed).randint(0, vocab, size=(num_sequences, length), dtype=int32).
Tokens random_tokens(std::uint32_t seed, std::int64_t num_sequences, std::int64_t length,
                     std::int32_t vocab,
                     std::source_location where = std::source_location::current());

/// The bytes of a text file, split for training and testing.
struct Text {
  std::vector<std::uint8_t> train;     // the first nine tenths
  std::vector<std::uint8_t> held_out;  // the last tenth, never trained on
};
/// Throws UserError if the file cannot be read, or is too short for two windows of `length` bytes.
Text read_text(const std::string& path, std::int64_t length,
               std::source_location where = std::source_location::current());
/// Consecutive, non-overlapping windows of `length` bytes, in the order of the text.
Tokens consecutive_windows(std::span<const std::uint8_t> text, std::int64_t length,
                           std::source_location where = std::source_location::current());
/// The same sequences, in a random order that depends only on the seed.
Tokens shuffled(const Tokens& tokens, std::uint32_t seed);

/// GPT-2's byte-level tokens, with the ids of Hugging Face's tokenizers; no special tokens.
class BytePairTokenizer {
 public:
  BytePairTokenizer(const std::string& vocab, const std::string& merges,
                    std::source_location where = std::source_location::current());
  std::int64_t size() const;  // all ids are below this
  /// Throws UserError if the text is not UTF-8, or has a byte without a token.
  std::vector<std::int32_t> encode(
      std::string_view text, std::source_location where = std::source_location::current()) const;
  /// The bytes of the tokens; a character may be cut at either end. Throws UserError for other ids.
  std::string decode(std::span<const std::int32_t> ids,
                     std::source_location where = std::source_location::current()) const;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};
}  // namespace data
}  // namespace tessera
