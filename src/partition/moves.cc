#include "partition/moves.h"

#include <algorithm>
#include <array>
#include <bit>

#include "ops/ops.h"
#include "partition/project.h"

namespace tessera::partition {

namespace {

const std::array<const ops::OpRecord*, 7>& move_ops() {
  static const std::array<const ops::OpRecord*, 7> ops{
      &ops::all_slice_op,          &ops::all_gather_op,    &ops::all_to_all_op,
      &ops::collective_permute_op, &ops::halo_exchange_op, &ops::reduce_scatter_op,
      &ops::all_reduce_op};
  return ops;
}

/// Dimensions whose atoms differ.
std::vector<std::size_t> changed_dims(const Sharding& from, const Sharding& to) {
  std::vector<std::size_t> changed;
  for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
    if (from.dims[dim] != to.dims[dim]) changed.push_back(dim);
  }
  return changed;
}

/// The atoms of `longer` after its prefix `shorter`.
AtomList rest_after(const AtomList& shorter, const AtomList& longer) {
  return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
}

bool is_appended(const AtomList& shorter, const AtomList& longer, const AtomList& rest) {
  return is_prefix(shorter, longer) && rest_after(shorter, longer) == rest;
}

bool is_all_to_all(const Sharding& from, const Sharding& to) {
  const std::vector<std::size_t> changed = changed_dims(from, to);
  if (changed.size() != 2) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t source = changed[i];
    const std::size_t target = changed[1 - i];
    if (is_prefix(to.dims[source], from.dims[source]) &&
        is_appended(from.dims[target], to.dims[target],
                    rest_after(to.dims[source], from.dims[source]))) {
      return true;
    }
  }
  return false;
}

/// Whether `to` keeps some partial atoms of `from` and resolves the others.
bool may_go(const Sharding& from, const Sharding& to, const std::vector<Atom>& atoms,
            bool is_order_free) {
  const AtomList resolved = resolved_atoms(from, to);
  if (resolved.size() + to.partial.size() != from.partial.size()) return false;
  if (is_order_free) return !resolved.empty() && resolved_atoms(from, {{}, resolved}) == to.partial;
  return is_prefix(to.partial, from.partial) &&
         may_resolve(from.partial, resolved.size(), atoms, is_order_free);
}

bool is_reduction(MoveKind kind, const Sharding& from, const Sharding& to,
                  const std::vector<Atom>& atoms, bool is_order_free) {
  if (!may_go(from, to, atoms, is_order_free)) return false;
  const std::vector<std::size_t> changed = changed_dims(from, to);
  if (kind == MoveKind::all_reduce) return changed.empty();
  if (changed.size() != 1) return false;
  const AtomList& before = from.dims[changed[0]];
  const AtomList& after = to.dims[changed[0]];
  const AtomList resolved = resolved_atoms(from, to);
  if (!is_order_free) return is_appended(before, after, resolved);
  return is_prefix(before, after) &&
         std::is_permutation(resolved.begin(), resolved.end(),
                             after.begin() + static_cast<std::ptrdiff_t>(before.size()),
                             after.end());
}

}  // namespace

const ops::OpRecord& op_of(MoveKind kind) { return *move_ops()[static_cast<std::size_t>(kind)]; }

std::optional<MoveKind> kind_of(const ops::OpRecord& op) {
  for (std::size_t i = 0; i < move_ops().size(); ++i) {
    if (move_ops()[i] == &op) return static_cast<MoveKind>(i);
  }
  return std::nullopt;
}

AtomList resolved_atoms(const Sharding& from, const Sharding& to) {
  AtomList resolved;
  for (AtomId atom : from.partial) {
    if (!contains(to.partial, atom)) resolved.push_back(atom);
  }
  return resolved;
}

bool may_resolve(const AtomList& partial, std::size_t count, const std::vector<Atom>& atoms,
                 bool is_order_free) {
  if (count == 0 || count > partial.size()) return false;
  if (is_order_free || count == partial.size()) return true;
  std::int64_t shards = 1;
  for (std::size_t i = partial.size() - count; i < partial.size(); ++i) {
    shards *= atoms[partial[i]].size;
  }
  return std::has_single_bit(static_cast<std::uint64_t>(shards));
}

bool is_allowed(MoveKind kind, const Sharding& from, const Sharding& to,
                const std::vector<Atom>& atoms, bool is_order_free) {
  if (from.dims.size() != to.dims.size()) return false;
  if (kind == MoveKind::halo_exchange) return false;
  if (!from.windows.empty() || !to.windows.empty()) return false;
  if (is_reducing(kind)) return is_reduction(kind, from, to, atoms, is_order_free);
  if (!from.partial.empty() || !to.partial.empty() || from == to) return false;
  switch (kind) {
    case MoveKind::all_slice:
      return std::equal(from.dims.begin(), from.dims.end(), to.dims.begin(), is_prefix);
    case MoveKind::all_gather:
      return std::equal(to.dims.begin(), to.dims.end(), from.dims.begin(), is_prefix);
    case MoveKind::all_to_all:
      return is_all_to_all(from, to);
    default:
      return std::equal(from.dims.begin(), from.dims.end(), to.dims.begin(),
                        [&](const AtomList& a, const AtomList& b) {
                          return num_shards(atoms, a) == num_shards(atoms, b);
                        });
  }
}

std::optional<MoveKind> kind_to_windows(const Mesh& mesh, const Type& type, const Sharding& from,
                                        const Sharding& to) {
  if (!from.windows.empty() || !from.partial.empty() || !to.partial.empty()) return std::nullopt;
  for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
    const bool is_window = window_of(to, dim) != nullptr;
    if (!is_window && !is_prefix(from.dims[dim], to.dims[dim])) return std::nullopt;
  }
  const bool is_held =
      most_received(mesh, Layout(mesh, from, type.shape), Layout(mesh, to, type.shape)) == 0;
  return is_held ? MoveKind::all_slice : MoveKind::halo_exchange;
}

std::int64_t group_size(MoveKind kind, const Sharding& from, const Sharding& to,
                        const std::vector<Atom>& atoms) {
  std::int64_t count = 1;
  switch (kind) {
    case MoveKind::all_slice:
      return 1;
    case MoveKind::all_gather:
      return num_shards(atoms, used_atoms(from)) / num_shards(atoms, used_atoms(to));
    case MoveKind::all_to_all:
      for (std::size_t dim : changed_dims(from, to)) {
        if (from.dims[dim].size() < to.dims[dim].size()) continue;
        count = num_shards(atoms, from.dims[dim]) / num_shards(atoms, to.dims[dim]);
      }
      return count;
    case MoveKind::collective_permute:
      for (std::size_t atom = 0; atom < atoms.size(); ++atom) {
        const auto id = static_cast<AtomId>(atom);
        if (uses_atom(from, id) || uses_atom(to, id)) count *= atoms[atom].size;
      }
      return count;
    case MoveKind::halo_exchange:
      for (const Window& window : to.windows) count *= num_shards(atoms, from.dims[window.dim]);
      return count;
    case MoveKind::reduce_scatter:
    case MoveKind::all_reduce:
      break;
  }
  return num_shards(atoms, from.partial) / num_shards(atoms, to.partial);
}

AtomList moved_atoms(MoveKind kind, const Sharding& from, const Sharding& to) {
  if (is_reducing(kind)) return resolved_atoms(from, to);
  AtomList moved;
  for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
    const auto [old_rest, new_rest] = std::mismatch(from.dims[dim].begin(), from.dims[dim].end(),
                                                    to.dims[dim].begin(), to.dims[dim].end());
    moved.insert(moved.end(), old_rest, from.dims[dim].end());
    moved.insert(moved.end(), new_rest, to.dims[dim].end());
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  return moved;
}

MoveSize move_size(MoveKind kind, const Mesh& mesh, const Type& type, const Sharding& from,
                   const Sharding& to) {
  const bool is_halo = kind == MoveKind::halo_exchange;
  const Sharding& whole = kind == MoveKind::all_gather || is_halo ? to : from;
  const std::int64_t bytes =
      size_bytes(Type{type.dtype, Layout(mesh, whole, type.shape).max_tile_shape()});
  const std::int64_t n = group_size(kind, from, to, atoms_of(mesh));
  if (is_halo) {
    const std::int64_t received =
        most_received(mesh, Layout(mesh, from, type.shape), Layout(mesh, to, type.shape));
    return {
        .bytes = bytes, .wire_bytes = size_bytes(Type{type.dtype, {received}}), .group_size = n};
  }
  const std::int64_t others = kind == MoveKind::collective_permute ? n : n - 1;
  const std::int64_t rounds = kind == MoveKind::all_reduce ? 2 : 1;
  return {.bytes = bytes, .wire_bytes = bytes * others / n * rounds, .group_size = n};
}

double bytes_received(MoveKind kind, const Sharding& from, const Sharding& to,
                      const std::vector<Atom>& atoms, double bytes) {
  const auto shards = [&](const Sharding& sharding) {
    double count = 1;
    for (const AtomList& list : sharding.dims) {
      count *= static_cast<double>(num_shards(atoms, list));
    }
    return count;
  };
  const auto n = static_cast<double>(group_size(kind, from, to, atoms));
  const double local = bytes / shards(from);
  switch (kind) {
    case MoveKind::all_slice:
      return 0;
    case MoveKind::all_gather:
      return bytes / shards(to) - local;
    case MoveKind::all_to_all:
    case MoveKind::reduce_scatter:
      return local * (n - 1) / n;
    case MoveKind::collective_permute:
      return local;
    case MoveKind::halo_exchange:  // depends on the shape; see move_size
    case MoveKind::all_reduce:
      break;
  }
  return 2 * local * (n - 1) / n;
}

}  // namespace tessera::partition
