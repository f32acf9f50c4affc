// The operations of pickles, in the protocols 0 to 5.
#include "foreign/unpickle.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "checkpoint/json.h"
#include "data/unicode.h"
#include "foreign/cursor.h"

namespace tessera::foreign {

namespace {

using checkpoint::BadText;
using Ref = Value*;
using Kind = Value::Kind;

bool makes_tensor(const Value& function) {
  return function.is_global("torch._utils", "_rebuild_tensor_v2") ||
         function.is_global("torch._utils", "_rebuild_tensor_v3");
}
/// A parameter is stored as a tensor and a few attributes.
bool makes_parameter(const Value& function) {
  return function.is_global("torch._utils", "_rebuild_parameter") ||
         function.is_global("torch._utils", "_rebuild_parameter_with_state");
}
/// A tensor of a subclass, such as torch.nn.Buffer: the function that makes the tensor, the class,
/// the arguments of the function, and attributes.
bool makes_subclass(const Value& function, const std::vector<Ref>& arguments) {
  return function.is_global("torch._tensor", "_rebuild_from_type_v2") && arguments.size() >= 3 &&
         makes_tensor(*arguments[0]) && arguments[2]->kind == Kind::list;
}
/// Dicts are stored empty; operations that follow fill them. The argument of a defaultdict makes
/// default values.
bool makes_dict(const Value& function, const std::vector<Ref>& arguments) {
  return (function.is_global("collections", "OrderedDict") && arguments.empty()) ||
         (function.is_global("collections", "defaultdict") && arguments.size() <= 1);
}

/// Protocols below 3 have no bytes: Python 3 writes a call that makes them from a text.
bool makes_bytes(const Value& function, const std::vector<Ref>& arguments) {
  const bool is_empty = function.is_global("__builtin__", "bytes") && arguments.empty();
  return is_empty || (function.is_global("_codecs", "encode") && arguments.size() == 2 &&
                      arguments[0]->kind == Kind::text && arguments[1]->text == "latin1");
}

/// The number that is a whole line; nothing if it has too many digits.
template <typename T>
std::optional<T> number_in(std::string_view line) {
  T value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error == std::errc::result_out_of_range) return std::nullopt;
  if (error != std::errc() || end != line.data() + line.size())
    throw BadText("a number has other characters than digits");
  return value;
}

/// The number of `digits` hexadecimal digits from `at` on.
std::uint32_t hexadecimal(std::string_view text, std::size_t at, std::size_t digits) {
  std::uint32_t value = 0;
  const std::string_view part = text.substr(std::min(at, text.size()), digits);
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, 16);
  if (part.size() < digits || error != std::errc() || end != part.data() + part.size())
    throw BadText("a text has an escape that is not complete");
  return value;
}

/// The bytes of a string of Python 2, which is written as its repr: 'a\\x00b'.
std::string unquoted(std::string_view line) {
  const bool is_quoted = line.size() >= 2 && line.front() == line.back() &&
                         (line.front() == '\'' || line.front() == '"');
  if (!is_quoted) throw BadText("a text has no quotes");
  line = line.substr(1, line.size() - 2);
  constexpr std::string_view kCodes = "\\'\"nrt";
  constexpr std::string_view kMeant = "\\'\"\n\r\t";
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      text += line[i];
      continue;
    }
    const char code = ++i < line.size() ? line[i] : '?';
    if (code == 'x') {
      text += static_cast<char>(hexadecimal(line, i + 1, 2));
      i += 2;
    } else if (const std::size_t known = kCodes.find(code); known != std::string_view::npos) {
      text += kMeant[known];
    } else {
      throw BadText("a text has an unknown escape");
    }
  }
  return text;
}

/// A text of Latin-1 with escapes for other characters, as UTF-8.
std::string unescaped(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char code = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '?';
    const std::size_t digits = code == 'u' ? 4 : code == 'U' ? 8 : 0;
    const std::uint32_t code_point =
        digits > 0 ? hexadecimal(line, i + 2, digits) : static_cast<std::uint8_t>(line[i]);
    if (code_point > 0x10FFFF) throw BadText("a text has a character that does not exist");
    data::append_utf8(text, code_point);
    if (digits > 0) i += 1 + digits;
  }
  return text;
}

class Unpickler {
 public:
  Unpickler(std::span<const std::uint8_t> bytes, std::size_t most_values)
      : cursor_(bytes), most_values_(most_values), room_(2 * bytes.size()) {}

  Pickle run() {
    std::size_t start = 0;  // of the current operation
    try {
      for (;;) {
        start = cursor_.at();
        const std::uint8_t code = cursor_.byte();
        if (code == '.') break;
        step(code);
      }
      const Ref result = pop();
      return {.values = std::move(values_), .texts = std::move(texts_), .result = result};
    } catch (const BadText& error) {
      throw BadText("at byte " + std::to_string(start) + " of the pickle: " + error.what());
    }
  }

 private:
  Ref last_value() const {
    if (stack_.empty()) throw BadText("it takes a value that is not there");
    return stack_.back();
  }
  Ref pop() {
    const Ref value = last_value();
    stack_.pop_back();
    return value;
  }
  void push(Value value) {
    if (values_.size() == most_values_)
      throw BadText("it has more than " + std::to_string(most_values_) + " values");
    stack_.push_back(&values_.emplace_back(std::move(value)));
  }
  void push_number(std::int64_t number) { push({.kind = Kind::number, .number = number}); }
  void push_decoded(std::string value) { push_text(texts_.emplace_back(std::move(value))); }
  void push_text(std::string_view value) { push({.kind = Kind::text, .text = value}); }
  void push_list(std::vector<Ref> items) { push({.kind = Kind::list, .items = std::move(items)}); }
  void push_opaque(std::vector<Ref> items) {
    push({.kind = Kind::opaque, .items = std::move(items)});
  }
  /// The names of a class or function are two lines.
  void push_global() {
    const std::string_view module = cursor_.line();
    push({.kind = Kind::global, .text = cursor_.line(), .module = module});
  }
  std::vector<Ref> last(std::size_t count) {
    if (stack_.size() < count) throw BadText("it takes a value that is not there");
    std::vector<Ref> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    const bool has_mark = std::any_of(items.begin(), items.end(),
                                      [](const Value* item) { return item->kind == Kind::mark; });
    if (has_mark) throw BadText("it takes a value that is not there");
    stack_.resize(stack_.size() - count);
    return items;
  }
  /// What was pushed after the last mark.
  std::vector<Ref> from_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value* value) { return value->kind == Kind::mark; });
    if (mark == stack_.rend()) throw BadText("it has no mark");
    std::vector<Ref> items(mark.base(), stack_.end());
    stack_.resize(stack_.size() - items.size() - 1);
    return items;
  }
  /// Adds to the list or dict on the stack.
  void extend(const std::vector<Ref>& items, Kind kind) {
    const Kind found = stack_.empty() ? Kind::none : stack_.back()->kind;
    if ((found != kind && found != Kind::opaque) || (kind == Kind::dict && items.size() % 2 != 0))
      throw BadText("it adds to what is neither list nor dict");
    std::vector<Ref>& own = stack_.back()->items;
    own.insert(own.end(), items.begin(), items.end());
  }
  void remember(std::uint64_t key) { memo_[key] = last_value(); }
  std::uint64_t line_key() {
    const std::optional<std::uint64_t> key = number_in<std::uint64_t>(cursor_.line());
    if (!key) throw BadText("it takes a value that is not there");
    return *key;
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) throw BadText("it takes a value that is not there");
    stack_.push_back(found->second);
  }

  void step(std::uint8_t code) {
    if (step_number(code) || step_text(code) || step_group(code) || step_memo(code)) return;
    if (step_line(code) || step_call(code)) return;
    throw BadText("it has an operation that does not describe data: " + std::to_string(code));
  }
  bool step_number(std::uint8_t code) {
    switch (code) {
      case 'K':
        push_number(cursor_.byte());
        return true;
      case 'M':
        push_number(cursor_.little_endian<std::uint16_t>());
        return true;
      case 'J':
        push_number(cursor_.little_endian<std::int32_t>());
        return true;
      case 0x88:
      case 0x89:
        push_number(code == 0x88 ? 1 : 0);
        return true;
      case 'G':  // a float: 8 bytes
        cursor_.take(8);
        push({});
        return true;
      case 'N':
        push({});
        return true;
      case 0x8A:
        push_integer(cursor_.byte());
        return true;
      case 0x8B:
        push_integer(cursor_.little_endian<std::uint32_t>());
        return true;
      default:
        return false;
    }
  }
  /// An integer of any size.
  void push_integer(std::uint64_t size) {
    const auto digits = cursor_.take(size);
    if (digits.size() > 8) return push({});
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits.size(); ++i) value |= std::uint64_t{digits[i]} << 8 * i;
    const bool is_negative = !digits.empty() && digits.back() >= 0x80;
    if (is_negative && digits.size() < 8) value |= ~std::uint64_t{0} << 8 * digits.size();
    push_number(static_cast<std::int64_t>(value));
  }
  bool step_text(std::uint8_t code) {
    switch (code) {
      case 'X':
      case 'B':
      case 'T':
        push_text(cursor_.text(cursor_.little_endian<std::uint32_t>()));
        return true;
      case 0x8C:
      case 'C':
      case 'U':
        push_text(cursor_.text(cursor_.byte()));
        return true;
      case 0x8D:
      case 0x8E:
      case 0x96:  // a bytearray
        push_text(cursor_.text(cursor_.little_endian<std::uint64_t>()));
        return true;
      case 'c':
        push_global();
        return true;
      case 0x93: {
        const std::vector<Ref> names = last(2);
        if (names[0]->kind != Kind::text || names[1]->kind != Kind::text)
          throw BadText("the name of a class is not a text");
        push({.kind = Kind::global, .text = names[1]->text, .module = names[0]->text});
        return true;
      }
      default:
        return false;
    }
  }
  /// The operations of protocol 0, whose values are lines of text.
  bool step_line(std::uint8_t code) {
    switch (code) {
      case 'I':  // also 00 and 01: False and True
      case 'L':
        push_line_number(cursor_.line());
        return true;
      case 'F':
        cursor_.line();
        push({});
        return true;
      case 'S':
        push_decoded(unquoted(cursor_.line()));
        return true;
      case 'V':
        push_decoded(unescaped(cursor_.line()));
        return true;
      default:
        return false;
    }
  }
  void push_line_number(std::string_view line) {
    if (line.ends_with('L')) line.remove_suffix(1);
    const std::optional<std::int64_t> number = number_in<std::int64_t>(line);
    number ? push_number(*number) : push({});
  }
  bool step_group(std::uint8_t code) {
    switch (code) {
      case '(':
        push({.kind = Kind::mark});
        return true;
      case '}':
        push({.kind = Kind::dict});
        return true;
      case ')':
      case ']':
        push_list({});
        return true;
      case 'd': {
        const std::vector<Ref> items = from_mark();
        push({.kind = Kind::dict});
        extend(items, Kind::dict);
        return true;
      }
      case 't':
      case 'l':
        push_list(from_mark());
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push_list(last(code - 0x84U));
        return true;
      case 's':
        extend(last(2), Kind::dict);
        return true;
      case 'u':
        extend(from_mark(), Kind::dict);
        return true;
      case 'a':
        extend(last(1), Kind::list);
        return true;
      case 'e':
      case 0x90:  // to a set
        extend(from_mark(), Kind::list);
        return true;
      case 0x8F:  // A set: its items have no names.
        push_opaque({});
        return true;
      case 0x91:
        push_opaque(from_mark());
        return true;
      default:
        return false;
    }
  }
  bool step_memo(std::uint8_t code) {
    switch (code) {
      case 0x80:
        if (cursor_.byte() > 5) throw BadText("it has a protocol above 5");
        return true;
      case 0x98:  // the last value may not be changed
        return true;
      case 0x95:  // frame
        cursor_.take(8);
        return true;
      case 'q':
        remember(cursor_.byte());
        return true;
      case 'r':
        remember(cursor_.little_endian<std::uint32_t>());
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'h':
        recall(cursor_.byte());
        return true;
      case 'j':
        recall(cursor_.little_endian<std::uint32_t>());
        return true;
      case 'p':
        remember(line_key());
        return true;
      case 'g':
        recall(line_key());
        return true;
      case '0':
        pop();
        return true;
      case '2':
        stack_.push_back(last_value());
        return true;
      case '1':
        from_mark();
        return true;
      default:
        return false;
    }
  }
  bool step_call(std::uint8_t code) {
    switch (code) {
      case 'Q':
        push(storage_of(*pop()));
        return true;
      case 'R':
        push_result(last(2));
        return true;
      case 'i': {  // an object of a class of Python 2, made of arguments
        push_list(from_mark());
        push_global();
        const std::vector<Ref> call = last(2);
        push_opaque({call[1], call[0]});
        return true;
      }
      case 'o':
        push_opaque(from_mark());
        return true;
      case 0x81:  // an object of a class, made of arguments
        push_opaque(last(2));
        return true;
      case 0x92:  // the same with named arguments
        push_opaque(last(3));
        return true;
      case 'b':
        set_attributes(pop());
        return true;
      default:
        return false;
    }
  }

  static Value storage_of(const Value& id) {
    const bool is_right = id.kind == Kind::list && id.items.size() == 5 &&
                          id.items[0]->kind == Kind::text && id.items[0]->text == "storage" &&
                          id.items[1]->kind == Kind::global && id.items[2]->kind == Kind::text;
    if (!is_right) throw BadText("it refers to something that is not a storage");
    return {.kind = Kind::storage, .text = id.items[2]->text, .items = {id.items[1]}};
  }
  /// What a call gives: `call` has the function and the list of its arguments.
  void push_result(std::vector<Ref> call) {
    const Value& function = *call[0];
    const std::vector<Ref>& given = call[1]->items;
    const Kind first = given.empty() ? Kind::none : given[0]->kind;
    if (makes_parameter(function) && (first == Kind::tensor || first == Kind::opaque)) {
      stack_.push_back(given[0]);
    } else if (makes_subclass(function, given)) {
      push({.kind = Kind::tensor, .items = {given[0], given[2]}});
    } else if (makes_tensor(function)) {
      push({.kind = Kind::tensor, .items = std::move(call)});
    } else if (makes_dict(function, given)) {
      push({.kind = Kind::dict});
    } else if (makes_bytes(function, given)) {
      push_decoded(given.empty() ? std::string() : latin1(given[0]->text));
    } else {
      push_opaque(std::move(call));
    }
  }
  /// The bytes of a text of Latin-1.
  std::string latin1(std::string_view text) {
    // A program that writes pickles never uses the same text twice for this.
    if (text.size() > room_) throw BadText("it decodes the same text too often");
    room_ -= text.size();
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const data::Char next = data::char_at(text, at);
      if (next.bytes == 0 || next.code_point > 0xFF) throw BadText("a text is not Latin-1");
      bytes += static_cast<char>(next.code_point);
      at += next.bytes;
    }
    return bytes;
  }
  /// Dicts have attributes, too, such as the versions of modules: they hold no tensors.
  void set_attributes(Ref attributes) {
    const Kind kind = stack_.empty() ? Kind::none : stack_.back()->kind;
    if (kind == Kind::opaque) {
      stack_.back()->items.push_back(attributes);
    } else if (kind != Kind::dict) {
      throw BadText("it sets attributes of a value that has none");
    }
  }

  Cursor cursor_;
  std::size_t most_values_;
  std::size_t room_;  // bytes that decoding may still take
  std::deque<Value> values_;
  std::deque<std::string> texts_;  // those that are not in the pickle as they are
  std::vector<Ref> stack_;
  std::map<std::uint64_t, Ref> memo_;
};

}  // namespace

std::string name_of_call(const Value& call) {
  const Value* const function = call.items.empty() ? nullptr : call.items[0];
  if (function == nullptr || function->kind != Kind::global) return "an object";
  return std::string(function->module.substr(0, 64)) + "." +
         std::string(function->text.substr(0, 64));
}

std::optional<Shape> sizes_in(const Value& list) {
  constexpr std::size_t kMostDims = 64;  // of NumPy and PyTorch
  if (list.kind != Kind::list || list.items.size() > kMostDims) return std::nullopt;
  Shape sizes;
  for (const Value* item : list.items) {
    if (item->kind != Kind::number || item->number < 0) return std::nullopt;
    sizes.push_back(item->number);
  }
  return sizes;
}

const Value* find(const Value& dict, std::string_view key) {
  if (dict.kind != Kind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (dict.items[i]->kind == Kind::text && dict.items[i]->text == key) return dict.items[i + 1];
  }
  return nullptr;
}

Pickle read_pickle(std::span<const std::uint8_t> bytes, std::size_t most_values) {
  return Unpickler(bytes, most_values).run();
}

}  // namespace tessera::foreign
