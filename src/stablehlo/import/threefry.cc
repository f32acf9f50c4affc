// JAX writes random bits and keys out as the additions and rotations of Threefry, a hundred per
// word. A function that computes Threefry is recognised by its results, and random bits and keys
// made with it become one operation of the IR.
#include "base/threefry.h"

#include <algorithm>
#include <array>

#include "ops/record.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Word = std::uint32_t;

// --- Is it Threefry?

constexpr std::size_t kTrials = 8;
/// A word of an element, in each trial.
using Trials = std::array<Word, kTrials>;

/// Words for which no formula other than Threefry can be right by chance.
Trials trials(Word seed) {
  Trials result{};
  for (std::size_t i = 0; i < kTrials; ++i) {
    result[i] = threefry2x32({seed, 1}, static_cast<Word>(i), 0)[0];
  }
  return result;
}

Word joined_words(std::string_view op, Word x, Word y) {
  if (op == "add") return x + y;
  if (op == "xor") return x ^ y;
  if (op == "or") return x | y;
  if (op == "shift_left") return y < 32 ? x << y : 0;
  return y < 32 ? x >> y : 0;
}

/// Computes one element of equations that compute all elements in the same way; fails for other
/// equations.
class OneElement {
 public:
  explicit OneElement(const ir::Function& function) : function_(function) {}

  void give(ValueId value, const Trials& words) { words_[value] = words; }
  /// Computes the equations from number `first` on.
  bool run(std::size_t first) {
    const std::span<const ir::Equation> all(function_.equations);
    return std::ranges::all_of(all.subspan(first), [&](const auto& each) { return step(each); });
  }
  Trials words(ValueId value) const { return words_.at(value); }

 private:
  bool step(const ir::Equation& e) {
    const std::string_view op = *e.op->name;
    if (e.results.size() != 1 || function_.type(e.results[0]).dtype != DType::u32) return false;
    Trials result{};
    if (op == "constant") {
      result.fill(static_cast<Word>(e.attributes.get<double>("value")));
    } else {
      for (const ValueId each : e.operands) {
        if (!words_.contains(each)) return false;
      }
      constexpr std::array<std::string_view, 5> kJoins = {"add", "xor", "or", "shift_left",
                                                          "shift_right_logical"};
      const bool is_spread = op == "broadcast_in_dim" && function_.type(e.operands[0]).rank() == 0;
      if (is_spread) {
        result = words_.at(e.operands[0]);
      } else if (std::ranges::find(kJoins, op) != kJoins.end()) {
        const Trials& x = words_.at(e.operands[0]);
        const Trials& y = words_.at(e.operands[1]);
        for (std::size_t i = 0; i < kTrials; ++i) result[i] = joined_words(op, x[i], y[i]);
      } else {
        return false;
      }
    }
    words_[e.results[0]] = result;
    return true;
  }

  const ir::Function& function_;
  std::unordered_map<ValueId, Trials> words_;
};

/// Whether the operands are two words of a key, which are scalars, and two words of a counter for
/// each element.
bool has_form(Context& c, const Values& results) {
  if (c.operands.size() != 4 || results.size() != 2) return false;
  const Type word{DType::u32, {}};
  const Type& counters = c.type(c.operands[2]);
  return c.type(c.operands[0]) == word && c.type(c.operands[1]) == word &&
         counters.dtype == DType::u32 && c.type(c.operands[3]) == counters &&
         c.type(results[0]) == counters && c.type(results[1]) == counters;
}

bool computes_threefry(Context& c, std::size_t first, const Values& results) {
  OneElement element(c.b().function());
  std::array<Trials, 4> given{};
  for (std::size_t i = 0; i < 4; ++i) {
    // The same value may be several of the operands.
    const auto same = std::ranges::find(c.operands, c.operands[i]) - c.operands.begin();
    given[i] = trials(static_cast<Word>(same));
    element.give(c.operands[i], given[i]);
  }
  if (!element.run(first)) return false;
  for (std::size_t i = 0; i < kTrials; ++i) {
    const auto wanted = threefry2x32({given[0][i], given[1][i]}, given[2][i], given[3][i]);
    for (std::size_t j = 0; j < 2; ++j) {
      if (element.words(results[j])[i] != wanted[j]) return false;
    }
  }
  return true;
}

// --- What are the counters?

/// A linear function of an element's indices: a number plus multiples of the indices.
struct Position {
  std::vector<std::uint64_t> steps;
  std::uint64_t first = 0;

  bool is_number() const {
    return std::ranges::all_of(steps, [](std::uint64_t step) { return step == 0; });
  }
};

class Positions {
 public:
  explicit Positions(Frame& frame) : frame_(frame) {}

  /// The position that an unsigned integer is; nullopt if it is something else, or wraps.
  std::optional<Position> of(ValueId value) {
    const Type& type = frame_.type(value);
    if (!is_integer(type.dtype) || is_signed(type.dtype) || ++looks_ > kMostLooks) return {};
    std::optional<Position> result = found(value);
    if (result && (greatest(*result, type.shape) >> (8 * size_bytes(type.dtype) - 1)) > 1) {
      return std::nullopt;
    }
    return result;
  }

 private:
  static constexpr int kMostLooks = 200;
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 31U;  // of factors

  static std::uint64_t greatest(const Position& position, const Shape& shape) {
    std::uint64_t sum = position.first;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] <= 1) continue;
      if (position.steps[i] >= kMost) return ~std::uint64_t{0};
      sum += position.steps[i] * static_cast<std::uint64_t>(shape[i] - 1);
    }
    return sum;
  }

  Position number(ValueId value, std::uint64_t number) const {
    return {std::vector<std::uint64_t>(frame_.type(value).shape.size()), number};
  }

  std::optional<Position> found(ValueId value) {
    const auto splat = frame_.splats.find(value);
    if (splat != frame_.splats.end()) {
      if (splat->second < 0 || splat->second >= static_cast<double>(kMost)) return {};
      return number(value, static_cast<std::uint64_t>(splat->second));
    }
    const ir::Equation* maker = frame_.maker_of(value);
    if (maker == nullptr) return {};
    const std::string_view op = *maker->op->name;
    if (op == "iota") {
      Position result = number(value, 0);
      result.steps[static_cast<std::size_t>(maker->attributes.integer("dim"))] = 1;
      return result;
    }
    if (op == "convert") return of(maker->operands[0]);
    if (op == "slice") return of_slice(*maker);
    if (op == "broadcast_in_dim") return spread(*maker, value);
    if (op == "shift_right_logical") return shifted_right(*maker, value);
    if (op == "add" || op == "mul") return joined_positions(*maker, op == "add");
    return std::nullopt;
  }

  std::optional<Position> spread(const ir::Equation& e, ValueId value) {
    const std::optional<Position> x = of(e.operands[0]);
    if (!x) return {};
    Position result = number(value, x->first);
    const ir::Ints& dims = e.attributes.ints("dims");
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const bool is_same = frame_.type(e.operands[0]).shape[i] > 1;
      if (is_same) result.steps[static_cast<std::size_t>(dims[i])] = x->steps[i];
    }
    return result;
  }

  /// One of several concatenated arrays.
  std::optional<Position> of_slice(const ir::Equation& e) {
    const ir::Equation* whole = frame_.maker_of(e.operands[0]);
    if (whole == nullptr || *whole->op->name != "concatenate") return {};
    const Shape column = {1};
    for (const ValueId each : whole->operands) {
      if (frame_.type(each).shape != column) return {};
    }
    if (frame_.type(e.results[0]).shape != column) return {};
    return of(whole->operands.at(static_cast<std::size_t>(e.attributes.ints("start")[0])));
  }

  /// Only for shifts that remove all bits.
  std::optional<Position> shifted_right(const ir::Equation& e, ValueId value) {
    const std::optional<Position> amount = of(e.operands[1]);
    if (!amount || !amount->is_number()) return {};
    const Type& type = frame_.type(value);
    if (amount->first >= 8 * size_bytes(type.dtype)) return number(value, 0);
    const std::optional<Position> x = of(e.operands[0]);
    if (!x || greatest(*x, type.shape) >> amount->first != 0) return {};
    return number(value, 0);
  }

  std::optional<Position> joined_positions(const ir::Equation& e, bool is_sum) {
    std::optional<Position> x = of(e.operands[0]);
    std::optional<Position> y = of(e.operands[1]);
    if (!x || !y) return {};
    if (!is_sum && x->is_number()) std::swap(x, y);
    if (!is_sum && !y->is_number()) return {};
    const auto join = [&](std::uint64_t& to, std::uint64_t from) {
      if (to >= kMost || from >= kMost) return false;
      to = is_sum ? to + from : to * from;
      return true;
    };
    for (std::size_t i = 0; i < x->steps.size(); ++i) {
      if (!join(x->steps[i], is_sum ? y->steps[i] : y->first)) return {};
    }
    return join(x->first, y->first) ? x : std::nullopt;
  }

  Frame& frame_;
  int looks_ = 0;
};

bool is_zero(Frame& frame, ValueId value) {
  const std::optional<Position> position = Positions(frame).of(value);
  return position && position->is_number() && position->first == 0;
}

/// Whether each element is its own row-major index.
bool counts_elements(Frame& frame, ValueId value) {
  const std::optional<Position> position = Positions(frame).of(value);
  if (!position || position->first != 0) return false;
  const Shape& shape = frame.type(value).shape;
  std::uint64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1 && position->steps[i] != step) return false;
    step *= static_cast<std::uint64_t>(shape[i]);
  }
  return true;
}

/// The encrypted words, if `high` and `low` are their two words for all counters; nullptr if they
/// are something else.
const Encrypted* encrypted(Context& c, ValueId high, ValueId low) {
  const auto found = c.frame.encrypted.find(high);
  return found != c.frame.encrypted.end() && found->second.low == low ? &found->second : nullptr;
}

/// The value of which this is a copy with additional dimensions of size 1.
ValueId without_ones(Context& c, ValueId value) {
  const ir::Equation* maker = c.frame.maker_of(value);
  const bool is_move =
      maker != nullptr && (*maker->op->name == "reshape" || *maker->op->name == "broadcast_in_dim");
  if (!is_move) return value;
  const Type& from = c.type(maker->operands[0]);
  return num_elements(from.shape) == num_elements(c.type(value).shape) ? maker->operands[0] : value;
}

/// The array of two words from which both words of the key were taken, if there is one.
std::optional<ValueId> array_of_key(Context& c, const Encrypted& words) {
  std::optional<ValueId> array;
  for (std::size_t i = 0; i < words.key.size(); ++i) {
    const ir::Equation* maker = c.frame.maker_of(without_ones(c, words.key[i]));
    if (maker == nullptr || *maker->op->name != "slice") return std::nullopt;
    const ValueId from = maker->operands[0];
    if (c.type(from).shape != Shape{2} || (array && *array != from) ||
        maker->attributes.ints("start")[0] != static_cast<std::int64_t>(i)) {
      return std::nullopt;
    }
    array = from;
  }
  return array;
}

ValueId key_of(Context& c, const Encrypted& words) {
  if (const auto array = array_of_key(c, words)) return *array;
  ir::Builder& b = c.b();
  return ops::concatenate(
      b, {ops::reshape(b, words.key[0], {1}), ops::reshape(b, words.key[1], {1})}, 0);
}

}  // namespace

void note_threefry(Context& c, std::size_t first, const Values& results) {
  if (!has_form(c, results) || !computes_threefry(c, first, results)) return;
  c.frame.encrypted[results[0]] = {.low = results[1],
                                   .key = {c.operands[0], c.operands[1]},
                                   .counter = {c.operands[2], c.operands[3]}};
}

std::optional<ValueId> random_bits_of(Context& c) {
  const Encrypted* words = encrypted(c, c.operand(0), c.operand(1));
  if (words == nullptr || !is_zero(c.frame, words->counter[0]) ||
      !counts_elements(c.frame, words->counter[1])) {
    return std::nullopt;
  }
  return c.b().emit("random_bits", {{"shape", c.type(words->low).shape}}, {key_of(c, *words)});
}

std::optional<ValueId> random_keys_of(Context& c, std::int64_t dim) {
  if (c.operands.size() != 2) return std::nullopt;
  const Encrypted* words =
      encrypted(c, without_ones(c, c.operands[0]), without_ones(c, c.operands[1]));
  const Shape& shape = c.type(c.operands[0]).shape;
  if (words == nullptr || dim + 1 != static_cast<std::int64_t>(shape.size()) || shape.back() != 1 ||
      !is_zero(c.frame, words->counter[0])) {
    return std::nullopt;
  }
  ir::Builder& b = c.b();
  const std::int64_t count = num_elements(shape);
  ValueId keys = ir::kNoValue;
  if (count == 1) {
    const ValueId data = ops::reshape(b, words->counter[1], {});
    keys = b.emit("random_fold_in", {}, {key_of(c, *words), data});
  } else if (counts_elements(c.frame, words->counter[1])) {
    keys = b.emit("random_split", {{"num", count}}, {key_of(c, *words)});
  } else {
    return std::nullopt;
  }
  return ops::reshape(b, keys, c.result().shape);
}

}  // namespace tessera::stablehlo
