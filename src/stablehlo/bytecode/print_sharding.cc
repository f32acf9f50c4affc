// Meshes and shardings as text.
#include <array>
#include <span>

#include "stablehlo/bytecode/print_attribute.h"

namespace tessera::stablehlo::bytecode {

namespace {

using Kind = Attribute::Kind;
using Items = std::span<const Attribute* const>;

void append_axis(std::string& text, const Attribute& axis) {
  append_quoted(text, axis.text);
  if (axis.items.empty() || axis.items[0]->numbers.size() < 2) return;
  const std::vector<std::int64_t>& part = axis.items[0]->numbers;
  text += ":(" + std::to_string(part[0]) + ")" + std::to_string(part[1]);
}

void append_axes(std::string& text, Items axes) {
  append_list(text, axes, [&](const Attribute* axis) { append_axis(text, *axis); });
}

void append_dimension(std::string& text, const Attribute& dimension) {
  text += '{';
  append_axes(text, dimension.items);
  const bool is_closed = dimension.numbers[0] != 0;
  if (!is_closed) text += dimension.items.empty() ? "?" : ", ?";
  text += '}';
  if (dimension.numbers[1] >= 0) text += "p" + std::to_string(dimension.numbers[1]);
}

void append_mesh(std::string& text, const Attribute& mesh) {
  text += "mesh<[";
  append_list(text, mesh.items, [&](const Attribute* axis) {
    append_quoted(text, axis->text);
    text += "=" + std::to_string(axis->numbers.empty() ? 0 : axis->numbers[0]);
  });
  text += ']';
  if (!mesh.numbers.empty()) {
    text += ", device_ids=";
    append_numbers(text, mesh.numbers);
  }
  text += '>';
}

/// The reduction of the terms along unreduced axes; sums have no name.
std::string_view reduction_name(std::int64_t number) {
  constexpr std::array<std::string_view, 3> kNames = {"", "max", "min"};
  const auto index = static_cast<std::size_t>(number);
  return index < kNames.size() ? kNames.at(index) : "unknown";
}

void append_sharding(std::string& text, const Attribute& sharding) {
  text += '<';
  const Attribute& mesh = *sharding.items[0];
  if (mesh.kind == Kind::mesh) {
    append_mesh(text, mesh);
  } else {
    append_attribute(text, mesh);
  }
  Items rest = Items(sharding.items).subspan(1);
  auto take = [&](std::size_t list) {
    const auto count = static_cast<std::size_t>(sharding.numbers[list]);
    const Items result = rest.first(count);
    rest = rest.subspan(count);
    return result;
  };
  text += ", [";
  append_list(text, take(0), [&](const Attribute* item) {
    if (item->kind == Kind::dimension) append_dimension(text, *item);
  });
  text += ']';
  constexpr std::array<std::string_view, 2> kNames = {"replicated", "unreduced"};
  for (std::size_t list = 0; list < kNames.size(); ++list) {
    const Items axes = take(list + 1);
    if (axes.empty()) continue;
    text.append(", ").append(kNames.at(list)).append("=");
    if (list == 1) text += reduction_name(sharding.numbers[3]);
    text += '{';
    append_axes(text, axes);
    text += '}';
  }
  text += '>';
}

/// i, j, ..., z, z_1, ...
std::string factor_name(std::int64_t factor) {
  constexpr std::int64_t kLetters = 'z' - 'i';
  if (factor >= 0 && factor <= kLetters) return {static_cast<char>('i' + factor)};
  return "z_" + std::to_string(factor - kLetters);
}

void append_factors(std::string& text, const Attribute& tensor) {
  text += '[';
  append_list(text, tensor.items, [&](const Attribute* dimension) {
    for (const std::int64_t factor : dimension->numbers) text += factor_name(factor);
  });
  text += ']';
}

void append_sharding_rule(std::string& text, const Attribute& rule) {
  auto tensors = [&](Items items) {
    text += '(';
    append_list(text, items, [&](const Attribute* item) { append_factors(text, *item); });
    text += ')';
  };
  const auto operands = static_cast<std::size_t>(rule.numbers[0]);
  text += "#sdy.op_sharding_rule<";
  tensors(Items(rule.items).first(operands));
  text += "->";
  tensors(Items(rule.items).subspan(operands));
  std::span<const std::int64_t> rest = std::span(rule.numbers).subspan(2);
  auto take = [&] {
    const auto count = static_cast<std::size_t>(rest[0]);
    const std::span<const std::int64_t> result = rest.subspan(1, count);
    rest = rest.subspan(1 + count);
    return result;
  };
  std::int64_t factor = 0;
  text += " {";
  append_list(text, take(), [&](std::int64_t size) {
    text += factor_name(factor++) + "=" + std::to_string(size);
  });
  text += '}';
  for (const char* name : {"reduction", "need_replication", "permutation", "blocked_propagation"}) {
    const std::span<const std::int64_t> list = take();
    if (list.empty()) continue;
    text.append(" ").append(name) += "={";
    append_list(text, list, [&](std::int64_t each) { text += factor_name(each); });
    text += '}';
  }
  text += rule.numbers[1] != 0 ? ", custom>" : ">";
}

}  // namespace

void append_sdy(std::string& text, const Attribute& attribute) {
  switch (attribute.kind) {
    case Kind::manual_axes:
      text += "#sdy<manual_axes{";
      append_list(text, attribute.items,
                  [&](const Attribute* item) { append_attribute(text, *item); });
      text += "}>";
      break;
    case Kind::mesh:
      text += "#sdy.";
      append_mesh(text, attribute);
      break;
    case Kind::sharding:
      text += "#sdy.sharding";
      append_sharding(text, attribute);
      break;
    case Kind::shardings:
      text += "#sdy.sharding_per_value<[";
      append_list(text, attribute.items, [&](const Attribute* item) {
        if (item->kind == Kind::sharding) append_sharding(text, *item);
      });
      text += "]>";
      break;
    case Kind::axes:
      text += "#sdy<axis_ref_list{";
      append_axes(text, attribute.items);
      text += "}>";
      break;
    case Kind::sharding_rule:
      append_sharding_rule(text, attribute);
      break;
    case Kind::dimension:
      text += "#sdy.dimension_sharding<";
      append_dimension(text, attribute);
      text += '>';
      break;
    default:
      text += "#sdy.axis_ref<";
      append_axis(text, attribute);
      text += '>';
  }
}

}  // namespace tessera::stablehlo::bytecode
