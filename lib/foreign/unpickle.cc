// The operations of pickles that torch.save writes, in its protocols 2 to 5.
#include "foreign/unpickle.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/json.h"

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
/// Dicts are stored empty; operations that follow fill them. The argument of a defaultdict makes
/// default values.
bool makes_dict(const Value& function, const std::vector<Ref>& arguments) {
  return (function.is_global("collections", "OrderedDict") && arguments.empty()) ||
         (function.is_global("collections", "defaultdict") && arguments.size() <= 1);
}

class Unpickler {
 public:
  explicit Unpickler(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  Pickle run() {
    for (;;) {
      const std::uint8_t code = byte();
      if (code != '.') {
        step(code);
        continue;
      }
      const Ref result = pop();
      return {.values = std::move(values_), .result = result};
    }
  }

 private:
  std::span<const std::uint8_t> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw BadText("the pickle is cut off");
    const auto found = bytes_.subspan(at_, size);
    at_ += size;
    return found;
  }
  template <typename T>
  T little() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::uint8_t byte() { return little<std::uint8_t>(); }
  std::string_view text(std::uint64_t size) {
    const auto found = take(size);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  std::string_view line() {
    const std::size_t begin = at_;
    while (byte() != '\n') continue;
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, at_ - begin - 1};
  }

  Ref pop() {
    if (stack_.empty()) throw BadText("the pickle takes a value that is not there");
    const Ref value = stack_.back();
    stack_.pop_back();
    return value;
  }
  void push(Value value) { stack_.push_back(&values_.emplace_back(std::move(value))); }
  void push_number(std::int64_t number) { push({.kind = Kind::number, .number = number}); }
  void push_text(std::string_view value) { push({.kind = Kind::text, .text = value}); }
  void push_list(std::vector<Ref> items) { push({.kind = Kind::list, .items = std::move(items)}); }
  void push_opaque(std::vector<Ref> items) {
    push({.kind = Kind::opaque, .items = std::move(items)});
  }
  std::vector<Ref> last(std::size_t count) {
    if (stack_.size() < count) throw BadText("the pickle takes a value that is not there");
    std::vector<Ref> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  /// What was pushed after the last mark.
  std::vector<Ref> from_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value* value) { return value->kind == Kind::mark; });
    if (mark == stack_.rend()) throw BadText("the pickle has no mark");
    std::vector<Ref> items(mark.base(), stack_.end());
    stack_.resize(stack_.size() - items.size() - 1);
    return items;
  }
  /// Adds to the list or dict on the stack.
  void extend(const std::vector<Ref>& items, Kind kind) {
    const Kind found = stack_.empty() ? Kind::none : stack_.back()->kind;
    if ((found != kind && found != Kind::opaque) || (kind == Kind::dict && items.size() % 2 != 0))
      throw BadText("the pickle adds to what is neither list nor dict");
    std::vector<Ref>& own = stack_.back()->items;
    own.insert(own.end(), items.begin(), items.end());
  }
  void remember(std::uint64_t key) {
    if (stack_.empty()) throw BadText("the pickle takes a value that is not there");
    memo_[key] = stack_.back();
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) throw BadText("the pickle takes a value that is not there");
    stack_.push_back(found->second);
  }

  void step(std::uint8_t code) {
    if (step_number(code) || step_text(code) || step_group(code) || step_memo(code)) return;
    if (step_call(code)) return;
    throw BadText("the pickle has an operation that does not describe data: byte " +
                  std::to_string(code));
  }
  bool step_number(std::uint8_t code) {
    switch (code) {
      case 'K':
        push_number(byte());
        return true;
      case 'M':
        push_number(little<std::uint16_t>());
        return true;
      case 'J':
        push_number(little<std::int32_t>());
        return true;
      case 0x88:
      case 0x89:
        push_number(code == 0x88 ? 1 : 0);
        return true;
      case 'G':  // a float: 8 bytes
        take(8);
        push({});
        return true;
      case 'N':
        push({});
        return true;
      case 0x8A:
        push_integer(byte());
        return true;
      case 0x8B:
        push_integer(little<std::uint32_t>());
        return true;
      default:
        return false;
    }
  }
  /// An integer of any size.
  void push_integer(std::uint64_t size) {
    const auto digits = take(size);
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
        push_text(text(little<std::uint32_t>()));
        return true;
      case 0x8C:
      case 'C':
      case 'U':
        push_text(text(byte()));
        return true;
      case 0x8D:
      case 0x8E:
      case 0x96:  // a bytearray
        push_text(text(little<std::uint64_t>()));
        return true;
      case 'c': {
        const std::string_view module = line();
        push({.kind = Kind::global, .text = line(), .module = module});
        return true;
      }
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
      case 0x80:  // version
        byte();
        return true;
      case 0x95:  // frame
        take(8);
        return true;
      case 'q':
        remember(byte());
        return true;
      case 'r':
        remember(little<std::uint32_t>());
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'h':
        recall(byte());
        return true;
      case 'j':
        recall(little<std::uint32_t>());
        return true;
      case '0':
        pop();
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
    if (!is_right) throw BadText("the pickle refers to something that is not a storage");
    return {.kind = Kind::storage, .text = id.items[2]->text, .items = {id.items[1]}};
  }
  /// What a call gives: `call` has the function and the list of its arguments.
  void push_result(std::vector<Ref> call) {
    const Value& function = *call[0];
    const std::vector<Ref>& given = call[1]->items;
    if (makes_parameter(function) && !given.empty() && given[0]->kind == Kind::tensor) {
      stack_.push_back(given[0]);
    } else if (makes_tensor(function)) {
      push({.kind = Kind::tensor, .items = std::move(call)});
    } else if (makes_dict(function, given)) {
      push({.kind = Kind::dict});
    } else {
      push_opaque(std::move(call));
    }
  }
  /// Dicts have attributes, too, such as the versions of modules: they hold no tensors.
  void set_attributes(Ref attributes) {
    const Kind kind = stack_.empty() ? Kind::none : stack_.back()->kind;
    if (kind == Kind::opaque) {
      stack_.back()->items.push_back(attributes);
    } else if (kind != Kind::dict) {
      throw BadText("the pickle sets attributes of a value that has none");
    }
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::deque<Value> values_;
  std::vector<Ref> stack_;
  std::map<std::uint64_t, Ref> memo_;
};

}  // namespace

Pickle read_pickle(std::span<const std::uint8_t> bytes) { return Unpickler(bytes).run(); }

}  // namespace tessera::foreign
