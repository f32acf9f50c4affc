// Tasks of ops with one kernel per tile that reads dense operands.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "compile/host/kernels/index.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

/// A kernel given as a function of the buffers.
template <typename F>
class FunctionKernel final : public run::Kernel {
 public:
  explicit FunctionKernel(F function) : function_(std::move(function)) {}
  void run(std::span<std::byte* const> buffers, int /*part*/) const override { function_(buffers); }

 private:
  F function_;
};

template <typename F>
std::shared_ptr<const run::Kernel> make_kernel(F function) {
  return std::make_shared<FunctionKernel<F>>(std::move(function));
}

/// Like FunctionKernel, for `count` independent pieces of work. Each part takes a range of them.
template <typename F>
class RangeKernel final : public run::Kernel {
 public:
  RangeKernel(int num_workers, std::int64_t count, std::int64_t terms_each, F function)
      : count_(count),
        num_parts_(kernels::num_parts_for(num_workers, count * terms_each, kMinPartTerms, count)),
        function_(std::move(function)) {}

  int num_parts() const override { return num_parts_; }
  void run(std::span<std::byte* const> buffers, int part) const override {
    function_(buffers, count_ * part / num_parts_, count_ * (part + 1) / num_parts_);
  }

 private:
  static constexpr std::int64_t kMinPartTerms = std::int64_t{32} * 1024;

  std::int64_t count_;
  int num_parts_;
  F function_;
};

/// Calls `function` with the buffers and the range.
template <typename F>
std::shared_ptr<const run::Kernel> make_range_kernel(const LowerContext& context,
                                                     std::int64_t count, std::int64_t terms_each,
                                                     F function) {
  return std::make_shared<RangeKernel<F>>(context.num_workers(), count, terms_each,
                                          std::move(function));
}

inline std::int64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  std::int64_t count = 1;
  for (; begin != end; ++begin) count *= *begin;
  return count;
}

/// One task per result tile, which reads tiles of all operands. `make` gets the digits and returns
/// the kernel.
template <typename Make>
std::vector<TileTask> task_per_tile(const LowerContext& context, const Equation& equation,
                                    Make make) {
  const Layout& layout = context.layout(equation.results[0]);
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(equation.results[0])) {
    const AtomDigits digits = layout.digits(tile);
    TileTask task{.kernel = make(digits), .reads = {}, .writes = {}, .may_share = {}};
    for (ValueId id : equation.operands) task.reads.push_back(context.read(id, digits).tile);
    for (ValueId id : equation.results) task.writes.push_back({id, tile});
    tasks.push_back(std::move(task));
  }
  return tasks;
}

inline DType dtype_of(const LowerContext& context, ValueId id) {
  return context.function().type(id).dtype;
}
/// The bytes of the range of a value for these digits.
inline std::int64_t box_bytes(const LowerContext& context, ValueId id, const AtomDigits& digits) {
  return size_bytes(Type{dtype_of(context, id), context.box(id, digits).size});
}
/// The buffer as an array of its element type.
template <typename T>
T* elements_of(std::conditional_t<std::is_const_v<T>, const std::byte*, std::byte*> buffer) {
  return reinterpret_cast<T*>(buffer);
}

/// Element counts before, along and after a dimension.
struct LineSizes {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
};
inline LineSizes line_sizes(const Shape& shape, std::int64_t dim) {
  const auto split = shape.begin() + dim;
  return {product(shape.begin(), split), *split, product(split + 1, shape.end())};
}

/// The index range along `dim` of the tile of `table` for these digits.
inline kernels::HeldRows held_rows(const LowerContext& context, ValueId table, std::int64_t dim,
                                   const AtomDigits& digits) {
  const auto d = static_cast<std::size_t>(dim);
  const Box box = context.box(table, digits);
  return {.first = box.start[d], .count = box.size[d], .total = context.layout(table).shape()[d]};
}

}  // namespace tessera::compile::host
