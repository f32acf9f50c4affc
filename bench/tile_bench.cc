// Measures fused elementwise and row programs on one thread: the GB/s that they load and store, ns
// per element, and their speed relative to a loop that moves the same number of streams and only
// adds.
//
//   tile_bench [options of Google Benchmark]
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "compile/host/kernels/targets.h"
#include "compile/host/kernels/tile/tile_program.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/tile_bench.cc"
#include <hwy/foreach_target.h>
// highway.h must be included after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Writes the sum of the inputs to every output.
void move_streams(const float* const* in, std::size_t num_in, float* const* out,
                  std::size_t num_out, std::size_t n) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    auto sum = hn::LoadU(d, in[0] + i);
    for (std::size_t k = 1; k < num_in; ++k) sum = hn::Add(sum, hn::LoadU(d, in[k] + i));
    for (std::size_t k = 0; k < num_out; ++k) hn::StoreU(sum, d, out[k] + i);
  }
}

}  // namespace tessera::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::bench {
namespace {

HWY_EXPORT(move_streams);

using kernels::StepKind;
using kernels::TileProgram;
using Ints = std::vector<std::int64_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct alignas(64) Line {
  float values[16];
};

// A tile program over an array [rows, columns], with its buffers.
class Region {
 public:
  Region(std::int64_t rows, std::int64_t columns, bool has_rows)
      : rows_(rows), columns_(columns), has_rows_(has_rows) {
    program_.extents = has_rows ? Shape{rows, columns} : Shape{rows * columns};
    program_.has_rows = has_rows;
  }

  int load(int buffer = -1) {
    if (buffer < 0) buffer = stream();
    loaded_.push_back(buffer);
    return add_load(buffer, has_rows_ ? Ints{columns_, 1} : Ints{1});
  }
  // Loads one number for all elements; load_columns() loads a row vector, one number per column.
  int load_scalar() { return add_load(buffer_of(1), Ints(program_.extents.size(), 0)); }
  int load_columns() { return add_load(buffer_of(columns_), {0, 1}); }
  int constant(double value, DType dtype = DType::f32) {
    program_.constants.push_back({.reg = program_.num_registers, .value = value, .dtype = dtype});
    return program_.num_registers++;
  }
  int random() {
    program_.random_bits.push_back({.reg = program_.num_registers,
                                    .key_buffer = buffer_of(2),
                                    .base = 0,
                                    .strides = has_rows_ ? Ints{columns_, 1} : Ints{1}});
    return program_.num_registers++;
  }
  int op(const char* name, std::vector<int> inputs, DType from = DType::f32, DType to = DType::f32,
         bool is_row = false) {
    kernels::TileStep step{};
    step.kernel = kernels::find_tile_kernel(name, from);
    step.is_row = is_row;
    return add_step(step, inputs, to);
  }
  int row_op(const char* name, std::vector<int> inputs) {
    return op(name, std::move(inputs), DType::f32, DType::f32, true);
  }
  int reduce(kernels::ReduceKind kind, int reg) {
    kernels::TileStep step{};
    step.kind = StepKind::reduce;
    step.reduction = static_cast<int>(program_.reductions.size());
    Ints cuts;
    for (int leaf = 0; leaf <= 8; ++leaf) cuts.push_back(columns_ * leaf / 8);
    program_.reductions.push_back({.kind = kind, .cuts = std::move(cuts)});
    return add_step(step, {reg}, DType::f32);
  }
  int expand(int reg) {
    kernels::TileStep step{};
    step.kind = StepKind::expand;
    return add_step(step, {reg}, DType::f32);
  }
  // Stores into a new buffer, or in place into the buffer of a load.
  void store(int reg, int buffer = -1) {
    if (buffer < 0) buffer = stream();
    stored_.push_back(buffer);
    program_.stores.push_back({.reg = reg,
                               .access = {.buffer = buffer,
                                          .offset = 0,
                                          .strides = has_rows_ ? Ints{columns_, 1} : Ints{1},
                                          .dtype = DType::f32}});
  }
  int stream() { return buffer_of(rows_ * columns_); }

  void run(benchmark::State& state) {
    const kernels::TilePlan plan(program_, 1);
    std::vector<std::byte*> pointers;
    for (auto& buffer : buffers_) pointers.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    double seconds = 1e9;
    for (auto _ : state) {
      const double start = thread_seconds();
      for (int part = 0; part < plan.num_parts(); ++part) plan.run(pointers, part);
      seconds = std::min(seconds, thread_seconds() - start);
    }
    const auto elements = static_cast<double>(rows_ * columns_);
    const auto bytes = 4.0 * elements * static_cast<double>(loaded_.size() + stored_.size());
    state.counters["GB/s"] = bytes / seconds * 1e-9;
    state.counters["ns/element"] = seconds / elements * 1e9;
    state.counters["share"] = least_seconds() / seconds;
  }

 private:
  static double thread_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  // The time to move the same streams with move_streams().
  double least_seconds() {
    std::vector<const float*> in;
    std::vector<float*> out;
    for (const int buffer : loaded_) in.push_back(buffers_[at(buffer)][0].values);
    for (const int buffer : stored_) out.push_back(buffers_[at(buffer)][0].values);
    double seconds = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const double start = thread_seconds();
      HWY_DYNAMIC_DISPATCH(move_streams)
      (in.data(), in.size(), out.data(), out.size(), at(rows_ * columns_));
      seconds = std::min(seconds, thread_seconds() - start);
    }
    return seconds;
  }

  int buffer_of(std::int64_t elements) {
    // Aligned to cache lines, like the memory of real programs.
    std::vector<Line> lines(at((elements + 15) / 16));
    for (std::size_t i = 0; i < 16 * lines.size(); ++i) {
      lines[i / 16].values[i % 16] = 0.001f * static_cast<float>((i * 7919) % 1000 + 1);
    }
    buffers_.push_back(std::move(lines));
    return static_cast<int>(buffers_.size()) - 1;
  }
  int add_load(int buffer, Ints strides) {
    program_.loads.push_back(
        {.reg = program_.num_registers,
         .access = {
             .buffer = buffer, .offset = 0, .strides = std::move(strides), .dtype = DType::f32}});
    return program_.num_registers++;
  }
  int add_step(kernels::TileStep step, const std::vector<int>& inputs, DType to) {
    step.num_inputs = static_cast<int>(inputs.size());
    std::copy(inputs.begin(), inputs.end(), step.inputs);
    step.out_dtype = to;
    step.output = program_.num_registers++;
    program_.steps.push_back(step);
    return step.output;
  }

  std::int64_t rows_;
  std::int64_t columns_;
  bool has_rows_;
  TileProgram program_;
  std::vector<std::vector<Line>> buffers_;
  std::vector<int> loaded_;
  std::vector<int> stored_;
};

// The Adam update: reads the gradient, updates the parameter and both moments in place.
Region adam(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, false);
  const int at_m = r.stream(), at_v = r.stream(), at_p = r.stream();
  const int m = r.load(at_m), v = r.load(at_v), p = r.load(at_p), g = r.load();
  const int m_new =
      r.op("add", {r.op("mul", {r.constant(0.9), m}), r.op("mul", {r.constant(0.1), g})});
  const int v_new = r.op("add", {r.op("mul", {r.constant(0.99), v}),
                                 r.op("mul", {r.constant(0.01), r.op("mul", {g, g})})});
  const int m_hat = r.op("div", {m_new, r.load_scalar()});
  const int root = r.op("sqrt", {r.op("div", {v_new, r.load_scalar()})});
  const int step = r.op("div", {m_hat, r.op("add", {root, r.constant(1e-8)})});
  r.store(m_new, at_m);
  r.store(v_new, at_v);
  r.store(r.op("sub", {p, r.op("mul", {r.constant(1e-3), step})}), at_p);
  return r;
}

struct Gelu {
  int cube, inner, tanh;
};
// x / 2 * (1 + tanh(a * (x + b * x^3)))
Gelu gelu_parts(Region& r, int x) {
  const int cube = r.op("mul", {x, r.op("mul", {x, x})});
  const int inner = r.op("mul", {r.op("add", {x, r.op("mul", {r.constant(0.044715), cube})}),
                                 r.constant(0.7978845608)});
  return {cube, inner, r.op("tanh", {inner})};
}

int dropout(Region& r, int x) {
  const int bits =
      r.op("shift_right_logical", {r.random(), r.constant(8, DType::u32)}, DType::u32, DType::u32);
  const int uniform =
      r.op("mul", {r.op("convert_u32_f32", {bits}, DType::u32), r.constant(1.0 / 16777216)});
  const int kept = r.op("compare_lt", {uniform, r.constant(0.9)}, DType::f32, DType::boolean);
  return r.op("select", {kept, r.op("mul", {x, r.constant(1 / 0.9)}), r.constant(0)});
}

Region gelu_dropout(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, true);
  const int x = r.op("add", {r.load(), r.load_columns()});
  const int tanh = gelu_parts(r, x).tanh;
  const int half = r.op("mul", {x, r.constant(0.5)});
  const int y = r.op("mul", {half, r.op("add", {tanh, r.constant(1)})});
  r.store(dropout(r, y));
  return r;
}

Region gelu_dropout_backward(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, true);
  const int x = r.op("add", {r.load(), r.load_columns()});
  const int dy = dropout(r, r.load());
  const int tanh = gelu_parts(r, x).tanh;
  const int one = r.constant(1);
  const int slope = r.op("sub", {one, r.op("mul", {tanh, tanh})});
  const int square = r.op("mul", {r.op("mul", {x, x}), r.constant(3 * 0.044715)});
  const int inner = r.op("mul", {r.op("add", {square, one}), r.constant(0.7978845608)});
  const int half = r.op("mul", {x, r.constant(0.5)});
  const int right = r.op("mul", {half, r.op("mul", {slope, inner})});
  const int left = r.op("mul", {r.op("add", {tanh, one}), r.constant(0.5)});
  r.store(r.op("mul", {dy, r.op("add", {left, right})}));
  return r;
}

struct Normed {
  int centered, rstd;
};
Normed normed(Region& r, int x, double columns) {
  const auto mean = [&](int reg) {
    return r.row_op("div", {r.reduce(kernels::ReduceKind::sum, reg), r.constant(columns)});
  };
  const int centered = r.op("sub", {x, r.expand(mean(x))});
  const int variance = mean(r.op("mul", {centered, centered}));
  return {centered, r.row_op("rsqrt", {r.row_op("add", {variance, r.constant(1e-5)})})};
}

Region layer_norm(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, true);
  const auto [centered, rstd] = normed(r, r.load(), static_cast<double>(columns));
  const int scaled = r.op("mul", {r.op("mul", {centered, r.expand(rstd)}), r.load_columns()});
  r.store(r.op("add", {scaled, r.load_columns()}));
  return r;
}

Region layer_norm_backward(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, true);
  const auto count = static_cast<double>(columns);
  const auto [centered, rstd] = normed(r, r.load(), count);
  const int expanded = r.expand(rstd);
  const int y = r.op("mul", {centered, expanded});
  const int dy = r.op("mul", {r.load(), r.load_columns()});
  const auto mean = [&](int reg) {
    const int sum = r.reduce(kernels::ReduceKind::sum, reg);
    return r.expand(r.row_op("div", {sum, r.constant(count)}));
  };
  const int along = r.op("mul", {y, mean(r.op("mul", {dy, y}))});
  const int rest = r.op("sub", {r.op("sub", {dy, mean(dy)}), along});
  r.store(r.op("mul", {expanded, rest}));
  return r;
}

Region softmax(std::int64_t rows, std::int64_t columns) {
  Region r(rows, columns, true);
  const int x = r.load();
  const int largest = r.expand(r.reduce(kernels::ReduceKind::max, x));
  const int e = r.op("exp", {r.op("sub", {x, largest})});
  r.store(r.op("div", {e, r.expand(r.reduce(kernels::ReduceKind::sum, e))}));
  return r;
}

struct Case {
  const char* name;
  Region (*make)(std::int64_t rows, std::int64_t columns);
  std::int64_t columns;
};
constexpr Case kCases[] = {
    {"adam", &adam, 1024},
    {"bias_gelu_dropout", &gelu_dropout, 1536},
    {"bias_gelu_dropout_backward", &gelu_dropout_backward, 1536},
    {"layer_norm", &layer_norm, 384},
    {"layer_norm_backward", &layer_norm_backward, 384},
    {"softmax", &softmax, 256},
    {"softmax", &softmax, 65},
};

void add_benchmarks() {
  for (const Case& c : kCases) {
    // One size that fits in the L2 cache, and one that does not fit in any cache.
    for (const std::int64_t elements : {std::int64_t{1} << 15, std::int64_t{1} << 22}) {
      const std::int64_t rows = std::max<std::int64_t>(elements / c.columns, 1);
      const std::string name =
          std::string(c.name) + "/" + std::to_string(rows) + "x" + std::to_string(c.columns);
      benchmark::RegisterBenchmark(
          name.c_str(), [c, rows](benchmark::State& state) { c.make(rows, c.columns).run(state); });
    }
  }
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tessera::bench::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
#endif  // HWY_ONCE
