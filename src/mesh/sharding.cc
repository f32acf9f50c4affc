#include "mesh/sharding.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

namespace tessera {

std::vector<Atom> atoms_of(const Mesh& mesh) {
  std::vector<Atom> atoms;
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    std::int64_t rest = mesh.axes()[axis].size;
    for (std::int64_t prime = 2; rest > 1; ++prime) {
      if (prime * prime > rest) prime = rest;
      for (; rest % prime == 0; rest /= prime) atoms.push_back({static_cast<int>(axis), prime});
    }
  }
  return atoms;
}

bool is_prefix(const AtomList& prefix, const AtomList& list) {
  return prefix.size() <= list.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

Sharding replicated_sharding(std::int64_t rank) {
  return {.dims = std::vector<AtomList>(static_cast<std::size_t>(rank)), .partial = {}};
}

bool is_replicated(const Sharding& sharding) {
  return sharding.partial.empty() &&
         std::all_of(sharding.dims.begin(), sharding.dims.end(),
                     [](const AtomList& atoms) { return atoms.empty(); });
}

bool is_open(const Sharding& sharding, std::size_t dim) {
  return std::binary_search(sharding.open.begin(), sharding.open.end(), dim);
}

const Window* window_of(const Sharding& sharding, std::size_t dim) {
  for (const Window& window : sharding.windows) {
    if (window.dim == dim) return &window;
  }
  return nullptr;
}

AtomList used_atoms(const Sharding& sharding) {
  AtomList used;
  for (const AtomList& atoms : sharding.dims) used.insert(used.end(), atoms.begin(), atoms.end());
  used.insert(used.end(), sharding.partial.begin(), sharding.partial.end());
  return used;
}

namespace {

/// `described` is the type or the shape to name in messages.
template <typename T>
Sharding sharding_for(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                      const T& described, const std::string& subject, const Span& where) {
  check_spec(mesh, spec, subject, where);
  if (spec.entries().size() > shape.size()) {
    throw UserError({.what = subject + ": the spec has more entries than the array has dimensions",
                     .where = where,
                     .found = to_string(spec) + " for " + to_string(described),
                     .wanted = "no more entries than dimensions: " + std::to_string(shape.size()),
                     .cure = shape.empty() ? "use P{} for a scalar" : "drop the extra entries"});
  }
  const std::vector<Atom> atoms = atoms_of(mesh);
  Sharding sharding = replicated_sharding(static_cast<std::int64_t>(shape.size()));
  for (std::size_t dim = 0; dim < spec.entries().size(); ++dim) {
    if (spec.entries()[dim].is_unconstrained) sharding.open.push_back(dim);
    for (const std::string& name : spec.entries()[dim].axes) {
      for (std::size_t atom = 0; atom < atoms.size(); ++atom) {
        if (mesh.axes()[static_cast<std::size_t>(atoms[atom].axis)].name == name) {
          sharding.dims[dim].push_back(static_cast<AtomId>(atom));
        }
      }
    }
  }
  return sharding;
}

template <typename T>
Sharding closed_sharding_for(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                             const T& described, const std::string& subject, const Span& where) {
  Sharding sharding = sharding_for(mesh, spec, shape, described, subject, where);
  if (sharding.open.empty()) return sharding;
  throw UserError({.what = subject + ": an entry of the spec is unconstrained",
                   .where = where,
                   .found = to_string(spec) + " for " + to_string(described),
                   .wanted = "none, an axis or axes for every dimension",
                   .cure = "write none or axis names; only with_sharding_constraint may leave a "
                           "dimension unconstrained"});
}

}  // namespace

Sharding to_constraint(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                       const std::string& subject, const Span& where) {
  return sharding_for(mesh, spec, type.shape, type, subject, where);
}

Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                     const std::string& subject, const Span& where) {
  return closed_sharding_for(mesh, spec, type.shape, type, subject, where);
}

Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                     const std::string& subject, const Span& where) {
  return closed_sharding_for(mesh, spec, shape, shape, subject, where);
}

namespace {

/// `model=4`, `data=2 times model=4`.
std::string axis_sizes(const Mesh& mesh, const SpecEntry& entry) {
  std::string text;
  for (const std::string& name : entry.axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " times ", name, mesh.axis_size(name));
  }
  return text;
}

}  // namespace

void check_even(const Mesh& mesh, const Sharding& sharding, const Type& type,
                const std::string& subject, const Span& where) {
  const Layout layout(mesh, sharding, type.shape);
  for (std::size_t dim = 0; dim < type.shape.size(); ++dim) {
    const std::int64_t size = type.shape[dim];
    const std::int64_t count = layout.num_shards_of(dim);
    if (size % count == 0) continue;
    const PartitionSpec spec = to_spec(mesh, sharding);
    const std::int64_t smaller = size / count * count;
    const std::string even =
        smaller == 0 ? std::to_string(count) : fmt::format("{} or {}", smaller, smaller + count);
    throw UserError(
        {.what = fmt::format("{}: dimension {} is not split into equal shards", subject, dim),
         .where = where,
         .found = fmt::format("{} for {} on {}: size {} in {} shards of {} or {}", to_string(spec),
                              to_string(type), to_string(mesh), size, count, size / count,
                              size / count + 1),
         .wanted = fmt::format("a size divisible by {} ({}), because `strict` is set", count,
                               axis_sizes(mesh, spec.entries()[dim])),
         .cure = fmt::format("make the size {}, split another dimension, or leave out strict; "
                             "shards may then differ in size by one",
                             even)});
  }
}

namespace {

/// The names of the axes that a list of atoms covers. A part of an axis is written `axis#k`.
std::vector<std::string> axis_names(const Mesh& mesh, const std::vector<Atom>& atoms,
                                    const AtomList& list) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size();) {
    const int axis = atoms[list[i]].axis;
    std::size_t first = 0;
    while (atoms[first].axis != axis) ++first;
    std::size_t count = 0;
    while (first + count < atoms.size() && atoms[first + count].axis == axis) ++count;
    bool is_whole = i + count <= list.size();
    for (std::size_t k = 0; is_whole && k < count; ++k) is_whole = list[i + k] == first + k;
    const std::string& name = mesh.axes()[static_cast<std::size_t>(axis)].name;
    names.push_back(is_whole ? name : name + "#" + std::to_string(list[i] - first));
    i += is_whole ? count : 1;
  }
  return names;
}

std::string braced(const std::vector<std::string>& names) {
  std::string text = "{";
  for (std::size_t i = 0; i < names.size(); ++i) text += (i > 0 ? " " : "") + names[i];
  return text + "}";
}

}  // namespace

PartitionSpec to_spec(const Mesh& mesh, const Sharding& sharding) {
  const std::vector<Atom> atoms = atoms_of(mesh);
  std::vector<SpecEntry> entries;
  for (const AtomList& list : sharding.dims) {
    SpecEntry entry(none);
    entry.axes = axis_names(mesh, atoms, list);
    entries.push_back(std::move(entry));
  }
  while (!entries.empty() && entries.back().axes.empty()) entries.pop_back();
  return PartitionSpec(std::move(entries));
}

namespace {

/// `[-1+2*8{data}+3]`
std::string window_text(const Mesh& mesh, const std::vector<Atom>& atoms, const AtomList& list,
                        const Window& window) {
  std::string text = std::to_string(window.offset);
  auto next = list.begin();
  for (const Window::Term& term : window.terms) {
    text += term.step < 0 ? "-" : "+";
    if (std::abs(term.step) != 1) text += fmt::format("{}*", std::abs(term.step));
    text += std::to_string(term.size);
    const auto end = next + static_cast<std::ptrdiff_t>(term.num_atoms);
    if (next != end) text += braced(axis_names(mesh, atoms, AtomList(next, end)));
    next = end;
  }
  return window.divisor == 1 ? "[" + text + "]" : fmt::format("[({})/{}]", text, window.divisor);
}

}  // namespace

std::string to_string(const Mesh& mesh, const Sharding& sharding) {
  const std::vector<Atom> atoms = atoms_of(mesh);
  std::string text;
  for (std::size_t i = 0; i < sharding.dims.size(); ++i) {
    if (i > 0) text += ",";
    if (const Window* window = window_of(sharding, i)) {
      text += window_text(mesh, atoms, sharding.dims[i], *window);
      continue;
    }
    std::vector<std::string> names = axis_names(mesh, atoms, sharding.dims[i]);
    if (is_open(sharding, i)) names.emplace_back("?");
    text += braced(names);
  }
  if (!sharding.partial.empty()) text += "+" + braced(axis_names(mesh, atoms, sharding.partial));
  return text;
}

std::int64_t num_shards(const std::vector<Atom>& atoms, const AtomList& list) {
  std::int64_t count = 1;
  for (AtomId atom : list) count *= atoms[atom].size;
  return count;
}

AtomDigits position_digits(const std::vector<Atom>& atoms, std::int64_t position) {
  AtomDigits digits(atoms.size());
  for (std::size_t i = atoms.size(); i-- > 0;) {
    digits[i] = static_cast<std::int32_t>(position % atoms[i].size);
    position /= atoms[i].size;
  }
  return digits;
}

AtomDigits device_digits(const Mesh& mesh, std::int64_t device) {
  // On a mesh without axes there is one tile, and each process holds it.
  if (mesh.axes().empty()) return {};
  return position_digits(atoms_of(mesh), mesh.position_of(device));
}

Layout::Layout(const Mesh& mesh, Sharding sharding, Shape shape)
    : Layout(std::make_shared<const std::vector<Atom>>(atoms_of(mesh)), std::move(sharding),
             std::move(shape)) {}

Layout::Layout(std::shared_ptr<const std::vector<Atom>> atoms, Sharding sharding, Shape shape)
    : atoms_(std::move(atoms)),
      sharding_(std::move(sharding)),
      shape_(std::move(shape)),
      used_(used_atoms(sharding_)),
      num_tiles_(num_shards(*atoms_, used_)) {
  require(sharding_.dims.size() == shape_.size(), "a sharding has one entry per dimension");
}

AtomDigits Layout::digits(std::int64_t tile) const {
  AtomDigits digits(atoms_->size(), -1);
  for (std::size_t i = used_.size(); i-- > 0;) {
    const std::int64_t size = (*atoms_)[used_[i]].size;
    digits[used_[i]] = static_cast<std::int32_t>(tile % size);
    tile /= size;
  }
  return digits;
}

std::int64_t Layout::tile_at(const AtomDigits& digits) const {
  std::int64_t tile = 0;
  for (AtomId atom : used_) {
    require(digits[atom] >= 0, "a tile needs a digit for each atom that it is split by");
    tile = tile * (*atoms_)[atom].size + digits[atom];
  }
  return tile;
}

std::int64_t Layout::shard(std::size_t dim, const AtomDigits& digits) const {
  std::int64_t shard = 0;
  for (AtomId atom : sharding_.dims[dim]) shard = shard * (*atoms_)[atom].size + digits[atom];
  return shard;
}

std::int64_t Layout::num_shards_of(std::size_t dim) const {
  return num_shards(*atoms_, sharding_.dims[dim]);
}

Box intersect(const Box& a, const Box& b) {
  Box result;
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    const std::int64_t start = std::max(a.start[d], b.start[d]);
    const std::int64_t end = std::min(a.start[d] + a.size[d], b.start[d] + b.size[d]);
    result.start.push_back(start);
    result.size.push_back(std::max<std::int64_t>(end - start, 0));
  }
  return result;
}

IndexRange window_range(const Window& window, const std::vector<Atom>& atoms, const AtomList& list,
                        const AtomDigits& digits, std::int64_t size) {
  std::int64_t first = window.offset;
  std::int64_t last = window.offset;
  auto atom = list.begin();
  for (const Window::Term& term : window.terms) {
    std::int64_t shard = 0;
    std::int64_t count = 1;
    for (const auto end = atom + static_cast<std::ptrdiff_t>(term.num_atoms); atom != end; ++atom) {
      shard = shard * atoms[*atom].size + digits[*atom];
      count *= atoms[*atom].size;
    }
    const std::int64_t begin = shard_start(shard, count, term.size);
    const std::int64_t end = shard_start(shard + 1, count, term.size);
    if (begin == end) return {0, 0};
    first += term.step * (term.step > 0 ? begin : end - 1);
    last += term.step * (term.step > 0 ? end - 1 : begin);
  }
  // The first row is rounded up, and so is the row after the last.
  const auto rounded_up = [&](std::int64_t n) {
    return n < 0 ? n / window.divisor : (n + window.divisor - 1) / window.divisor;
  };
  const std::int64_t start = std::clamp<std::int64_t>(rounded_up(first), 0, size);
  return {start, std::clamp<std::int64_t>(rounded_up(last + 1), start, size)};
}

IndexRange Layout::range(std::size_t dim, const AtomDigits& digits) const {
  const std::int64_t size = shape_[dim];
  if (const Window* window = window_of(sharding_, dim)) {
    return window_range(*window, *atoms_, sharding_.dims[dim], digits, size);
  }
  const std::int64_t index = shard(dim, digits);
  const std::int64_t count = num_shards_of(dim);
  return {shard_start(index, count, size), shard_start(index + 1, count, size)};
}

Box Layout::box(const AtomDigits& digits) const {
  Box box{.start = Shape(shape_.size()), .size = Shape(shape_.size())};
  for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
    const IndexRange rows = range(dim, digits);
    box.start[dim] = rows.start;
    box.size[dim] = rows.limit - rows.start;
  }
  return box;
}

Shape Layout::tile_shape(const AtomDigits& digits) const {
  Shape shape(shape_.size());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const IndexRange rows = range(dim, digits);
    shape[dim] = rows.limit - rows.start;
  }
  return shape;
}

std::int64_t Layout::tile_elements(std::int64_t tile) const {
  const AtomDigits where = digits(tile);
  std::int64_t count = 1;
  for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
    const IndexRange rows = range(dim, where);
    count *= rows.limit - rows.start;
  }
  return count;
}

Shape Layout::max_tile_shape() const {
  Shape shape = shape_;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t count = num_shards_of(dim);
    shape[dim] = (shape[dim] + count - 1) / count;
  }
  if (sharding_.windows.empty()) return shape;
  for (const Window& window : sharding_.windows) shape[window.dim] = 0;
  for (std::int64_t tile = 0; tile < num_tiles_; ++tile) {
    const Shape size = box(tile).size;
    for (const Window& window : sharding_.windows) {
      shape[window.dim] = std::max(shape[window.dim], size[window.dim]);
    }
  }
  return shape;
}

std::int64_t most_received(const Mesh& mesh, const Layout& from, const Layout& to) {
  const std::vector<Atom> atoms = atoms_of(mesh);
  std::int64_t most = 0;
  for (std::int64_t position = 0; position < mesh.num_devices(); ++position) {
    const AtomDigits digits = position_digits(atoms, position);
    const Box wanted = to.box(to.tile_at(digits));
    const Box held = from.box(from.tile_at(digits));
    most = std::max(most, num_elements(wanted.size) - num_elements(intersect(wanted, held).size));
  }
  return most;
}

}  // namespace tessera
