#include "ops/stablehlo/tiles.h"

#include <algorithm>
#include <map>

namespace tessera::ops::hlo {

Tiles::Tiles(const Mesh& mesh) : atoms_(std::make_shared<const std::vector<Atom>>(atoms_of(mesh))) {
  const std::int64_t count = mesh.axes().empty() ? 1 : mesh.num_devices();
  for (std::int64_t device = 0; device < count; ++device) {
    digits_.push_back(device_digits(mesh, device));
  }
}

Ranges Tiles::ranges(const Sharding& sharding, const Shape& shape, std::size_t dim) const {
  const Layout all = layout(sharding, shape);
  Ranges ranges;
  for (const AtomDigits& digits : digits_) {
    const Box box = all.box(digits);
    ranges.push_back({box.start[dim], box.start[dim] + box.size[dim]});
  }
  return ranges;
}

Ints Tiles::shards(const AtomList& list) const {
  Ints shards;
  for (const AtomDigits& digits : digits_) {
    std::int64_t shard = 0;
    for (AtomId atom : list) shard = shard * (*atoms_)[atom].size + digits[atom];
    shards.push_back(shard);
  }
  return shards;
}

std::vector<Ints> Tiles::groups(const AtomList& list) const {
  const Ints places = shards(list);
  std::map<std::vector<std::int32_t>, std::size_t> numbers;
  std::vector<Ints> groups;
  for (std::size_t device = 0; device < digits_.size(); ++device) {
    std::vector<std::int32_t> others(digits_[device].begin(), digits_[device].end());
    for (AtomId atom : list) others[atom] = -1;
    const auto [found, is_new] = numbers.try_emplace(others, groups.size());
    if (is_new) groups.emplace_back(static_cast<std::size_t>(num_shards(*atoms_, list)), 0);
    groups[found->second][static_cast<std::size_t>(places[device])] =
        static_cast<std::int64_t>(device);
  }
  return groups;
}

Ints starts_of(const Ranges& ranges) {
  Ints starts;
  for (const IndexRange& range : ranges) starts.push_back(range.start);
  return starts;
}

std::int64_t most(const Ranges& ranges) {
  std::int64_t most = 0;
  for (const IndexRange& range : ranges) most = std::max(most, range.limit - range.start);
  return most;
}

bool is_even(const Ranges& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const IndexRange& range) {
    return range.limit - range.start == ranges[0].limit - ranges[0].start;
  });
}

Value masked(Writer& w, const Value& x, std::size_t dim, const Ranges& held, const Value& fill) {
  Ints sizes;
  for (const IndexRange& range : held) sizes.push_back(range.limit - range.start);
  const std::int64_t size = x.type.shape[dim];
  if (std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t own) { return own == size; })) {
    return x;
  }
  const Value rows = w.iota(static_cast<std::int64_t>(dim), DType::i32, x.type.shape);
  const Value own = w.compare("lt", rows, w.fill(w.per_device(sizes), x.type.shape));
  return w.select(own, x, w.fill(fill, x.type.shape));
}

Value rows_from(Writer& w, const Value& x, std::size_t dim, const Ranges& held, const Ints& starts,
                std::int64_t size, const Value* fill) {
  const std::int64_t rows = x.type.shape[dim];
  Ints offsets;
  for (std::size_t i = 0; i < held.size(); ++i) offsets.push_back(starts[i] - held[i].start);
  const auto [least, greatest] = std::minmax_element(offsets.begin(), offsets.end());
  const std::int64_t before = std::max<std::int64_t>(-*least, 0);
  const std::int64_t behind = std::max<std::int64_t>(*greatest + size - rows, 0);
  Value padded = fill == nullptr ? x : masked(w, x, dim, held, *fill);
  if (before + behind > 0) {
    Ints low(x.type.shape.size(), 0);
    Ints high = low;
    low[dim] = before;
    high[dim] = behind;
    const Value value = fill == nullptr ? w.scalar(0, x.type.dtype) : *fill;
    padded = w.pad(padded, value, low, high);
  }
  if (*least == *greatest) return w.slice_dim(padded, dim, *least + before, *least + before + size);
  for (std::int64_t& offset : offsets) offset += before;
  return w.dynamic_slice_dim(padded, dim, w.per_device(offsets), size);
}

Value spread_rows_from(Writer& w, const Value& x, std::size_t dim, const Ranges& held,
                       const SpreadRows& wanted) {
  const std::int64_t step = wanted.step;
  Ints first;  // per device: the row of `x` at or before the first one to read
  Ints skipped;
  for (const std::int64_t start : wanted.starts) {
    skipped.push_back(((start % step) + step) % step);
    first.push_back((start - skipped.back()) / step);
  }
  const std::int64_t rows = (step + wanted.size - 2) / step + 1;
  const Value own = rows_from(w, x, dim, held, first, rows, &wanted.fill);
  const Ints none(x.type.shape.size(), 0);
  Ints high = none;
  Ints interior = none;
  interior[dim] = high[dim] = step - 1;
  const Value spread = w.pad(own, wanted.fill, none, high, interior);
  const Ranges begin(held.size(), IndexRange{0, 0});
  return rows_from(w, spread, dim, begin, skipped, wanted.size);
}

Value joined(Writer& w, const Values& parts, std::size_t dim, const std::vector<Ints>& starts,
             std::int64_t size) {
  std::int64_t length = size;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::int64_t start : starts[i]) {
      before = std::max(before, -start);
      length = std::max(length, start + parts[i].type.shape[dim]);
    }
  }
  Type type = parts[0].type;
  type.shape[dim] = before + length;
  Value all = w.constant(0, type);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Ints shifted = starts[i];
    for (std::int64_t& start : shifted) start += before;
    all = w.dynamic_update_dim(all, parts[i], dim, w.per_device(shifted));
  }
  return w.slice_dim(all, dim, before, before + size);
}

}  // namespace tessera::ops::hlo
