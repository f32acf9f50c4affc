// Lowerings of ops that work along dimensions of dense tiles: cumulative ones, top_k, windows,
// indexing line by line.
#include <algorithm>
#include <cstring>

#include "compile/host/contraction.h"
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/lines.h"
#include "compile/host/kernels/window.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

DType dtype_of(const LowerContext& context, ValueId id) {
  return context.function().type(id).dtype;
}

std::int64_t bytes_of(DType dtype, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_bytes(dtype));
}

const std::int32_t* as_indices(const std::byte* buffer) {
  return reinterpret_cast<const std::int32_t*>(buffer);
}

kernels::CumulativeKind cumulative_kind(const std::string& op) {
  if (op == "cumsum") return kernels::CumulativeKind::sum;
  if (op == "cumprod") return kernels::CumulativeKind::product;
  return op == "cummax" ? kernels::CumulativeKind::max : kernels::CumulativeKind::min;
}

kernels::ReduceKind window_kind(const std::string& op) {
  if (op == "reduce_window_sum") return kernels::ReduceKind::sum;
  return op == "reduce_window_max" ? kernels::ReduceKind::max : kernels::ReduceKind::min;
}

/// The problem of the tile: lines of `table` (an operand or the result) and of the indices.
kernels::AlongProblem along_problem(const LowerContext& context, const Equation& equation,
                                    ValueId table, ValueId indices, const AtomDigits& digits) {
  const std::int64_t dim = equation.attributes.integer("dim");
  const LineSizes lines = line_sizes(context.box(indices, digits).size, dim);
  return {.dtype = dtype_of(context, table),
          .outer = lines.outer,
          .rows = context.box(table, digits).size[static_cast<std::size_t>(dim)],
          .count = lines.size,
          .inner = lines.inner};
}

/// Which buffers hold the whole lines, the indices, and what is read or added at them.
struct AlongBuffers {
  std::size_t table;
  std::size_t indices;
  std::size_t rows;
};

/// `run` gets the problem of a range of lines, and where its table, indices and rows begin.
template <typename Run>
std::shared_ptr<const run::Kernel> along_kernel(const kernels::AlongProblem& problem,
                                                const AlongBuffers& at, Run run) {
  const std::int64_t table_bytes = bytes_of(problem.dtype, problem.rows * problem.inner);
  const std::int64_t indices = problem.count * problem.inner;
  const std::int64_t row_bytes = bytes_of(problem.dtype, indices);
  return make_range_kernel(
      problem.outer, indices,
      [=](std::span<std::byte* const> buffers, std::int64_t begin, std::int64_t end) {
        kernels::AlongProblem part = problem;
        part.outer = end - begin;
        run(part, buffers[at.table] + begin * table_bytes,
            as_indices(buffers[at.indices]) + begin * indices,
            buffers[at.rows] + begin * row_bytes);
      });
}

/// Windows that have one element along the first dimension may be cut there.
std::shared_ptr<const run::Kernel> window_kernel(const kernels::WindowProblem& problem) {
  const bool can_cut = !problem.window.empty() && problem.window[0] == 1 && problem.stride[0] == 1;
  if (!can_cut) {
    return make_kernel([problem](std::span<std::byte* const> buffers) {
      kernels::reduce_window(problem, buffers[0], buffers[1]);
    });
  }
  const std::int64_t operand = product(problem.operand.begin() + 1, problem.operand.end());
  const std::int64_t result = product(problem.result.begin() + 1, problem.result.end());
  return make_range_kernel(
      problem.result[0], operand,
      [problem, from = bytes_of(problem.dtype, operand), to = bytes_of(problem.dtype, result)](
          std::span<std::byte* const> buffers, std::int64_t begin, std::int64_t end) {
        kernels::WindowProblem part = problem;
        part.operand[0] = part.result[0] = end - begin;
        kernels::reduce_window(part, buffers[0] + begin * from, buffers[1] + begin * to);
      });
}

template <typename T>
void multiply_all(const OffsetTable& kept, const OffsetTable& reduced, const std::byte* operand,
                  std::byte* result) {
  const T* from = reinterpret_cast<const T*>(operand);
  T* to = reinterpret_cast<T*>(result);
  for (std::int64_t base : kept) {
    T product{1};
    for (std::int64_t offset : reduced) product *= from[base + offset];
    *to++ = product;
  }
}

}  // namespace

std::vector<TileTask> lower_cumulative(const LowerContext& context, const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[0], digits).size,
                                       equation.attributes.integer("dim"));
    const kernels::CumulativeProblem problem{.kind = cumulative_kind(*equation.op->name),
                                             .dtype = dtype_of(context, equation.operands[0]),
                                             .outer = lines.outer,
                                             .size = lines.size,
                                             .inner = lines.inner,
                                             .reverse = equation.attributes.get<bool>("reverse")};
    const std::int64_t line_bytes = bytes_of(problem.dtype, lines.size * lines.inner);
    return make_range_kernel(lines.outer, lines.size * lines.inner,
                             [problem, line_bytes](std::span<std::byte* const> buffers,
                                                   std::int64_t begin, std::int64_t end) {
                               kernels::CumulativeProblem part = problem;
                               part.outer = end - begin;
                               kernels::cumulate(part, buffers[0] + begin * line_bytes,
                                                 buffers[1] + begin * line_bytes);
                             });
  });
}

std::vector<TileTask> lower_top_k(const LowerContext& context, const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[0], digits).size,
                                       equation.attributes.integer("dim"));
    const kernels::TopKProblem problem{.dtype = dtype_of(context, equation.operands[0]),
                                       .outer = lines.outer,
                                       .size = lines.size,
                                       .inner = lines.inner,
                                       .k = equation.attributes.integer("k")};
    const std::int64_t line_bytes = bytes_of(problem.dtype, lines.size * lines.inner);
    const std::int64_t best = problem.k * lines.inner;
    return make_range_kernel(lines.outer, 4 * lines.size * lines.inner,
                             [problem, line_bytes, best](std::span<std::byte* const> buffers,
                                                         std::int64_t begin, std::int64_t end) {
                               kernels::TopKProblem part = problem;
                               part.outer = end - begin;
                               kernels::top_k(
                                   part, buffers[0] + begin * line_bytes,
                                   buffers[1] + begin * bytes_of(part.dtype, best),
                                   reinterpret_cast<std::int32_t*>(buffers[2]) + begin * best);
                             });
  });
}

std::vector<TileTask> lower_gather_along(const LowerContext& context, const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const auto problem =
        along_problem(context, equation, equation.operands[0], equation.operands[1], digits);
    return along_kernel(
        problem, {.table = 0, .indices = 1, .rows = 2},
        [](const kernels::AlongProblem& part, std::byte* table, const std::int32_t* indices,
           std::byte* rows) { kernels::gather_along(part, table, indices, rows); });
  });
}

std::vector<TileTask> lower_scatter_add_along(const LowerContext& context,
                                              const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const auto problem =
        along_problem(context, equation, equation.results[0], equation.operands[0], digits);
    return along_kernel(
        problem, {.table = 2, .indices = 0, .rows = 1},
        [](const kernels::AlongProblem& part, std::byte* table, const std::int32_t* indices,
           std::byte* rows) { kernels::scatter_add_along(part, indices, rows, table); });
  });
}

std::vector<TileTask> lower_scatter(const LowerContext& context, const Equation& equation) {
  auto tasks = task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.results[0], digits).size;
    const LineSizes lines = line_sizes(shape, equation.attributes.integer("dim"));
    const auto element =
        static_cast<std::int64_t>(size_bytes(dtype_of(context, equation.results[0])));
    const kernels::ScatterProblem problem{
        .element_bytes = element,
        .outer = lines.outer,
        .rows = lines.size,
        .inner = lines.inner,
        .num_indices = num_elements(context.box(equation.operands[1], digits).size)};
    const auto bytes = static_cast<std::size_t>(num_elements(shape) * element);
    return make_kernel([problem, bytes](std::span<std::byte* const> buffers) {
      if (buffers[3] != buffers[0]) std::memcpy(buffers[3], buffers[0], bytes);
      kernels::scatter_rows(problem, as_indices(buffers[1]), buffers[2], buffers[3]);
    });
  });
  for (TileTask& task : tasks) task.may_share = {{0, 0}};
  return tasks;
}

std::vector<TileTask> lower_reduce_window(const LowerContext& context, const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const kernels::WindowProblem problem{.kind = window_kind(*equation.op->name),
                                         .dtype = dtype_of(context, equation.operands[0]),
                                         .operand = context.box(equation.operands[0], digits).size,
                                         .result = context.box(equation.results[0], digits).size,
                                         .window = equation.attributes.ints("window"),
                                         .stride = equation.attributes.ints("stride")};
    return window_kernel(problem);
  });
}

std::vector<TileTask> lower_reduce_prod(const LowerContext& context, const Equation& equation) {
  const ir::Ints& dims = equation.attributes.ints("dims");
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const auto strides = row_major_strides(shape);
    ir::Ints kept;
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(shape.size()); ++dim) {
      if (std::count(dims.begin(), dims.end(), dim) == 0) kept.push_back(dim);
    }
    return make_kernel([bases = offsets(kept, shape, strides),
                        terms = offsets(dims, shape, strides),
                        dtype](std::span<std::byte* const> buffers) {
      if (dtype == DType::f32) return multiply_all<float>(bases, terms, buffers[0], buffers[1]);
      multiply_all<std::uint32_t>(bases, terms, buffers[0], buffers[1]);
    });
  });
}

}  // namespace tessera::compile::host
