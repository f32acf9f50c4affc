// Collectives between virtual devices of one process, and ops that only move data. A tile is
// assembled, with one copy, from the tiles that hold its pieces, however many devices share the
// result.

#include <algorithm>
#include <cstring>

#include <tessera/error.h>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/boxes.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

using Strides = std::vector<std::int64_t>;

/// Copies boxes from several buffers into the last one.
class CopyKernel final : public run::Kernel {
 public:
  struct Piece {
    std::int64_t from;  // in elements
    Strides from_strides;
    std::int64_t to;
    Strides to_strides;
    Shape extents;
  };

  CopyKernel(const std::vector<Piece>& pieces, std::size_t element_bytes, int num_workers) {
    constexpr std::int64_t kMinPartBytes = std::int64_t{16} * 1024;
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    std::int64_t elements = 0;
    for (const Piece& piece : pieces) {
      elements += num_elements(piece.extents);
      copies_.push_back(
          {.from = piece.from * bytes,
           .to = piece.to * bytes,
           .has_equal_strides = piece.from_strides == piece.to_strides,
           .box = {piece.from_strides, piece.to_strides, piece.extents, element_bytes}});
    }
    num_parts_ = static_cast<std::size_t>(kernels::num_parts_for(
        num_workers, elements * bytes, kMinPartBytes, static_cast<std::int64_t>(pieces.size())));
  }

  int num_parts() const override { return static_cast<int>(num_parts_); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    const auto number = static_cast<std::size_t>(part);
    const std::size_t end = copies_.size() * (number + 1) / num_parts_;
    for (std::size_t i = copies_.size() * number / num_parts_; i < end; ++i) {
      const Copy& copy = copies_[i];
      const std::byte* from = buffers[i] + copy.from;
      std::byte* to = buffers.back() + copy.to;
      // A branch of a cond may return an operand whose memory the result has taken.
      if (from != to || !copy.has_equal_strides) copy.box.run(from, to);
    }
  }

 private:
  struct Copy {
    std::int64_t from;  // in bytes
    std::int64_t to;
    bool has_equal_strides;
    kernels::BoxCopy box;
  };

  std::vector<Copy> copies_;
  std::size_t num_parts_;
};

/// Reduces boxes of several buffers into the last one, in the order of the tree.
class CombineKernel final : public run::Kernel {
 public:
  CombineKernel(kernels::CombineProblem problem, int num_workers)
      : plan_(std::move(problem), num_workers) {}
  int num_parts() const override { return plan_.num_parts(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    plan_.run(buffers.first(buffers.size() - 1), buffers.back(), part);
  }

 private:
  kernels::CombinePlan plan_;
};

std::int64_t dot(const std::vector<std::int64_t>& index, const Strides& strides) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < index.size(); ++i) sum += index[i] * strides[i];
  return sum;
}

std::vector<std::int64_t> minus(const std::vector<std::int64_t>& a,
                                const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

/// A copy task under construction: pieces and the buffers they come from.
struct CopyTask {
  std::vector<CopyKernel::Piece> pieces;
  TileTask task;

  void add(const StridedTile& from, std::int64_t from_offset, std::int64_t to, Strides to_strides,
           Shape extents) {
    if (num_elements(extents) == 0) return;
    task.reads.push_back(from.tile);
    pieces.push_back({.from = from.offset + from_offset,
                      .from_strides = from.strides,
                      .to = to,
                      .to_strides = std::move(to_strides),
                      .extents = std::move(extents)});
  }

  TileTask finish(TileRef write, DType dtype, const LowerContext& context) {
    task.writes = {write};
    KernelKey key(KernelKey::Kind::copy);
    key.add(size_bytes(dtype));
    for (const CopyKernel::Piece& piece : pieces) {
      key.add(piece.from).add(piece.from_strides).add(piece.to).add(piece.to_strides);
      key.add(piece.extents);
    }
    task.kernel = context.pool().get(std::move(key), [&] {
      return std::make_shared<CopyKernel>(pieces, size_bytes(dtype), context.num_workers());
    });
    return std::move(task);
  }
};

std::vector<TileTask> move_value(const LowerContext& context, const Equation& equation,
                                 ValueId operand, ValueId result) {
  const Layout& from = context.layout(operand);
  const Layout& to = context.layout(result);
  const std::vector<MovedBox> moved = moved_boxes(equation, to.shape());
  std::vector<AtomDigits> sources;
  std::vector<Box> source_boxes;
  for (std::int64_t source : context.tiles(operand)) {
    sources.push_back(from.digits(source));
    source_boxes.push_back(from.box(sources.back()));
  }
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const Box box = to.box(tile);
    const Strides strides = row_major_strides(box.size);
    CopyTask copy;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Box& source_box = source_boxes[i];
      for (const MovedBox& one : moved) {
        const Box part = one.part(box, source_box);
        if (num_elements(part.size) == 0) continue;
        const StridedTile read = context.read(operand, sources[i]);
        copy.add(read, dot(minus(one.source_of(part).start, source_box.start), read.strides),
                 dot(minus(part.start, box.start), strides), strides, part.size);
      }
    }
    const DType dtype = context.function().type(result).dtype;
    tasks.push_back(copy.finish({result, tile}, dtype, context));
  }
  return tasks;
}

std::vector<TileTask> combine_value(const LowerContext& context, const Equation& equation,
                                    ValueId operand, ValueId result) {
  const Layout& to = context.layout(result);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const Box box = to.box(tile);
    TileTask task;
    kernels::CombineProblem problem;
    problem.kind = kernels::combine_kind(equation.attributes.get<std::string>("reduction"));
    problem.dtype = context.function().type(result).dtype;
    problem.extents = box.size;
    std::vector<AtomDigits> summands = context.summands(operand, result, to.digits(tile));
    if (context.is_summed(operand)) summands.resize(1);
    for (const AtomDigits& digits : summands) {
      const Box source = context.box(operand, digits);
      const StridedTile read = context.read(operand, digits);
      task.reads.push_back(read.tile);
      problem.sources.push_back(
          {.offset = read.offset + dot(minus(box.start, source.start), read.strides),
           .strides = read.strides});
    }
    task.writes = {{result, tile}};
    KernelKey key(KernelKey::Kind::combine);
    key.add(problem.kind).add(problem.dtype).add(problem.extents);
    for (const auto& source : problem.sources) key.add(source.offset).add(source.strides);
    task.kernel = context.pool().get(std::move(key), [&] {
      return std::make_shared<CombineKernel>(std::move(problem), context.num_workers());
    });
    tasks.push_back(std::move(task));
  }
  return tasks;
}

void append(std::vector<TileTask>& all, std::vector<TileTask> some) {
  for (TileTask& task : some) all.push_back(std::move(task));
}

}  // namespace

Box MovedBox::part(const Box& result, const Box& source) const {
  Box shifted = source;
  for (std::size_t d = 0; d < offset.size(); ++d) shifted.start[d] -= offset[d];
  return intersect(intersect(result, to), shifted);
}

Box MovedBox::source_of(Box part) const {
  for (std::size_t d = 0; d < offset.size(); ++d) part.start[d] += offset[d];
  return part;
}

std::vector<MovedBox> moved_boxes(const Equation& equation, const Shape& shape) {
  const std::vector<std::int64_t> origin(shape.size(), 0);
  const MovedBox whole{.to = {.start = origin, .size = shape}, .offset = origin};
  if (!equation.attributes.has("sources")) return {whole};
  const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
  const ir::Ints& sources = equation.attributes.ints("sources");
  std::vector<MovedBox> boxes;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int64_t offset = sources[i] - static_cast<std::int64_t>(i);
    if (boxes.empty() || boxes.back().offset[dim] != offset) {
      boxes.push_back(whole);
      boxes.back().to.start[dim] = static_cast<std::int64_t>(i);
      boxes.back().to.size[dim] = 0;
      boxes.back().offset[dim] = offset;
    }
    ++boxes.back().to.size[dim];
  }
  return boxes;
}

namespace {

std::vector<TileTask> lower_move(const LowerContext& context, const Equation& equation) {
  std::vector<TileTask> tasks;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    append(tasks, move_value(context, equation, equation.operands[i], equation.results[i]));
  }
  return tasks;
}

std::vector<TileTask> lower_combine(const LowerContext& context, const Equation& equation) {
  std::vector<TileTask> tasks;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    if (context.is_computed(equation.results[i])) continue;
    append(tasks, combine_value(context, equation, equation.operands[i], equation.results[i]));
  }
  return tasks;
}

}  // namespace

std::vector<TileTask> lower_joined(const LowerContext& context, const Equation& equation) {
  std::vector<TileTask> tasks;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId result = equation.results[i];
    if (context.is_joined(result) || context.is_computed(result)) continue;
    const auto [from, sum] = context.origin(equation, i);
    append(tasks, sum != nullptr ? combine_value(context, *sum, from, result)
                                 : move_value(context, equation, from, result));
  }
  return tasks;
}

namespace {

std::vector<TileTask> lower_concatenate(const LowerContext& context, const Equation& equation) {
  const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
  const ValueId result = equation.results[0];
  const Layout& layout = context.layout(result);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = layout.digits(tile);
    const Strides strides = row_major_strides(layout.box(tile).size);
    CopyTask copy;
    std::int64_t at = 0;
    for (ValueId operand : equation.operands) {
      const Shape extents = context.box(operand, digits).size;
      copy.add(context.read(operand, digits), 0, at * strides[dim], strides, extents);
      at += extents[dim];
    }
    const DType dtype = context.function().type(result).dtype;
    tasks.push_back(copy.finish({result, tile}, dtype, context));
  }
  return tasks;
}

/// Repeats an element, doubling the number of copies up to `most_bytes`, which stay in the cache.
void fill(const std::byte* element, std::size_t element_bytes, std::byte* to, std::int64_t count,
          std::size_t most_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes;
  if (bytes == 0) return;
  std::memcpy(to, element, element_bytes);
  for (std::size_t done = element_bytes; done < bytes;) {
    const std::size_t more = std::min({done, most_bytes, bytes - done});
    std::memcpy(to + done, to, more);
    done += more;
  }
}

/// A tile of a padded array: filled with a scalar, with the operand copied into the middle. Works
/// by rows of the first dimension larger than 1.
struct Padding {
  CopyKernel::Piece middle;                        // without elements: there is none
  std::vector<std::int64_t> low = {}, steps = {};  // position and distance of the middle's rows
  Shape result_extents = {};
  Strides result_strides = {};
  bool is_dense = false;  // the middle has elements, and nothing lies between them
  std::size_t dim = 0;
  std::size_t last_padded = 0;  // the last dimension with padding
  std::int64_t num_rows = 1;
  std::int64_t row = 1;  // elements
  std::size_t element_bytes = 0;
  std::size_t fill_bytes = 0;  // bytes that are copied at once

  /// How many rows of the middle come before this row.
  std::int64_t before(std::int64_t row_number) const {
    const std::int64_t distance = row_number - low[dim];
    if (distance <= 0) return 0;
    return std::min((distance + steps[dim] - 1) / steps[dim], middle.extents[dim]);
  }
  /// Fills the elements of rows `first` to `end` of a dimension that the middle does not cover.
  void fill_around(const std::byte* element, std::byte* to, std::size_t d, std::int64_t first,
                   std::int64_t end) const {
    const std::int64_t stride = result_strides[d] * static_cast<std::int64_t>(element_bytes);
    const std::int64_t begin_middle = std::clamp(low[d], first, end);
    const std::int64_t end_middle = std::clamp(low[d] + middle.extents[d], begin_middle, end);
    fill(element, element_bytes, to + first * stride, (begin_middle - first) * result_strides[d],
         fill_bytes);
    if (d < last_padded) {
      for (std::int64_t i = begin_middle; i < end_middle; ++i)
        fill_around(element, to + i * stride, d + 1, 0, result_extents[d + 1]);
    }
    fill(element, element_bytes, to + end_middle * stride, (end - end_middle) * result_strides[d],
         fill_bytes);
  }
  void run(std::span<std::byte* const> buffers, std::int64_t first, std::int64_t end) const {
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    if (is_dense && dim < result_extents.size()) {
      fill_around(buffers[0], buffers[2], dim, first, end);
    } else {
      fill(buffers[0], element_bytes, buffers[2] + first * row * bytes, (end - first) * row,
           fill_bytes);
    }
    if (num_elements(middle.extents) == 0) return;
    std::int64_t skipped = 0;
    Shape extents = middle.extents;
    if (!extents.empty()) {
      skipped = before(first);
      extents[dim] = before(end) - skipped;
      if (extents[dim] == 0) return;
    }
    const auto offset = [&](const Strides& strides) {
      return strides.empty() ? 0 : skipped * strides[dim];
    };
    kernels::copy_box(buffers[1] + (middle.from + offset(middle.from_strides)) * bytes,
                      middle.from_strides,
                      buffers[2] + (middle.to + offset(middle.to_strides)) * bytes,
                      middle.to_strides, extents, element_bytes);
  }
};

/// A fraction of L1, in whole elements.
std::size_t fill_bytes_of(const CacheSizes& caches, std::size_t element_bytes) {
  constexpr std::int64_t kMostBytes = 16 << 10;
  const auto bytes =
      static_cast<std::size_t>(std::clamp<std::int64_t>(caches.l1 / 2, 0, kMostBytes));
  return std::max<std::size_t>(bytes / element_bytes, 1) * element_bytes;
}

Padding padding_of(const LowerContext& context, const Equation& equation,
                   const AtomDigits& digits) {
  const ir::Ints& interior = equation.attributes.ints("interior");
  const Shape& shape = context.function().type(equation.operands[0]).shape;
  const Box box = context.box(equation.results[0], digits);
  const Box inner = context.box(equation.operands[0], digits);
  const StridedTile read = context.read(equation.operands[0], digits);
  const Strides strides = row_major_strides(box.size);
  Padding padding{.middle = {read.offset, read.strides, 0, strides, inner.size}};
  padding.element_bytes = size_bytes(context.function().type(equation.results[0]).dtype);
  for (std::size_t d = 0; d < interior.size(); ++d) {
    const std::int64_t step = shape[d] > 1 ? interior[d] + 1 : 1;
    const std::int64_t low = inner.start[d] * step + equation.attributes.ints("low")[d];
    padding.low.push_back(low - box.start[d]);
    padding.steps.push_back(step);
    padding.middle.to += padding.low[d] * strides[d];
    padding.middle.to_strides[d] *= step;
  }
  padding.fill_bytes = fill_bytes_of(context.target().caches, padding.element_bytes);
  padding.result_extents = box.size;
  padding.result_strides = strides;
  padding.is_dense = num_elements(inner.size) > 0;
  for (std::size_t d = 0; d < box.size.size(); ++d) {
    padding.is_dense = padding.is_dense && (padding.steps[d] == 1 || inner.size[d] == 1);
    if (inner.size[d] != box.size[d]) padding.last_padded = d;
  }
  while (padding.dim + 1 < box.size.size() && box.size[padding.dim] == 1) ++padding.dim;
  if (!box.size.empty()) padding.num_rows = box.size[padding.dim];
  padding.row = num_elements(box.size) / std::max<std::int64_t>(padding.num_rows, 1);
  return padding;
}

std::vector<TileTask> lower_pad(const LowerContext& context, const Equation& equation) {
  const ValueId result = equation.results[0];
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = context.layout(result).digits(tile);
    const Padding padding = padding_of(context, equation, digits);
    tasks.push_back({.kernel = make_range_kernel(
                         context, padding.num_rows, padding.row,
                         [padding](std::span<std::byte* const> buffers, std::int64_t first,
                                   std::int64_t end) { padding.run(buffers, first, end); }),
                     .reads = {context.read(equation.operands[1], digits).tile,
                               context.read(equation.operands[0], digits).tile},
                     .writes = {{result, tile}},
                     .may_share = {}});
  }
  return tasks;
}

}  // namespace

Lowerings move_lowerings() {
  return {{"combine", lower_combine, true},
          {"concatenate", lower_concatenate, false},
          {"move", lower_move, false},
          {"pad", lower_pad, false}};
}

}  // namespace tessera::compile::host
