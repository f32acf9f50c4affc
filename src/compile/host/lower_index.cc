// Lowerings of ops that index by data: gather, sort, and keys of random numbers.

#include <algorithm>
#include <bit>

#include "base/threefry.h"
#include "compile/host/dense/index_shape.h"
#include "compile/host/kernels/index.h"
#include "compile/host/kernels/tile/tile_program_internal.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

std::vector<TileTask> lower_gather(const LowerContext& context, const Equation& equation) {
  const DType dtype = context.function().type(equation.results[0]).dtype;
  auto tasks = task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const ValueId table = equation.operands[0];
    const IndexShape shape = index_shape(equation, context.box(table, digits).size,
                                         context.box(equation.operands[1], digits).size);
    const auto dim = equation.attributes.integer("dim");
    const kernels::GatherProblem problem{.dtype = dtype,
                                         .outer = shape.outer,
                                         .rows = held_rows(context, table, dim, digits),
                                         .inner = shape.inner,
                                         .num_indices = shape.num_indices};
    const std::int64_t each = problem.outer * problem.num_indices;
    return make_range_kernel(
        context, shape.batch * each, problem.inner,
        [problem, each](std::span<std::byte* const> buffers, std::int64_t first, std::int64_t end) {
          const auto element = static_cast<std::int64_t>(size_bytes(problem.dtype));
          const std::int64_t bytes = problem.outer * problem.inner * element;
          const auto* indices = reinterpret_cast<const std::int32_t*>(buffers[1]);
          kernels::for_each_group(
              {first, end}, each, [&](std::int64_t i, const kernels::Lines& lines) {
                kernels::gather_rows(problem, lines, buffers[0] + i * problem.rows.count * bytes,
                                     indices + i * problem.num_indices,
                                     buffers[2] + i * problem.num_indices * bytes);
              });
        });
  });
  for (TileTask& task : tasks) {
    const AtomDigits digits = context.layout(equation.results[0]).digits(task.writes[0].tile);
    task.touched_bytes = box_bytes(context, equation.operands[1], digits) +
                         2 * box_bytes(context, equation.results[0], digits);
  }
  return tasks;
}

std::vector<TileTask> lower_sort(const LowerContext& context, const Equation& equation) {
  const auto dim = equation.attributes.integer("dim");
  kernels::SortProblem problem;
  for (ValueId id : equation.operands) {
    problem.dtypes.push_back(context.function().type(id).dtype);
  }
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const auto split = shape.begin() + dim;
    problem.outer = product(shape.begin(), split);
    problem.size = *split;
    problem.inner = product(split + 1, shape.end());
    const auto comparisons =
        static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(problem.size)));
    return make_range_kernel(
        context, problem.outer * problem.inner, comparisons * problem.size,
        [problem](std::span<std::byte* const> buffers, std::int64_t first, std::int64_t end) {
          const std::size_t count = problem.dtypes.size();
          kernels::sort_lines(problem, {first, end}, buffers.first(count),
                              buffers.subspan(count, count));
        });
  });
}

/// One task per result tile that calls `make(key, number of the key in the tile, its results)` for
/// each key of the tile; `make_function` gets the box of the results.
template <typename MakeFunction>
std::vector<TileTask> task_per_key_tile(const LowerContext& context, const Equation& equation,
                                        MakeFunction make_function) {
  const Layout& layout = context.layout(equation.results[0]);
  const auto num_batch =
      static_cast<std::ptrdiff_t>(context.function().type(equation.operands[0]).rank() - 1);
  const std::size_t num_operands = equation.operands.size();
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Box box = layout.box(layout.tile_at(digits));
    const auto split = box.size.begin() + num_batch;
    const std::int64_t num_keys = product(box.size.begin(), split);
    const std::int64_t count = product(split, box.size.end());
    return make_kernel(
        [=, function = make_function(box, num_batch)](std::span<std::byte* const> buffers) {
          const auto* words = reinterpret_cast<const std::uint32_t*>(buffers[0]);
          auto* out = reinterpret_cast<std::uint32_t*>(buffers[num_operands]);
          for (std::int64_t i = 0; i < num_keys; ++i) {
            function(KeyData{words[2 * i], words[2 * i + 1]}, buffers, i, out + i * count);
          }
        });
  });
}

using Buffers = std::span<std::byte* const>;

/// Lines along the last dimension have consecutive counters.
std::vector<TileTask> lower_random_bits(const LowerContext& context, const Equation& equation) {
  const Shape& shape = equation.attributes.ints("shape");
  const std::vector<std::int64_t> strides = row_major_strides(shape);
  return task_per_key_tile(context, equation, [&](const Box& box, std::ptrdiff_t num_batch) {
    const Shape size(box.size.begin() + num_batch, box.size.end());
    const std::int64_t line = size.empty() ? 1 : size.back();
    std::vector<std::int64_t> starts = {0};
    for (std::size_t d = 0; d < size.size(); ++d) {
      const std::int64_t start = box.start[static_cast<std::size_t>(num_batch) + d];
      const std::int64_t steps = d + 1 == size.size() ? 1 : size[d];
      std::vector<std::int64_t> next;
      for (std::int64_t base : starts) {
        for (std::int64_t i = 0; i < steps; ++i) next.push_back(base + (start + i) * strides[d]);
      }
      starts = std::move(next);
    }
    return [starts, line](KeyData key, Buffers, std::int64_t, std::uint32_t* out) {
      const std::uint32_t words[2] = {key.hi, key.lo};
      for (std::int64_t start : starts) {
        kernels::tiles::fill_random(words, start, 1, out, line);
        out += line;
      }
    };
  });
}

std::vector<TileTask> lower_random_fold_in(const LowerContext& context, const Equation& equation) {
  return task_per_key_tile(context, equation, [](const Box&, std::ptrdiff_t) {
    return [](KeyData key, Buffers buffers, std::int64_t i, std::uint32_t* out) {
      const auto pair = threefry2x32(key, 0, reinterpret_cast<const std::uint32_t*>(buffers[1])[i]);
      std::copy(pair.begin(), pair.end(), out);
    };
  });
}

std::vector<TileTask> lower_random_split(const LowerContext& context, const Equation& equation) {
  return task_per_key_tile(context, equation, [](const Box& box, std::ptrdiff_t num_batch) {
    const auto d = static_cast<std::size_t>(num_batch);
    const std::int64_t start = box.start[d];
    const std::int64_t count = box.size[d];
    return [start, count](KeyData key, Buffers, std::int64_t, std::uint32_t* out) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto index = static_cast<std::uint64_t>(start + i);
        const auto pair = threefry2x32(key, static_cast<std::uint32_t>(index >> 32),
                                       static_cast<std::uint32_t>(index));
        std::copy(pair.begin(), pair.end(), out + 2 * i);
      }
    };
  });
}

}  // namespace

Lowerings index_lowerings() {
  return {{"gather", lower_gather, true},
          {"random_bits", lower_random_bits, true},
          {"random_fold_in", lower_random_fold_in, true},
          {"random_split", lower_random_split, true},
          {"sort", lower_sort, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
