// Meshes and shardings of the dialect sdy.
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

}  // namespace

void read_mesh(ModuleContext& context) {
  for (const Region& region : context.module.root.regions) {
    for (const Operation& op : region.operations) {
      const Attribute* mesh = op.name == "sdy.mesh" ? op.find("mesh") : nullptr;
      if (mesh == nullptr || mesh->kind != Kind::mesh || mesh->items.empty()) continue;
      std::vector<MeshAxis> axes;
      for (const Attribute* axis : mesh->items) {
        if (axis->kind != Kind::mesh_axis) fail_unsupported(context, op, "an axis");
        axes.push_back({std::string(axis->text), axis->numbers[0]});
      }
      const Mesh read(std::move(axes), mesh->numbers);
      if (read.axes().empty()) continue;  // of what one device holds, or all hold
      if (context.mesh != Mesh() && read != context.mesh) {
        fail_unsupported(context, op, "a second mesh");
      }
      context.mesh = read;
    }
  }
}

std::vector<const Attribute*> unreduced_axes(const Attribute& sharding) {
  const auto first = static_cast<std::ptrdiff_t>(1 + sharding.numbers[0] + sharding.numbers[1]);
  return {sharding.items.begin() + first, sharding.items.begin() + first + sharding.numbers[2]};
}

Sharding sharding_of(const ModuleContext& context, const Attribute& attribute, const Type& type,
                     const Operation& op) {
  auto need = [&](bool holds, const char* reason) {
    if (!holds) fail_unsupported(context, op, reason);
  };
  need(attribute.kind == Kind::sharding, "a sharding of another kind");
  const auto rank = static_cast<std::size_t>(attribute.numbers[0]);
  need(rank == type.shape.size(), "a sharding of another rank");
  std::vector<SpecEntry> entries;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < rank; ++i) {
    const Attribute& dimension = *attribute.items[1 + i];
    need(dimension.kind == Kind::dimension, "a dimension of another kind");
    SpecEntry entry{none};
    for (const Attribute* axis : dimension.items) {
      need(axis->kind == Kind::axis && axis->items.empty(), "a part of an axis");
      entry.axes.emplace_back(axis->text);
    }
    entries.push_back(std::move(entry));
    if (dimension.numbers[0] == 0) open.push_back(i);
  }
  Sharding result =
      to_constraint(context.mesh, PartitionSpec(std::move(entries)), type, "stablehlo", {});
  result.open = std::move(open);
  return result;
}

}  // namespace tessera::stablehlo
