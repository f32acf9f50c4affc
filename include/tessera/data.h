// Training data: sets made by NumPy's random numbers, and the bytes of text files.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tessera/array.h>

namespace tessera {
class NumpyRandomState;
}

namespace tessera::data {

/// Sequences of equal length, row-major i32 [num_sequences, length].
class Tokens {
 public:
  Tokens(std::vector<std::int32_t> tokens, std::int64_t length);
  std::int64_t num_sequences() const;
  std::int64_t length() const { return length_; }
  const std::vector<std::int32_t>& values() const { return tokens_; }
  /// Sequences first, first + 1, ...: i32 [size, length], from the start again after the end.
  Array batch(std::int64_t first, std::int64_t size) const;

 private:
  std::vector<std::int32_t> tokens_;
  std::int64_t length_;
};

/// numpy.random.RandomState(seed): draws follow each other. Copies share their place.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed);
  /// Drawn in f64, then rounded to f32.
  Array standard_normal(const Shape& shape);
  /// i32 in [low, high); throws UserError when the range is empty or beyond i32.
  Array randint(std::int32_t low, std::int64_t high, const Shape& shape,
                std::source_location where = std::source_location::current());

 private:
  std::shared_ptr<NumpyRandomState> state_;
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
/// Throws UserError when the file cannot be read or is too short for two windows of `length`.
Text read_text(const std::string& path, std::int64_t length);
/// Consecutive windows of `length` bytes without overlap, in the order of the text.
Tokens consecutive_windows(std::span<const std::uint8_t> text, std::int64_t length);
/// The same sequences in a random order that depends on the seed alone.
Tokens shuffled(const Tokens& tokens, std::uint32_t seed);

/// Entropies of the bytes in nats: of a byte, and of a byte given the one before it.
double unigram_entropy(std::span<const std::uint8_t> text);
double bigram_entropy(std::span<const std::uint8_t> text);

}  // namespace tessera::data
