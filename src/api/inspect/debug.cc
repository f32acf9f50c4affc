// debug::callback and debug::print: the values of arrays while a program runs.
#include <algorithm>
#include <fmt/format.h>
#include <iostream>
#include <string_view>

#include <tessera/error.h>
#include <tessera/profile.h>

#include "api/inspect/call_when_run.h"
#include "api/operands.h"
#include "run/world.h"

namespace tessera::debug {

namespace {

using ops::HostArray;

Array number(const Operand& operand) {
  return detail::public_op(operand.where, [&] { return detail::as_array("debug", operand); });
}

}  // namespace

}  // namespace tessera::debug

namespace tessera::detail {

std::vector<Array> arrays_of(const std::vector<Operand>& operands) {
  std::vector<Array> arrays;
  for (const Operand& operand : operands) {
    arrays.push_back(operand.is_number() ? debug::number(operand) : operand.array);
  }
  return arrays;
}

ops::HostArray values_of(const Array& array) {
  return gather(tiles_of(array, call_span()), "debug", call_span());
}

Array array_with(const ops::HostArray& values) {
  PlacementPtr placement = replicated_placement(values.type(), Mesh());
  run::Tiles tiles = scatter(values, *placement);
  return make_concrete(std::move(placement), std::move(tiles));
}

ops::HostArray copy_of(const Type& type, const std::byte* elements) {
  ops::HostArray result(type);
  std::copy_n(elements, result.bytes().size(), result.bytes().begin());
  return result;
}

void call_when_run(Receiver receive, const std::vector<Operand>& operands,
                   const std::source_location& where) {
  using ops::HostArray;
  const CallScope scope(where);
  std::vector<Array> arrays = arrays_of(operands);
  // Every process computes what is printed, and the first one prints it.
  const bool is_first = run::world().rank() == 0;  // of the processes for which this is traced
  const auto receive_once = [receive = std::move(receive),
                             is_first](const std::vector<HostArray>& values) {
    if (is_first) receive(values);
  };
  if (trace::innermost() == nullptr) {
    std::vector<HostArray> values;
    for (const Array& array : arrays) values.push_back(values_of(array));
    return receive_once(values);
  }
  const auto call = [receive_once](std::span<const Type> types,
                                   std::span<const std::byte* const> data,
                                   std::span<std::byte* const> /*results*/) {
    std::vector<HostArray> values;
    for (std::size_t i = 0; i < types.size(); ++i) values.push_back(copy_of(types[i], data[i]));
    receive_once(values);
  };
  arrays.insert(arrays.begin(), filled(0.0, {DType::u32, {}}));
  using Call = ir::HostCallback::Call;
  emit("host_callback", arrays,
       {{"callback", ir::HostCallback{std::make_shared<const Call>(call)}},
        {"num_batch", std::int64_t{0}}});
}

}  // namespace tessera::detail

namespace tessera::debug {

namespace {

// --- text

/// Beyond this many elements only the first and the last of each dimension are shown.
constexpr std::int64_t kShown = 1000;
constexpr std::int64_t kEdge = 3;

/// The elements of an array as nested lists, one row per line.
template <typename T>
class ListText {
 public:
  ListText(const HostArray& array, const std::string& format)
      : shape_(array.type().shape),
        elements_(array.data<T>()),
        format_(format),
        is_short_(num_elements(shape_) > kShown) {}

  std::string text() {
    append(0, 0);
    return std::move(text_);
  }

 private:
  void append(std::size_t dim, std::size_t index) {
    if (dim == shape_.size()) {
      using Shown = std::conditional_t<detail::kIsHalf<T>, float, T>;
      text_ += fmt::format(fmt::runtime(format_), Shown{elements_[index]});
      return;
    }
    const std::int64_t size = shape_[dim];
    const bool is_cut = is_short_ && size > 2 * kEdge;
    text_ += '[';
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) separate(dim);
      if (is_cut && i == kEdge) {
        text_ += "...";
        separate(dim);
        i = size - kEdge;
      }
      append(dim + 1, index * static_cast<std::size_t>(size) + static_cast<std::size_t>(i));
    }
    text_ += ']';
  }

  void separate(std::size_t dim) {
    const bool is_last = dim + 1 == shape_.size();
    text_ += is_last ? ", " : ",\n" + std::string(dim + 1, ' ');
  }

  const Shape& shape_;
  std::span<const T> elements_;
  const std::string& format_;
  bool is_short_;
  std::string text_;
};

std::string text_of(const HostArray& array, const std::string& format) {
  return ops::dispatch(array.type().dtype,
                       [&](auto zero) { return ListText<decltype(zero)>(array, format).text(); });
}

/// A format string cut at its arrays: text before each of them, and behind the last one.
struct Parts {
  std::vector<std::string> texts = {""};
  std::vector<std::string> formats;  // of elements: `{}`, `{:.3f}`
};

[[noreturn]] void fail(const Format& format, const std::string& what, const std::string& wanted,
                       const std::string& cure) {
  throw UserError({.what = "debug: " + what,
                   .where = trace::call_span(format.where),
                   .found = "\"" + format.text + "\"",
                   .wanted = wanted,
                   .cure = cure});
}

Parts parse(const Format& format) {
  Parts parts;
  const std::string_view text = format.text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_doubled = i + 1 < text.size() && text[i + 1] == text[i];
    const bool is_brace = text[i] == '{' || text[i] == '}';
    if (!is_brace || is_doubled) {
      parts.texts.back() += text[i];
      i += static_cast<std::size_t>(is_brace);
      continue;
    }
    const std::size_t end = text.find('}', i);
    const std::string_view inside = text.substr(i, end - i);
    if (end == std::string_view::npos || text[i] == '}' || (inside != "{" && inside[1] != ':')) {
      fail(format, "the format string has a brace that is not part of a placeholder",
           "{} for an array, or {:.3f} with the format of its elements",
           "write {{ and }} for literal braces");
    }
    parts.formats.emplace_back(text.substr(i, end - i + 1));
    parts.texts.emplace_back();
    i = end;
  }
  return parts;
}

void check_formats(const Format& format, const Parts& parts, const std::vector<Operand>& operands) {
  if (parts.formats.size() != operands.size()) {
    fail(format, "the format string does not have one placeholder per array",
         fmt::format("{} placeholders, one for each array", operands.size()),
         "write one {} for each array");
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Type type{detail::common_dtype("debug", {operands[i]}), {}};
    try {
      text_of(HostArray(type), parts.formats[i]);
    } catch (const fmt::format_error&) {
      fail(format,
           fmt::format("{} is not a valid format for {}", parts.formats[i], name(type.dtype)),
           "a format that std::format accepts for such a number", "write {} for the shortest form");
    }
  }
}

std::string joined(const Parts& parts, const std::vector<HostArray>& values) {
  std::string text = parts.texts[0];
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += text_of(values[i], parts.formats[i]) + parts.texts[i + 1];
  }
  return text;
}

}  // namespace

void print(std::ostream& stream, const Format& format, const std::vector<Operand>& operands) {
  const CallScope scope(format.where);
  const Parts parts = parse(format);
  check_formats(format, parts, operands);
  const auto receive = [parts, &stream](const std::vector<HostArray>& values) {
    const std::string line = joined(parts, values) + '\n';
    stream << line << std::flush;
  };
  detail::call_when_run(receive, operands, format.where);
}

void check(const Operand& holds, const Format& format, const std::vector<Operand>& operands) {
  const CallScope scope(format.where);
  const Parts parts = parse(format);
  check_formats(format, parts, operands);
  const DType dtype = detail::common_dtype("debug::check", {holds});
  if (dtype != DType::boolean) {
    throw UserError({.what = "debug::check: the condition is not an array of bools",
                     .where = trace::call_span(format.where),
                     .found = std::string(name(dtype)),
                     .wanted = "bool",
                     .cure = "compare first, for example x > 0"});
  }
  const auto receive = [parts, where = detail::call_span()](std::vector<HostArray> values) {
    const auto elements = values[0].data<bool>();
    const auto count = std::count(elements.begin(), elements.end(), false);
    if (count == 0) return;
    const std::int64_t size = std::ssize(elements);
    values.erase(values.begin());
    throw UserError(
        {.what = joined(parts, values),
         .where = where,
         .found = fmt::format("{} of {} elements of the condition are false", count, size),
         .wanted = "a condition that is true for all elements, as debug::check requires",
         .cure = "use debug::print to look at the values that the condition depends on"});
  };
  std::vector<Operand> all = {holds};
  all.insert(all.end(), operands.begin(), operands.end());
  detail::call_when_run(receive, all, format.where);
}

void print(const Format& format, const std::vector<Operand>& operands) {
  print(std::cout, format, operands);
}

}  // namespace tessera::debug

namespace tessera::detail {

void callback(Callback f, const std::vector<Operand>& operands, const std::source_location& where) {
  const auto receive = [f = std::move(f)](const std::vector<ops::HostArray>& values) {
    std::vector<Array> arrays;
    for (const ops::HostArray& value : values) arrays.push_back(array_with(value));
    f(arrays);
  };
  call_when_run(receive, operands, where);
}

}  // namespace tessera::detail
