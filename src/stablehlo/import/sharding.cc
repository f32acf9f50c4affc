// Meshes and shardings of the dialect sdy.
#include <algorithm>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

Mesh mesh_of(const ModuleContext& context, const Operation& op, const Attribute& mesh) {
  std::vector<MeshAxis> axes;
  for (const Attribute* axis : mesh.items) {
    if (axis->kind != Kind::mesh_axis)
      fail_unsupported(context, op, "a mesh axis in an unknown form");
    axes.push_back({std::string(axis->text), axis->numbers[0]});
  }
  return Mesh(std::move(axes), mesh.numbers);
}

/// Whether shardings over one mesh are shardings over the other: the same devices in the same
/// order, whose axes have the same prime factors.
bool has_same_atoms(const Mesh& a, const Mesh& b) {
  const std::vector<Atom> first = atoms_of(a);
  const std::vector<Atom> second = atoms_of(b);
  const auto is_same = [](const Atom& x, const Atom& y) { return x.size == y.size; };
  return a.device_ids() == b.device_ids() &&
         std::equal(first.begin(), first.end(), second.begin(), second.end(), is_same);
}

}  // namespace

void read_mesh(ModuleContext& context) {
  for (const Region& region : context.module.root.regions) {
    for (const Operation& op : region.operations) {
      const Attribute* mesh = op.name == "sdy.mesh" ? op.find("mesh") : nullptr;
      if (mesh == nullptr || mesh->kind != Kind::mesh || mesh->items.empty()) continue;
      const Mesh read = mesh_of(context, op, *mesh);
      if (read.axes().empty()) continue;  // for values on one device, or on all
      if (context.mesh == Mesh()) context.mesh = read;
      if (!has_same_atoms(read, context.mesh)) {
        fail_unsupported(
            context, op,
            "a mesh whose device ids or axis-size factors differ from those of the first mesh");
      }
      context.meshes[text_of(op, "sym_name")] = read;
    }
  }
}

Sharding sharding_of(const ModuleContext& context, const Attribute& attribute, const Type& type,
                     const Operation& op) {
  auto need = [&](bool holds, const char* reason) {
    if (!holds) fail_unsupported(context, op, reason);
  };
  need(attribute.kind == Kind::sharding, "a sharding in an unknown form");
  const auto rank = static_cast<std::size_t>(attribute.numbers[0]);
  need(rank == type.shape.size(), "a sharding of the wrong rank");
  const auto found = context.meshes.find(attribute.items[0]->text);
  const Mesh& mesh = found == context.meshes.end() ? context.mesh : found->second;
  std::vector<SpecEntry> entries;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < rank; ++i) {
    const Attribute& dimension = *attribute.items[1 + i];
    need(dimension.kind == Kind::dimension, "the sharding of a dimension in an unknown form");
    SpecEntry entry{none};
    for (const Attribute* axis : dimension.items) {
      need(axis->kind == Kind::axis && axis->items.empty(), "a part of an axis");
      entry.axes.emplace_back(axis->text);
    }
    entries.push_back(std::move(entry));
    if (dimension.numbers[0] == 0) open.push_back(i);
  }
  Sharding result = to_constraint(mesh, PartitionSpec(std::move(entries)), type, "stablehlo", {});
  result.open = std::move(open);
  return result;
}

}  // namespace tessera::stablehlo
