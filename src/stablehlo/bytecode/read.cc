#include <algorithm>

#include "stablehlo/bytecode/module.h"
#include "stablehlo/bytecode/nodes.h"
#include "stablehlo/bytecode/operations.h"
#include "stablehlo/bytecode/tables.h"

namespace tessera::stablehlo::bytecode {

const Attribute* Operation::find(std::string_view attribute) const {
  for (const auto* list : {&properties, &attributes}) {
    for (const auto& [each, value] : *list) {
      if (each == attribute) return value;
    }
  }
  return nullptr;
}

std::unique_ptr<const Module> read_module(std::string bytes) {
  auto module = std::make_unique<Module>();
  module->bytes = std::move(bytes);
  const Tables tables = Tables::read(module->bytes, module->operation_names);
  module->producer = tables.producer;
  Nodes nodes(*module, tables);
  module->root = read_root(*module, nodes);
  return module;
}

// JAX nests name(callsite(frame at caller)); the innermost frame of the program comes first.
Span line_of(const Attribute* location) {
  while (location != nullptr) {
    switch (location->kind) {
      case Attribute::Kind::file_location:
        return {std::string(location->text),
                location->numbers.empty() ? 0 : static_cast<std::uint32_t>(location->numbers[0])};
      case Attribute::Kind::name_location:
      case Attribute::Kind::call_location:
        location = location->items[0];
        break;
      case Attribute::Kind::fused_location:
        location = location->items.empty() ? nullptr : location->items[0];
        break;
      default:
        return {};
    }
  }
  return {};
}

}  // namespace tessera::stablehlo::bytecode
