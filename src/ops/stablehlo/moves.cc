// The collectives: how tiles of one sharding become tiles of another. All are written for replicas,
// without a partitioner. Where tiles differ in size, padding is cut out before tiles are joined.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>

#include <tessera/error.h>

#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops::hlo {

namespace {

/// The atoms of `longer` after its prefix `shorter`.
AtomList rest_after(const AtomList& shorter, const AtomList& longer) {
  return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
}

bool shares_atoms(const AtomList& a, const AtomList& b) {
  return std::any_of(a.begin(), a.end(), [&](AtomId atom) { return contains(b, atom); });
}

/// The operation that combines two elements.
std::string combiner_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::max:
      return "maximum";
    case Reduction::min:
      return "minimum";
    case Reduction::logical_and:
      return "and";
    case Reduction::logical_or:
      return "or";
    case Reduction::sum:
    case Reduction::bit_or:
      break;
  }
  return "add";
}

/// Moves one array.
class Mover {
 public:
  Mover(FormContext& c, ir::ValueId id)
      : w_(c.w), tiles_(*c.tiles), shape_(c.function.type(id).shape) {}

  Value gather(Value x, Sharding from, const Sharding& to) {
    for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
      if (from.dims[dim] == to.dims[dim]) continue;
      Sharding next = from;
      next.dims[dim] = to.dims[dim];
      x = gather_dim(x, from, next, dim);
      from = next;
    }
    return x;
  }

  /// Every device keeps part of what it holds.
  Value slice(Value x, const Sharding& from, const Sharding& to) {
    for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
      const Ranges held = tiles_.ranges(from, shape_, dim);
      const Ranges wanted = tiles_.ranges(to, shape_, dim);
      if (held == wanted) continue;
      x = rows_from(w_, x, dim, held, starts_of(wanted), most(wanted));
    }
    return x;
  }

  Value exchange(const Value& x, const Sharding& from, const Sharding& to) {
    const auto [source, target] = exchanged_dims(from, to);
    const AtomList moved = rest_after(to.dims[source], from.dims[source]);
    const bool is_plain = is_even(tiles_.ranges(from, shape_, source)) &&
                          is_even(tiles_.ranges(from, shape_, target)) &&
                          is_even(tiles_.ranges(to, shape_, source)) &&
                          is_even(tiles_.ranges(to, shape_, target));
    if (!is_plain) {
      Sharding gathered = from;
      gathered.dims[source] = to.dims[source];
      return slice(gather(x, from, gathered), gathered, to);
    }
    const std::vector<Ints> groups = tiles_.groups(moved);
    const auto count = static_cast<std::int64_t>(groups[0].size());
    Type type = x.type;
    type.shape[source] *= count;
    type.shape[target] /= count;
    return w_.op(
        fmt::format("\"stablehlo.all_to_all\"({}) {{split_dimension = {} : i64, "
                    "concat_dimension = {} : i64, split_count = {} : i64, replica_groups = "
                    "{}}} : ({}) -> {}",
                    x.name, target, source, count, Writer::groups_text(groups), type_text(x.type),
                    type_text(type)),
        type);
  }

  /// Each device gets the tile that it wants from a device that has it; each sends its tile once.
  Value permute(const Value& x, const Sharding& from, const Sharding& to) {
    std::map<Ints, Ints> holders;
    std::map<Ints, Ints> wanting;
    const std::vector<Ints> has = shards_of(from);
    const std::vector<Ints> wants = shards_of(to);
    std::vector<Ints> pairs;
    for (std::size_t device = 0; device < has.size(); ++device) {
      const auto id = static_cast<std::int64_t>(device);
      if (has[device] == wants[device]) {
        pairs.push_back({id, id});
        continue;
      }
      holders[has[device]].push_back(id);
      wanting[wants[device]].push_back(id);
    }
    for (const auto& [tile, devices] : wanting) {
      for (std::size_t i = 0; i < devices.size(); ++i) {
        pairs.push_back({holders.at(tile).at(i), devices[i]});
      }
    }
    return permute_pairs(x, pairs);
  }

  /// From shards to windows.
  Value exchange_halos(Value x, const Sharding& from, const Sharding& to) {
    Sharding now = from;
    for (const Window& window : to.windows) {
      if (from.dims[window.dim].empty()) continue;
      if (const auto halo = halo_along(window, from, to)) {
        x = halo_dim(x, *halo, from, to, window.dim);
        now.dims[window.dim] = to.dims[window.dim];
        now.windows.push_back(window);
      } else {
        Sharding next = now;
        next.dims[window.dim].clear();
        x = gather(x, now, next);
        now = next;
      }
    }
    return slice(x, now, to);
  }

  Value reduce(const Value& x, const Sharding& from, const Sharding& to, Reduction reduction) {
    AtomList resolved;
    for (AtomId atom : from.partial) {
      if (!contains(to.partial, atom)) resolved.push_back(atom);
    }
    const Value terms = encoded(x, reduction);
    const std::string name = combiner_of(reduction);
    for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
      if (from.dims[dim] == to.dims[dim]) continue;
      return decoded(scatter_sum(terms, from, to, dim, name), x, reduction);
    }
    const std::vector<Ints> groups = tiles_.groups(resolved);
    const Value sent = w_.op(
        fmt::format("\"stablehlo.all_reduce\"({}) ({}) {{replica_groups = {}}} : ({}) -> {}",
                    terms.name, w_.combiner(name, terms.type.dtype), Writer::groups_text(groups),
                    type_text(terms.type), type_text(terms.type)),
        terms.type);
    return decoded(sent, x, reduction);
  }

  Value permute_pairs(const Value& x, const std::vector<Ints>& pairs) {
    return w_.op(
        fmt::format("\"stablehlo.collective_permute\"({}) {{source_target_pairs = {}}} : "
                    "({}) -> {}",
                    x.name, Writer::groups_text(pairs), type_text(x.type), type_text(x.type)),
        x.type);
  }

 private:
  Value gather_dim(const Value& x, const Sharding& from, const Sharding& to, std::size_t dim) {
    const std::vector<Ints> groups = tiles_.groups(rest_after(to.dims[dim], from.dims[dim]));
    const std::size_t count = groups[0].size();
    Type type = x.type;
    type.shape[dim] *= static_cast<std::int64_t>(count);
    Value all = w_.op(
        fmt::format("\"stablehlo.all_gather\"({}) {{all_gather_dim = {} : i64, replica_groups "
                    "= {}}} : ({}) -> {}",
                    x.name, dim, Writer::groups_text(groups), type_text(x.type), type_text(type)),
        type);
    const Ranges held = tiles_.ranges(from, shape_, dim);
    const Ranges wanted = tiles_.ranges(to, shape_, dim);
    if (is_even(held)) return all;
    const std::int64_t size = x.type.shape[dim];
    Values parts;
    std::vector<Ints> starts(count, Ints(held.size()));
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::int64_t>(i) * size;
      parts.push_back(w_.slice_dim(all, dim, first, first + size));
      for (const Ints& group : groups) {
        for (std::int64_t device : group) {
          starts[i][at(device)] = held[at(group[i])].start - wanted[at(device)].start;
        }
      }
    }
    return joined(w_, parts, dim, starts, most(wanted));
  }

  /// The dimension that is gathered and the one that is split instead.
  static std::pair<std::size_t, std::size_t> exchanged_dims(const Sharding& from,
                                                            const Sharding& to) {
    std::pair<std::size_t, std::size_t> dims{0, 0};
    for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
      if (from.dims[dim].size() > to.dims[dim].size()) dims.first = dim;
      if (from.dims[dim].size() < to.dims[dim].size()) dims.second = dim;
    }
    return dims;
  }

  /// Per device: the shard of each dimension that it has.
  std::vector<Ints> shards_of(const Sharding& sharding) const {
    std::vector<Ints> all(tiles_.num_devices());
    for (const AtomList& list : sharding.dims) {
      const Ints shards = tiles_.shards(list);
      for (std::size_t i = 0; i < all.size(); ++i) all[i].push_back(shards[i]);
    }
    return all;
  }

  /// The distances, in shards, from which devices need rows.
  struct Halo {
    std::vector<std::int64_t> distances;
    std::vector<std::vector<bool>> is_needed;  // per distance and device
  };

  /// nullopt if gathering the dimension is no worse: if rows come from all shards, or if the tiles
  /// of the devices that exchange rows differ along another dimension.
  std::optional<Halo> halo_along(const Window& window, const Sharding& from,
                                 const Sharding& to) const {
    const AtomList& list = from.dims[window.dim];
    for (const Window& other : to.windows) {
      if (other.dim == window.dim) continue;
      if (shares_atoms(list, to.dims[other.dim]) ||
          shares_atoms(to.dims[window.dim], from.dims[other.dim])) {
        return std::nullopt;
      }
    }
    const Ranges wanted = tiles_.ranges(to, shape_, window.dim);
    const Ints own = tiles_.shards(list);
    const std::int64_t count = num_shards(tiles_.atoms(), list);
    const std::int64_t size = shape_[window.dim];
    std::map<std::int64_t, std::vector<bool>> needed;
    for (std::size_t device = 0; device < own.size(); ++device) {
      for (std::int64_t shard = 0; shard < count; ++shard) {
        const std::int64_t first = std::max(shard_start(shard, count, size), wanted[device].start);
        const std::int64_t last =
            std::min(shard_start(shard + 1, count, size), wanted[device].limit);
        if (first >= last) continue;
        std::vector<bool>& devices = needed[shard - own[device]];
        devices.resize(own.size(), false);
        devices[device] = true;
      }
    }
    if (static_cast<std::int64_t>(needed.size()) >= count || needed.empty()) return std::nullopt;
    Halo halo;
    for (auto& [distance, devices] : needed) {
      halo.distances.push_back(distance);
      halo.is_needed.push_back(std::move(devices));
    }
    return halo;
  }

  Value halo_dim(const Value& x, const Halo& halo, const Sharding& from, const Sharding& to,
                 std::size_t dim) {
    const std::vector<Ints> groups = tiles_.groups(from.dims[dim]);
    const Ranges wanted = tiles_.ranges(to, shape_, dim);
    const std::int64_t count = num_shards(tiles_.atoms(), from.dims[dim]);
    const std::int64_t size = shape_[dim];
    Values parts;
    std::vector<Ints> starts;
    for (std::size_t i = 0; i < halo.distances.size(); ++i) {
      const std::int64_t distance = halo.distances[i];
      std::vector<Ints> pairs;
      Ints begins(wanted.size());
      for (const Ints& group : groups) {
        for (std::int64_t shard = 0; shard < count; ++shard) {
          const std::int64_t device = group[at(shard)];
          // Rows outside the dimension are put where no row is read.
          const std::int64_t source = std::clamp<std::int64_t>(shard + distance, -1, count);
          const std::int64_t begin = source < 0 ? wanted[at(device)].start - x.type.shape[dim]
                                                : shard_start(source, count, size);
          begins[at(device)] = begin - wanted[at(device)].start;
          if (source < 0 || source == count || !halo.is_needed[i][at(device)]) continue;
          pairs.push_back({group[at(source)], device});
        }
      }
      parts.push_back(distance == 0 ? x : permute_pairs(x, pairs));
      starts.push_back(std::move(begins));
    }
    return joined(w_, parts, dim, starts, most(wanted));
  }

  Value scatter_sum(const Value& x, const Sharding& from, const Sharding& to, std::size_t dim,
                    const std::string& name) {
    const std::vector<Ints> groups = tiles_.groups(rest_after(from.dims[dim], to.dims[dim]));
    const Ranges held = tiles_.ranges(from, shape_, dim);
    const Ranges wanted = tiles_.ranges(to, shape_, dim);
    const std::int64_t size = most(wanted);
    Value all = x;
    if (!is_even(wanted)) {
      Values parts;
      for (std::size_t i = 0; i < groups[0].size(); ++i) {
        Ints starts(held.size());
        for (const Ints& group : groups) {
          for (std::int64_t device : group) starts[at(device)] = wanted[at(group[i])].start;
        }
        parts.push_back(rows_from(w_, x, dim, held, starts, size));
      }
      all = w_.concatenate(parts, dim);
    }
    Type type = x.type;
    type.shape[dim] = size;
    return w_.op(
        fmt::format("\"stablehlo.reduce_scatter\"({}) ({}) {{scatter_dimension = {} : i64, "
                    "replica_groups = {}}} : ({}) -> {}",
                    all.name, w_.combiner(name, x.type.dtype), dim, Writer::groups_text(groups),
                    type_text(all.type), type_text(type)),
        type);
  }

  /// What is sent in place of `x`. Reductions of these values give the same result on every
  /// platform.
  Value encoded(const Value& x, Reduction reduction) {
    const bool is_single = is_float(x.type.dtype) && x.type.dtype != DType::f64;
    if (reduction == Reduction::max || reduction == Reduction::min) {
      return is_single ? in_order(x, reduction) : x;
    }
    if (reduction != Reduction::bit_or) return x;
    // At most one device has nonzero bits, so they may be added, which more platforms support than
    // `or`.
    if (x.type.dtype == DType::boolean) return w_.convert(x, DType::u32);
    return is_single ? w_.bitcast(w_.convert(x, DType::f32), DType::u32) : x;
  }

  /// The inverse, as the dtype of `x`.
  Value decoded(const Value& sent, const Value& x, Reduction reduction) {
    if (sent.type.dtype == x.type.dtype) return sent;
    if (x.type.dtype == DType::boolean) return w_.convert(sent, DType::boolean);
    const Value bits = reduction == Reduction::bit_or ? sent : flipped(sent);
    return w_.convert(w_.bitcast(bits, DType::f32), x.type.dtype);
  }

  /// Integers in the order of the floats, with -0 below +0 and NaN at the end that wins.
  /// Collectives on floats may lose NaN.
  Value in_order(const Value& x, Reduction reduction) {
    const Value wide = w_.convert(x, DType::f32);
    const Value key = flipped(w_.bitcast(wide, DType::i32));
    const std::string winner = reduction == Reduction::max ? "minimum" : "maximum";
    const Value end = w_.constant(identity_of(winner, DType::i32), key.type);
    return w_.select(w_.compare("ne", wide, wide), end, key);
  }

  /// Flips the bits of negative floats except the sign, which reverses their order as integers. It
  /// is its own inverse.
  Value flipped(const Value& bits) {
    const Value zero = w_.constant(0, bits.type);
    const Value mask = w_.constant(identity_of("minimum", DType::i32), bits.type);
    const Value is_negative = w_.compare("lt", bits, zero);
    const Value other = w_.binary("xor", bits, mask);
    return w_.select(is_negative, other, bits);
  }

  Writer& w_;
  const Tiles& tiles_;
  const Shape& shape_;
};

Reduction reduction_of(const FormContext& c) {
  return reduction_named(c.attributes().get<std::string>("reduction"));
}

}  // namespace

Values moved(FormContext& c) {
  if (c.tiles == nullptr) return c.operands;
  Values results;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    const ir::ValueId id = c.equation.operands[i];
    const Sharding& from = c.function.sharding(id);
    const Sharding& to = c.function.sharding(c.equation.results[i]);
    Mover mover(c, id);
    if (num_elements(c.whole(id)) == 0) {
      results.push_back(c.w.constant(0, c.results[i]));  // not all platforms move empty arrays
    } else if (is(c.equation, all_gather_op)) {
      results.push_back(mover.gather(c.x(i), from, to));
    } else if (is(c.equation, all_slice_op)) {
      results.push_back(mover.slice(c.x(i), from, to));
    } else if (is(c.equation, all_to_all_op)) {
      results.push_back(mover.exchange(c.x(i), from, to));
    } else if (is(c.equation, collective_permute_op)) {
      results.push_back(mover.permute(c.x(i), from, to));
    } else if (is(c.equation, halo_exchange_op)) {
      results.push_back(mover.exchange_halos(c.x(i), from, to));
    } else {
      results.push_back(mover.reduce(c.x(i), from, to, reduction_of(c)));
    }
  }
  return results;
}

/// Blocks of slices that go from device to device as they are; otherwise all slices are gathered.
Values permuted(FormContext& c) {
  const std::size_t dim = at(c.attributes().integer("dim"));
  const Ints& sources = c.attributes().ints("sources");
  const ir::ValueId id = c.equation.operands[0];
  const auto in_order = [&](const Value& x) {
    Values slices;
    for (std::int64_t source : sources) slices.push_back(c.w.slice_dim(x, dim, source, source + 1));
    return c.w.concatenate(slices, dim);
  };
  if (num_elements(c.whole(id)) == 0) return c.operands;
  if (!c.is_split(id, dim)) return {in_order(c.x())};
  const Sharding& sharding = c.function.sharding(id);
  const Ranges held = c.ranges(id, dim);
  const std::int64_t size = most(held);
  bool is_blocks = is_even(held);
  for (std::size_t i = 0; i < sources.size() && is_blocks; ++i) {
    const std::size_t first = i - i % at(size);
    is_blocks = sources[first] % size == 0 &&
                sources[i] == sources[first] + static_cast<std::int64_t>(i - first);
  }
  Mover mover(c, id);
  if (is_blocks) {
    std::vector<Ints> pairs;
    for (const Ints& group : c.tiles->groups(sharding.dims[dim])) {
      for (std::size_t shard = 0; shard < group.size(); ++shard) {
        pairs.push_back({group[at(sources[shard * at(size)] / size)], group[shard]});
      }
    }
    return {mover.permute_pairs(c.x(), pairs)};
  }
  Sharding whole = sharding;
  whole.dims[dim].clear();
  return {mover.slice(in_order(mover.gather(c.x(), sharding, whole)), whole, sharding)};
}

}  // namespace tessera::ops::hlo
