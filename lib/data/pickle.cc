#include "data/pickle.h"

#include <array>
#include <cstring>
#include <unordered_map>

#include <tessera/error.h>

#include "data/file.h"

namespace tessera::data {

namespace {

using Value = Pickle::Value;
using Kind = Pickle::Kind;

constexpr std::size_t kMostValues = std::size_t{1} << 22U;
constexpr std::size_t kMostDims = 64;  // numpy's limit

/// Runs the operations of a pickle on a stack of values, with marks on the stack and a memo of
/// values. Values are indices into `values`.
class Machine {
 public:
  Machine(std::span<const std::uint8_t> bytes, const std::string& path, std::vector<Value>& values)
      : bytes_(bytes), path_(path), values_(values) {}

  std::uint32_t run() {
    while (true) {
      start_ = at_;
      const std::uint8_t code = byte();
      if (code == '.') return pop();
      if (!push_constant(code) && !push_number(code) && !push_text(code) && !use_memo(code) &&
          !build_container(code) && !build_object(code)) {
        fail_code(code);
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw UserError({.what = "pickle: the file is damaged",
                     .found = at_byte(path_, start_, found),
                     .wanted = "a pickle that Python's pickle module wrote",
                     .cure = "copy or unpack the file again"});
  }
  [[noreturn]] void fail_code(std::uint8_t code) const {
    static constexpr const char* kDigits = "0123456789abcdef";
    throw UserError({.what = "pickle: the file holds something other than data",
                     .found = at_byte(path_, start_,
                                      std::string("the operation 0x") + kDigits[code >> 4U] +
                                          kDigits[code & 15U]),
                     .wanted = "numbers, strings, lists, dicts and arrays of bytes",
                     .cure = "use the file as it was published; nothing in it was run"});
  }
  [[noreturn]] void fail_global(const std::string& name) const {
    throw UserError({.what = "pickle: the file asks to run a function",
                     .found = at_byte(path_, start_, name),
                     .wanted = "NumPy arrays and nothing else",
                     .cure = "do not trust this file; nothing in it was run"});
  }

  std::span<const std::uint8_t> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("the file ends in the middle of a value");
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }
  std::uint8_t byte() { return take(1)[0]; }
  std::uint64_t little_endian(std::size_t count) {
    std::uint64_t value = 0;
    std::memcpy(&value, take(count).data(), count);
    return value;
  }
  std::string_view text(std::uint64_t count) {
    const auto part = take(count);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::string_view line() {
    const auto rest = bytes_.subspan(at_);
    const void* end = rest.empty() ? nullptr : std::memchr(rest.data(), '\n', rest.size());
    if (end == nullptr) fail("a line without an end");
    const auto size = static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - rest.data());
    const std::string_view result = text(size);
    at_ += 1;
    return result;
  }

  void push(Value value) {
    if (values_.size() == kMostValues) fail("more than 4194304 values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<std::uint32_t>(values_.size() - 1));
  }
  std::uint32_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("a value is missing");
    const std::uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Value& top(Kind kind) {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("a value is missing");
    Value& value = values_[stack_.back()];
    if (value.kind != kind) fail("a value of the wrong kind for the operation");
    return value;
  }
  /// Pops the last mark and the values above it; returns the values.
  std::vector<std::uint32_t> pop_marked() {
    if (marks_.empty()) fail("a mark is missing");
    std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                     stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  bool push_constant(std::uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        if (byte() > 5) fail("a protocol above 5");
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 'N':
        push({});
        return true;
      case '}':
        push({.kind = Kind::dict});
        return true;
      case ']':
        push({.kind = Kind::list});
        return true;
      case ')':
        push({.kind = Kind::tuple});
        return true;
      default:
        return false;
    }
  }

  bool push_number(std::uint8_t code) {
    std::int64_t number = 0;
    switch (code) {
      case 0x88:  // True
      case 0x89:  // False
        number = code == 0x88 ? 1 : 0;
        break;
      case 'K':
        number = byte();
        break;
      case 'M':
        number = static_cast<std::int64_t>(little_endian(2));
        break;
      case 'J':
        number = static_cast<std::int32_t>(little_endian(4));
        break;
      default:
        return false;
    }
    push({.kind = Kind::number, .number = number});
    return true;
  }

  bool push_text(std::uint8_t code) {
    std::uint64_t count = 0;
    switch (code) {
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8c:  // SHORT_BINUNICODE
        count = byte();
        break;
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
      case 'X':  // BINUNICODE
        count = little_endian(4);
        break;
      default:
        return false;
    }
    push({.kind = Kind::text, .text = text(count)});
    return true;
  }

  bool use_memo(std::uint8_t code) {
    switch (code) {
      case 'q':   // BINPUT
      case 'r':   // LONG_BINPUT
      case 0x94:  // MEMOIZE
        if (stack_.empty()) fail("a value is missing");
        memo_[code == 0x94 ? memo_.size() : little_endian(code == 'q' ? 1 : 4)] = stack_.back();
        return true;
      case 'h':    // BINGET
      case 'j': {  // LONG_BINGET
        const auto found = memo_.find(little_endian(code == 'h' ? 1 : 4));
        if (found == memo_.end()) fail("a value that was never stored");
        stack_.push_back(found->second);
        return true;
      }
      default:
        return false;
    }
  }

  bool build_container(std::uint8_t code) {
    std::vector<std::uint32_t> items;
    switch (code) {
      case 0x85:  // TUPLE1 to 3
      case 0x86:
      case 0x87:
        for (std::uint8_t i = 0x85; i <= code; ++i) items.insert(items.begin(), pop());
        push({.kind = Kind::tuple, .items = std::move(items)});
        return true;
      case 't':
        items = pop_marked();
        push({.kind = Kind::tuple, .items = std::move(items)});
        return true;
      case 'e':
        add(Kind::list, pop_marked());
        return true;
      case 'a':
        add(Kind::list, {pop()});
        return true;
      case 'u':
        items = pop_marked();
        if (items.size() % 2 != 0) fail("a key without a value");
        add(Kind::dict, items);
        return true;
      case 's':
        items.push_back(pop());
        items.insert(items.begin(), pop());
        add(Kind::dict, items);
        return true;
      default:
        return false;
    }
  }
  void add(Kind kind, const std::vector<std::uint32_t>& items) {
    Value& to = top(kind);
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  bool build_object(std::uint8_t code) {
    switch (code) {
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::string_view name = top(Kind::text).text;
        pop();
        const std::string_view module = top(Kind::text).text;
        pop();
        push_global(module, name);
        return true;
      }
      case 'R':
        reduce();
        return true;
      case 'b':
        build();
        return true;
      default:
        return false;
    }
  }

  void push_global(std::string_view module, std::string_view name) {
    static constexpr std::array<std::array<std::string_view, 2>, 4> kKnown = {
        {{"numpy.core.multiarray", "_reconstruct"},
         {"numpy._core.multiarray", "_reconstruct"},
         {"numpy", "ndarray"},
         {"numpy", "dtype"}}};
    for (const auto& known : kKnown) {
      if (module == known[0] && name == known[1]) {
        push({.kind = Kind::global, .text = known[1]});
        return;
      }
    }
    fail_global(std::string(module.substr(0, 64)) + "." + std::string(name.substr(0, 64)));
  }

  /// A call of one of the known globals.
  void reduce() {
    const std::vector<std::uint32_t>& arguments = top(Kind::tuple).items;
    pop();
    const std::string_view name = top(Kind::global).text;
    pop();
    if (name == "_reconstruct") {
      push({.kind = Kind::array});
    } else if (name == "dtype" && !arguments.empty() && values_[arguments[0]].kind == Kind::text) {
      push({.kind = Kind::dtype, .text = values_[arguments[0]].text});
    } else {
      fail("a call that does not make an array");
    }
  }

  /// Sets the state of a dtype or an array.
  void build() {
    const std::vector<std::uint32_t>& state = top(Kind::tuple).items;
    pop();
    if (stack_.empty()) fail("a value is missing");
    if (values_[stack_.back()].kind == Kind::dtype) return;  // a byte has no byte order to set
    Value& array = top(Kind::array);
    constexpr std::array<Kind, 5> kKinds = {Kind::number, Kind::tuple, Kind::dtype, Kind::number,
                                            Kind::text};
    bool is_good = state.size() == kKinds.size();
    for (std::size_t i = 0; is_good && i < state.size(); ++i) {
      is_good = values_[state[i]].kind == kKinds[i];
    }
    if (!is_good) fail("an array whose state is not version, shape, dtype, order, bytes");
    if (values_[state[2]].text != "u1" || values_[state[3]].number != 0) {
      fail("an array that is not row-major u1");
    }
    std::uint64_t size = 1;
    array.shape.clear();
    const std::vector<std::uint32_t>& shape = values_[state[1]].items;
    if (shape.size() > kMostDims) fail("an array of more than 64 dimensions");
    for (const std::uint32_t item : shape) {
      const Value& extent = values_[item];
      if (extent.kind != Kind::number || extent.number < 0) fail("an array without a shape");
      array.shape.push_back(extent.number);
      if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent.number), &size)) {
        fail("an array of more than 2^64 bytes");
      }
    }
    array.text = values_[state[4]].text;
    if (array.text.size() != size) {
      fail("an array of " + std::to_string(size) + " elements with " +
           std::to_string(array.text.size()) + " bytes");
    }
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& path_;
  std::vector<Value>& values_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;  // offset of the current operation
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
};

}  // namespace

Pickle::Pickle(std::span<const std::uint8_t> bytes, const std::string& path)
    : root_(Machine(bytes, path, values_).run()) {}

const Pickle::Value* Pickle::find(const Value& dict, std::string_view key) const {
  if (dict.kind != Kind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& name = values_[dict.items[i]];
    if (name.kind == Kind::text && name.text == key) return &values_[dict.items[i + 1]];
  }
  return nullptr;
}

}  // namespace tessera::data
