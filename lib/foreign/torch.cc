// Reads what torch.save writes: an archive with a pickle, whose tensors refer to other files of the
// archive. The interpreter knows the operations that describe data, and five functions.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "checkpoint/json.h"
#include "foreign/foreign.h"

namespace tessera::foreign {

const char* storage_name(DType dtype) {
  static constexpr const char* kNames[] = {
      "BoolStorage",     "CharStorage",  "ShortStorage", "IntStorage", "LongStorage",
      "ByteStorage",     nullptr,        nullptr,        nullptr,      "HalfStorage",
      "BFloat16Storage", "FloatStorage", "DoubleStorage"};
  static_assert(std::size(kNames) == std::size(kAllDTypes));
  return kNames[static_cast<std::size_t>(dtype)];
}

namespace {

using checkpoint::BadText;

/// A value of the pickle. The Unpickler owns all of them: they may refer to each other in circles,
/// and to any depth.
struct Value;
using Ref = Value*;
struct Storage {
  std::string dtype, key;
};
struct Value {
  enum class Kind : std::uint8_t { none, number, text, list, dict, global, storage, tensor, mark };
  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string text = {};        // also the name of a global
  std::vector<Ref> items = {};  // a dict has keys and values in turns
  Storage storage = {};
  std::int64_t offset = 0;
  Shape shape = {}, strides = {};
};
using Kind = Value::Kind;

std::string dtype_of_storage(const std::string& name) {
  for (const DType dtype : kAllDTypes) {
    const char* const storage = storage_name(dtype);
    if (storage != nullptr && name == std::string("torch ") + storage) {
      return checkpoint::safetensors_name(dtype);
    }
  }
  return name.substr(name.find(' ') + 1);
}

/// `torch uint16` -> U16; other names as they are.
std::string dtype_named(const std::string& name) {
  for (const DType dtype : kAllDTypes) {
    const bool has_name = storage_name(dtype) == nullptr;
    if (has_name && name == std::string("torch ") + numpy_name(dtype)) {
      return checkpoint::safetensors_name(dtype);
    }
  }
  return name.substr(name.find(' ') + 1);
}

class Unpickler {
 public:
  explicit Unpickler(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  Ref run() {
    for (;;) {
      const std::uint8_t code = byte();
      if (code == '.') return pop();
      step(code);
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
  std::string text(std::uint64_t size) {
    const auto found = take(size);
    return {found.begin(), found.end()};
  }
  std::string line() {
    std::string found;
    for (std::uint8_t c = byte(); c != '\n'; c = byte()) found += static_cast<char>(c);
    return found;
  }

  Ref pop() {
    if (stack_.empty()) throw BadText("the pickle takes a value that is not there");
    const Ref value = stack_.back();
    stack_.pop_back();
    return value;
  }
  void push(Value value) { stack_.push_back(&values_.emplace_back(std::move(value))); }
  void push_number(std::int64_t number) { push({.kind = Kind::number, .number = number}); }
  void push_text(std::string value) { push({.kind = Kind::text, .text = std::move(value)}); }
  void push_list(std::vector<Ref> items) { push({.kind = Kind::list, .items = std::move(items)}); }
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
    if (stack_.empty() || stack_.back()->kind != kind || (kind == Kind::dict && items.size() % 2))
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
    if (!step_number(code) && !step_text(code) && !step_group(code)) step_other(code);
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
      case 0x8A: {  // an integer of any size
        const auto digits = take(byte());
        if (digits.size() > 8) throw BadText("the pickle has a number of more than 64 bits");
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < digits.size(); ++i) value |= std::uint64_t{digits[i]} << 8 * i;
        const bool is_negative = !digits.empty() && digits.back() >= 0x80;
        if (is_negative && digits.size() < 8) value |= ~std::uint64_t{0} << 8 * digits.size();
        push_number(static_cast<std::int64_t>(value));
        return true;
      }
      default:
        return false;
    }
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
      case 'c': {
        const std::string module = line();
        push({.kind = Kind::global, .text = module + " " + line()});
        return true;
      }
      case 0x93: {
        const std::vector<Ref> names = last(2);
        push({.kind = Kind::global, .text = names[0]->text + " " + names[1]->text});
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
        extend(from_mark(), Kind::list);
        return true;
      default:
        return false;
    }
  }
  void step_other(std::uint8_t code) {
    switch (code) {
      case 0x80:  // version
        byte();
        return;
      case 0x95:  // frame
        take(8);
        return;
      case 'q':
        return remember(byte());
      case 'r':
        return remember(little<std::uint32_t>());
      case 0x94:
        return remember(memo_.size());
      case 'h':
        return recall(byte());
      case 'j':
        return recall(little<std::uint32_t>());
      case '0':
        pop();
        return;
      case 'Q':
        return push(storage_of(*pop()));
      case 'R': {
        const std::vector<Ref> call = last(2);
        return push(result_of(*call[0], *call[1]));
      }
      case 'b':  // attributes of a dict, such as the versions of modules
        pop();
        if (!stack_.empty() && stack_.back()->kind == Kind::dict) return;
        break;
      default:
        break;
    }
    throw BadText("the pickle has an operation that does not describe data: byte " +
                  std::to_string(code));
  }

  static Value storage_of(const Value& id) {
    const bool is_right = id.kind == Kind::list && id.items.size() == 5 &&
                          id.items[0]->text == "storage" && id.items[1]->kind == Kind::global &&
                          id.items[2]->kind == Kind::text;
    if (!is_right) throw BadText("the pickle refers to something that is not a storage");
    return {.kind = Kind::storage,
            .storage = {.dtype = dtype_of_storage(id.items[1]->text), .key = id.items[2]->text}};
  }
  static Shape numbers_of(const Value& list) {
    Shape numbers;
    for (const Value* item : list.items) {
      if (item->kind != Kind::number || item->number < 0)
        throw BadText("a tensor has a size that is not a whole number of 0 or more");
      numbers.push_back(item->number);
    }
    return numbers;
  }
  static Value result_of(const Value& function, const Value& arguments) {
    const std::vector<Ref>& given = arguments.items;
    const bool is_v2 = function.text == "torch._utils _rebuild_tensor_v2" && given.size() >= 4;
    const bool is_v3 = function.text == "torch._utils _rebuild_tensor_v3" && given.size() >= 7 &&
                       given[6]->kind == Kind::global;
    if (function.kind == Kind::global && (is_v2 || is_v3) && given[0]->kind == Kind::storage &&
        given[1]->kind == Kind::number) {
      Storage storage = given[0]->storage;
      // Storages of newer dtypes are bytes; the tensor names its dtype.
      if (is_v3) storage.dtype = dtype_named(given[6]->text);
      return {.kind = Kind::tensor,
              .storage = std::move(storage),
              .offset = given[1]->number,
              .shape = numbers_of(*given[2]),
              .strides = numbers_of(*given[3])};
    }
    if (function.kind == Kind::global && function.text == "torch._utils _rebuild_parameter" &&
        !given.empty()) {
      return *given[0];
    }
    if (function.kind == Kind::global && function.text == "collections OrderedDict" &&
        given.empty()) {
      return {.kind = Kind::dict};
    }
    throw BadText("the pickle calls " + (function.text.empty() ? "an object" : function.text) +
                  ", which is not run");
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::deque<Value> values_;
  std::vector<Ref> stack_;
  std::map<std::uint64_t, Ref> memo_;
};

/// Copies the elements of a tensor, which may lie anywhere in its storage.
Tensor tensor_of(const Value& value, const std::string& name, const Bytes& storage) {
  Tensor tensor{.name = name, .dtype = value.storage.dtype, .shape = value.shape, .elements = {}};
  const std::size_t bytes = element_bytes(tensor.dtype);
  if (bytes == 0) return tensor;
  const std::size_t total = elements_bytes(tensor.dtype, tensor.shape);
  if (total == 0) return tensor;
  const auto most = static_cast<std::int64_t>(storage.size() / bytes);
  std::int64_t last = value.offset;
  bool fits = value.strides.size() == value.shape.size() && last >= 0 && last < most;
  for (std::size_t i = 0; fits && i < value.shape.size(); ++i) {
    std::int64_t reach = 0;
    fits = !__builtin_mul_overflow(value.shape[i] - 1, value.strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last) && last < most;
  }
  if (!fits) throw BadText(name + " is not inside its storage");
  // Such a tensor could be of any size.
  if (total > storage.size())
    throw BadText(name + " repeats its elements; save a copy: x.contiguous()");
  tensor.elements.resize(total);
  Shape index(value.shape.size(), 0);
  for (std::size_t at = 0; at < total; at += bytes) {
    std::int64_t from = value.offset;
    for (std::size_t i = 0; i < index.size(); ++i) from += index[i] * value.strides[i];
    std::memcpy(tensor.elements.data() + at,
                storage.data() + static_cast<std::size_t>(from) * bytes, bytes);
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < value.shape[i]) break;
      index[i] = 0;
    }
  }
  return tensor;
}

class Collector {
 public:
  explicit Collector(const std::vector<ZipEntry>& entries, std::string folder)
      : folder_(std::move(folder)) {
    for (const ZipEntry& entry : entries) files_[entry.name] = &entry.bytes;
  }
  void collect(const Value& value, const std::string& name, int level) {
    constexpr std::int64_t kMostValues = 10'000'000;
    if (level > kMostLevels || ++count_ > kMostValues) throw BadText("it is nested too deeply");
    const auto below = [&](const std::string& key) {
      return name.empty() ? key : name + "." + key;
    };
    if (value.kind == Kind::tensor) {
      const auto file = files_.find(folder_ + "data/" + value.storage.key);
      if (file == files_.end()) throw BadText("the archive has no storage for " + name);
      tensors.push_back(tensor_of(value, name, *file->second));
    } else if (value.kind == Kind::dict) {
      for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
        const Value& key = *value.items[i];
        collect(*value.items[i + 1],
                below(key.kind == Kind::number ? std::to_string(key.number) : key.text), level + 1);
      }
    } else if (value.kind == Kind::list) {
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        collect(*value.items[i], below(std::to_string(i)), level + 1);
      }
    }
  }
  std::vector<Tensor> tensors;

 private:
  std::string folder_;
  std::map<std::string, const Bytes*> files_;
  std::int64_t count_ = 0;
};

}  // namespace

std::vector<Tensor> read_torch(const std::vector<ZipEntry>& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(kPickle)) continue;
    Collector collector(entries, entry.name.substr(0, entry.name.size() - kPickle.size()));
    Unpickler unpickler(entry.bytes);
    collector.collect(*unpickler.run(), "", 0);
    return std::move(collector.tensors);
  }
  throw BadText("the archive has neither NumPy arrays nor PyTorch tensors");
}

}  // namespace tessera::foreign
