#include "forecast/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/ops.h"

namespace tessera::forecast {

namespace {

/// The number of consecutive messages with which n devices gather or reduce.
double rounds(double n) {
  const bool halves = std::exp2(std::round(std::log2(n))) == n;
  return halves ? std::log2(n) : n - 1;
}

bool is_gathering(std::string_view kind) {
  return kind == "all_gather" || kind == "reduce_scatter" || kind == "all_reduce";
}

void add_new(AtomList& list, AtomId atom) {
  if (!contains(list, atom)) list.push_back(atom);
}

/// The atoms that only one of the two lists has after their common prefix.
void add_changed(const AtomList& a, const AtomList& b, AtomList& changed) {
  const auto [rest_a, rest_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  for (auto atom = rest_a; atom != a.end(); ++atom) add_new(changed, *atom);
  for (auto atom = rest_b; atom != b.end(); ++atom) add_new(changed, *atom);
}

/// The atoms along which an equation moves data. An op that permutes slices counts with all atoms
/// of its operand.
AtomList moved_atoms(const ir::Function& function, const ir::Equation& equation) {
  const Sharding& from = function.sharding(equation.operands[0]);
  const Sharding& to = function.sharding(equation.results[0]);
  AtomList moved;
  if (equation.op == &ops::all_reduce_op || equation.op == &ops::reduce_scatter_op) {
    for (const AtomId atom : from.partial) {
      if (!contains(to.partial, atom)) moved.push_back(atom);
    }
    return moved;
  }
  for (const Window& window : to.windows) {
    for (const AtomId atom : from.dims[window.dim]) add_new(moved, atom);
  }
  const bool is_same = from.dims == to.dims;
  for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
    if (window_of(to, dim) != nullptr) continue;
    if (is_same && to.windows.empty()) {
      for (const AtomId atom : from.dims[dim]) add_new(moved, atom);
    } else if (dim < to.dims.size()) {
      add_changed(from.dims[dim], to.dims[dim], moved);
    }
  }
  return moved;
}

/// The device with the largest tiles: shards differ by at most one, and the last is the largest.
std::int64_t last_position(const Mesh& mesh) {
  return std::max<std::int64_t>(1, mesh.num_devices()) - 1;
}

std::int64_t node_of(std::int64_t group, std::int64_t devices, std::int64_t device,
                     const Cluster& cluster) {
  return (group * devices + device) / cluster.devices_per_node;
}

}  // namespace

Reach reach_of(const ir::Function& function, const ir::Equation& collective, std::int64_t group,
               const Cluster& cluster) {
  const Mesh& mesh = function.mesh;
  const std::vector<Atom> atoms = atoms_of(mesh);
  const AtomList moved = moved_atoms(function, collective);
  const std::vector<std::int64_t> ids = mesh.device_ids();
  const auto devices = static_cast<std::int64_t>(ids.size());
  const AtomDigits mine = position_digits(atoms, last_position(mesh));
  const std::int64_t home = node_of(group, devices, ids.back(), cluster);
  Reach reach{.size = 0, .within = 0, .sharers = 0};
  std::map<std::int64_t, std::int64_t> members;  // by node
  for (std::int64_t position = 0; position < devices; ++position) {
    const std::int64_t node =
        node_of(group, devices, ids[static_cast<std::size_t>(position)], cluster);
    reach.sharers += node == home ? 1 : 0;
    const AtomDigits digits = position_digits(atoms, position);
    bool is_member = true;
    for (std::size_t atom = 0; atom < atoms.size(); ++atom) {
      is_member &= digits[atom] == mine[atom] || contains(moved, static_cast<AtomId>(atom));
    }
    if (!is_member) continue;
    ++reach.size;
    ++members[node];
  }
  reach.within = reach.size;
  for (const auto& [node, count] : members) reach.within = std::min(reach.within, count);
  return reach;
}

Reach reach_of_transfer(const Mesh& mesh, std::int64_t from, std::int64_t to,
                        const Cluster& cluster) {
  const std::int64_t devices = std::max<std::int64_t>(1, mesh.num_devices());
  const std::int64_t last = mesh.device_ids().back();
  const std::int64_t home = node_of(from, devices, last, cluster);
  Reach reach{.size = 2, .within = 2, .sharers = 0};
  if (home == node_of(to, devices, last, cluster)) return reach;
  reach.within = 1;
  for (std::int64_t device = 0; device < devices; ++device) {
    reach.sharers += node_of(from, devices, device, cluster) == home ? 1 : 0;
  }
  return reach;
}

Exchange exchange(std::string_view kind, double wire_bytes, const Reach& reach,
                  const Cluster& cluster) {
  const auto n = static_cast<double>(reach.size);
  const auto m = static_cast<double>(reach.within);
  if (n <= 1) return {};
  double share = 1;  // the share of the bytes that comes from other nodes
  double messages_within = 0;
  double messages_between = 1;
  double sharers = static_cast<double>(reach.sharers);
  if (m == n) {
    share = 0;
    messages_between = 0;
    messages_within = 1;
  }
  if (is_gathering(kind)) {
    const double halves = kind == "all_reduce" ? 2 : 1;
    share = (n - m) / (m * (n - 1));
    messages_within = halves * rounds(m);
    messages_between = halves * rounds(n / m);
  } else if (kind == "all_to_all") {
    share = (n - m) / (n - 1);
    messages_within = m - 1;
    messages_between = n - m;
  } else if (kind == "halo_exchange") {
    // Only the first and the last device of a node have neighbours in other nodes.
    sharers = std::max(1.0, sharers / m);
  }
  Exchange result{.bytes_within = wire_bytes * (1 - share), .bytes_between = wire_bytes * share};
  result.seconds = messages_within * cluster.node_latency + messages_between * cluster.latency +
                   result.bytes_within / cluster.node_bandwidth +
                   result.bytes_between * sharers / cluster.bandwidth;
  return result;
}

}  // namespace tessera::forecast
