#include "compile/host/contraction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

#include "compile/host/kernels/dot/dot.h"
#include "compile/host/kernels/dot/vector_products.h"
#include "compile/host/kernels/window/channels.h"
#include "compile/host/kernels/window/gathered.h"

namespace tessera::compile::host {

namespace {

constexpr std::size_t kMostTiles = 64;  // buffers of A, B or C in one task

/// What the buffers of the operands hold, and where their tiles begin.
struct Operands {
  Operands(const LowerContext& context, const Equation& equation, const StridedTile& a,
           const StridedTile& b)
      : dtype(context.function().type(equation.operands[0]).dtype),
        dot_unit(context.dot_unit()),
        num_workers(context.num_workers()),
        caches(context.target().caches),
        a_offset(a.offset),
        b_offset(b.offset) {}
  DType dtype;
  DotUnit dot_unit;  // of bf16
  int num_workers;
  CacheSizes caches;
  std::int64_t a_offset;
  std::int64_t b_offset;
};

/// Buffers: A of all products and pieces, B of all pieces, C of all products and sections. Several
/// plans have the same buffers, and each computes its rows of C.
class GemmKernel final : public run::Kernel {
 public:
  GemmKernel(std::vector<kernels::GemmPlan> plans, std::size_t of_a, std::size_t of_b,
             const Operands& operands)
      : plans_(std::move(plans)), of_a_(of_a), of_b_(of_b), operands_(operands) {
    int most = 0, all = 0;
    for (const kernels::GemmPlan& plan : plans_) {
      most = std::max(most, plan.num_parts());
      all += plan.num_parts();
    }
    parts_.resize(static_cast<std::size_t>(std::max(most, std::min(all, operands.num_workers))));
    distribute();
  }

  int num_parts() const override { return static_cast<int>(parts_.size()); }
  std::int64_t flops() const override {
    std::int64_t sum = 0;
    for (const kernels::GemmPlan& plan : plans_) sum += plan.flops();
    return sum;
  }
  std::int64_t scratch_bytes() const override {
    std::int64_t most = 0;
    for (const auto& part : parts_) {
      std::int64_t sum = 0;
      for (const auto& [plan, number] : part) sum += plan->scratch_bytes();
      most = std::max(most, sum);
    }
    return most;
  }
  void run(std::span<std::byte* const> buffers, int part) const override {
    const auto element_bytes = static_cast<std::int64_t>(size_bytes(operands_.dtype));
    std::array<const void*, 2 * kMostTiles> operands;
    for (std::size_t i = 0; i < of_a_ + of_b_; ++i) {
      operands[i] =
          buffers[i] + (i < of_a_ ? operands_.a_offset : operands_.b_offset) * element_bytes;
    }
    std::array<float*, kMostTiles> results;
    const std::span<std::byte* const> written = buffers.subspan(of_a_ + of_b_);
    for (std::size_t i = 0; i < written.size(); ++i)
      results[i] = reinterpret_cast<float*>(written[i]);
    const std::span<const void* const> all(operands);
    const auto a = all.first(of_a_), b = all.subspan(of_a_, of_b_);
    const auto c = std::span<float* const>(results).first(written.size());
    const auto& parts = parts_[static_cast<std::size_t>(part)];
    if (parts.size() == 1) return parts[0].plan->run(a, b, c, parts[0].part);
    kernels::GemmPlan::run_together(parts, a, b, c);
  }

 private:
  // Each part of a plan, the longest first, goes where the least work is so far.
  void distribute() {
    std::vector<const kernels::GemmPlan*> longest;
    for (const kernels::GemmPlan& plan : plans_) longest.push_back(&plan);
    const auto work = [](const kernels::GemmPlan* plan) {
      return plan->flops() / plan->num_parts();
    };
    std::stable_sort(longest.begin(), longest.end(),
                     [&](const auto* x, const auto* y) { return work(x) > work(y); });
    std::vector<std::int64_t> loads(parts_.size());
    for (const kernels::GemmPlan* plan : longest) {
      for (int part = 0; part < plan->num_parts(); ++part) {
        const auto least = std::min_element(loads.begin(), loads.end());
        *least += work(plan);
        parts_[static_cast<std::size_t>(least - loads.begin())].push_back({plan, part});
      }
    }
  }

  std::vector<kernels::GemmPlan> plans_;
  std::vector<std::vector<kernels::GemmPlan::PartOfPlan>> parts_;
  std::size_t of_a_, of_b_;  // tiles
  Operands operands_;
};

/// Products in another way: of vectors, by channel, or of operands that are gathered.
template <class Products, class Element = float, class Sum = float>
class ProductsKernel final : public run::Kernel {
 public:
  ProductsKernel(Products products, const Operands& operands)
      : products_(std::move(products)), operands_(operands) {}

  int num_parts() const override { return products_.num_parts(); }
  std::int64_t flops() const override { return products_.flops(); }
  std::int64_t scratch_bytes() const override { return products_.scratch_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    products_.run(reinterpret_cast<const Element*>(buffers[0]) + operands_.a_offset,
                  reinterpret_cast<const Element*>(buffers[1]) + operands_.b_offset,
                  reinterpret_cast<Sum*>(buffers[2]), part);
  }

 private:
  Products products_;
  Operands operands_;
};

/// Into how many pieces to cut each of `products` products of `rows` rows that are left when every
/// worker has as many as the others. Pieces have enough rows for a tile.
std::int64_t pieces_of_each(std::int64_t products, std::int64_t rows, std::int64_t workers) {
  constexpr std::int64_t kFewestRows = 8;
  std::int64_t best = 1;
  for (std::int64_t pieces = 2; rows / pieces >= kFewestRows; ++pieces) {
    const auto rounds = [&](std::int64_t n) { return (products * n + workers - 1) / workers; };
    if (rows % pieces == 0 && rounds(pieces) * best < rounds(best) * pieces) best = pieces;
  }
  return best;
}

/// Products of one micro-tile each, which plans do not cut: those that are left when every worker
/// has as many as the others are cut along their rows, so that more workers share them.
void cut_left_over(std::vector<kernels::GemmProblem>& problems, int num_workers) {
  constexpr std::size_t kMostRows = 16, kMostColumns = 32;
  constexpr std::size_t kFewestTerms = 1 << 14;  // of a product that is worth it
  const std::size_t rows = problems[0].a.outer.size();
  for (const kernels::GemmProblem& p : problems) {
    if (p.products > 1 || p.a.batch.size() > 1 || !p.row_ends.empty() || rows == 0 ||
        p.a.outer.size() != rows || rows > kMostRows || p.b.outer.size() > kMostColumns ||
        p.a.k.size() < kFewestTerms)
      return;
  }
  const auto num_left = static_cast<std::ptrdiff_t>(std::ssize(problems) % num_workers);
  const auto pieces = pieces_of_each(num_left, static_cast<std::int64_t>(rows), num_workers);
  if (pieces == 1) return;
  const std::vector<kernels::GemmProblem> left(problems.end() - num_left, problems.end());
  problems.erase(problems.end() - num_left, problems.end());
  const auto rows_of_piece = static_cast<std::ptrdiff_t>(rows) / pieces;
  for (const kernels::GemmProblem& product : left) {
    for (std::ptrdiff_t begin = 0; begin < std::ssize(product.a.outer); begin += rows_of_piece) {
      const auto some = [&](const OffsetTable& offsets) {
        return OffsetTable(offsets.begin() + begin, offsets.begin() + begin + rows_of_piece);
      };
      kernels::GemmProblem& piece = problems.emplace_back(product);
      piece.a.outer = some(product.a.outer);
      piece.c_rows = some(product.c_rows);
    }
  }
}

std::shared_ptr<const run::Kernel> gemm_kernel(std::vector<kernels::GemmProblem> problems,
                                               const Operands& operands) {
  if (operands.dtype == DType::f32) {
    if (auto products = kernels::VectorProducts::of(problems, operands.num_workers))
      return std::make_shared<ProductsKernel<kernels::VectorProducts>>(std::move(*products),
                                                                       operands);
    if (auto products = kernels::ChannelProducts::of(problems, operands.num_workers))
      return std::make_shared<ProductsKernel<kernels::ChannelProducts>>(std::move(*products),
                                                                        operands);
    if (auto products =
            kernels::GatheredProducts::of(problems, operands.num_workers, operands.caches))
      return std::make_shared<ProductsKernel<kernels::GatheredProducts>>(std::move(*products),
                                                                         operands);
  }
  if (operands.dtype == DType::bf16 && operands.dot_unit == DotUnit::avx512_bf16) {
    if (auto products =
            kernels::GatheredProducts::of_pairs(problems, operands.num_workers, operands.caches))
      return std::make_shared<ProductsKernel<kernels::GatheredProducts, std::uint16_t>>(
          std::move(*products), operands);
  }
  const auto pieces = static_cast<std::size_t>(problems[0].pieces);
  const std::size_t of_a = static_cast<std::size_t>(problems[0].products) * pieces;
  cut_left_over(problems, operands.num_workers);
  std::vector<kernels::GemmPlan> plans;
  for (kernels::GemmProblem& problem : problems) {
    if (operands.dtype == DType::bf16) {
      plans.emplace_back(std::move(problem), operands.dot_unit, operands.num_workers,
                         operands.caches);
    } else {
      plans.emplace_back(std::move(problem), operands.num_workers, operands.caches);
    }
  }
  return std::make_shared<GemmKernel>(std::move(plans), of_a, pieces, operands);
}

/// Products of dtypes that kernels/gemm does not have.
class DotKernel final : public run::Kernel {
 public:
  DotKernel(kernels::GemmProblem problem, const Operands& operands)
      : plan_(std::move(problem), operands.dtype, operands.num_workers), operands_(operands) {}

  int num_parts() const override { return plan_.num_parts(); }
  std::int64_t flops() const override { return plan_.flops(); }
  std::int64_t scratch_bytes() const override { return plan_.scratch_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    const auto bytes = static_cast<std::int64_t>(size_bytes(operands_.dtype));
    plan_.run(buffers[0] + operands_.a_offset * bytes, buffers[1] + operands_.b_offset * bytes,
              buffers[2], part);
  }

 private:
  kernels::DotPlan plan_;
  Operands operands_;
};

/// Kernels on the same buffers, whose parts are independent.
class SeveralKernels final : public run::Kernel {
 public:
  explicit SeveralKernels(std::vector<std::shared_ptr<const run::Kernel>> kernels)
      : kernels_(std::move(kernels)) {
    for (const auto& kernel : kernels_) ends_.push_back(num_parts() + kernel->num_parts());
  }

  int num_parts() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t flops() const override {
    std::int64_t sum = 0;
    for (const auto& kernel : kernels_) sum += kernel->flops();
    return sum;
  }
  std::int64_t scratch_bytes() const override {
    std::int64_t most = 0;
    for (const auto& kernel : kernels_) most = std::max(most, kernel->scratch_bytes());
    return most;
  }
  void run(std::span<std::byte* const> buffers, int part) const override {
    const auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), part) -
                                            ends_.begin());
    kernels_[i]->run(buffers, part - (i == 0 ? 0 : ends_[i - 1]));
  }

 private:
  std::vector<std::shared_ptr<const run::Kernel>> kernels_;
  std::vector<int> ends_;  // of the parts of each
};

std::shared_ptr<const run::Kernel> contraction_kernel(std::vector<kernels::GemmProblem> problems,
                                                      const Operands& operands) {
  if (!kernels::DotPlan::takes(operands.dtype)) return gemm_kernel(std::move(problems), operands);
  if (operands.dtype == DType::f64) {
    if (auto products = kernels::VectorProducts::of(problems, operands.num_workers))
      return std::make_shared<ProductsKernel<kernels::VectorProducts, double, double>>(
          std::move(*products), operands);
  }
  std::vector<std::shared_ptr<const run::Kernel>> list;
  for (kernels::GemmProblem& problem : problems)
    list.push_back(std::make_shared<DotKernel>(std::move(problem), operands));
  if (list.size() == 1) return list[0];
  return std::make_shared<SeveralKernels>(std::move(list));
}

/// A product whose sum also goes over the pieces of several devices. Empty if their grains would
/// not be added in the order in which the sums of the devices are.
std::optional<kernels::GemmProblem> repeated(kernels::GemmProblem problem, std::size_t pieces) {
  if (pieces == 1) return problem;
  const std::size_t leaves = problem.leaf_ends.size();
  if (!std::has_single_bit(leaves)) return std::nullopt;
  const OffsetTable a = problem.a.k;
  const OffsetTable b = problem.b.k;
  for (std::size_t i = 1; i < pieces; ++i) {
    const std::int64_t before = problem.leaf_ends.back();
    for (std::size_t leaf = 0; leaf < leaves; ++leaf)
      problem.leaf_ends.push_back(before + problem.leaf_ends[leaf]);
    problem.a.k.insert(problem.a.k.end(), a.begin(), a.end());
    problem.b.k.insert(problem.b.k.end(), b.begin(), b.end());
  }
  problem.pieces = static_cast<std::int64_t>(pieces);
  return problem;
}

/// The tiles into which a product, or a sum of products over devices, is written: one tile, or a
/// grid of tiles.
struct Grid {
  std::vector<Box> rows, columns;  // of the result's rows and columns; empty: one tile has all
  std::vector<TileRef> tiles;      // row by row

  std::vector<std::int64_t> words() const {
    std::vector<std::int64_t> words;
    for (const auto* boxes : {&rows, &columns}) {
      words.push_back(static_cast<std::int64_t>(boxes->size()));
      for (const Box& box : *boxes) {
        words.insert(words.end(), box.start.begin(), box.start.end());
        words.insert(words.end(), box.size.begin(), box.size.end());
      }
    }
    return words;
  }
};

/// Some dimensions of a box, relative to the start of another box.
Box part_of(const Box& box, const Box& from, std::size_t begin, std::size_t end) {
  Box part;
  for (std::size_t d = begin; d < end; ++d) {
    part.start.push_back(box.start[d] - from.start[d]);
    part.size.push_back(box.size[d]);
  }
  return part;
}

/// The position of a box in a list; a new box is appended.
std::size_t place_in(std::vector<Box>& boxes, const Box& box) {
  std::size_t i = 0;
  while (i < boxes.size() && boxes[i].start != box.start) ++i;
  if (i == boxes.size()) boxes.push_back(box);
  return i;
}

/// Whether the boxes cover everything, and cutting there leaves only few rows of a micro-tile
/// unused. With more of them a copy is cheaper.
bool is_cut_well(const std::vector<Box>& boxes, std::int64_t whole, std::int64_t unit) {
  const auto padded = [&](std::int64_t size) { return (size + unit - 1) / unit * unit; };
  std::int64_t size = 0, cut = 0;
  for (const Box& box : boxes) {
    size += num_elements(box.size);
    cut += padded(num_elements(box.size));
  }
  return size == whole && 10 * cut <= 11 * padded(whole);
}

/// The tiles of the sum into which the summands of the devices go. Empty if they do not form a grid
/// over rows and columns, or the grid is too fine.
std::optional<Grid> grid_of(const LowerContext& context, ValueId partial, ValueId sum,
                            const std::vector<AtomDigits>& summands, const ResultDims& dims) {
  constexpr std::int64_t kRows = 8, kColumns = 16;  // about the size of a micro-tile
  const Box whole = context.box(partial, summands[0]);
  const std::size_t rank = whole.size.size();
  const std::size_t first_column = rank - dims.columns;
  Grid grid;
  std::map<std::pair<std::size_t, std::size_t>, TileRef> tiles;
  for (const AtomDigits& digits : summands) {
    const Box box = context.box(sum, digits);
    if (part_of(box, whole, 0, dims.batch).size != part_of(whole, whole, 0, dims.batch).size)
      return std::nullopt;
    const std::size_t row = place_in(grid.rows, part_of(box, whole, dims.batch, first_column));
    const std::size_t column = place_in(grid.columns, part_of(box, whole, first_column, rank));
    tiles[{row, column}] = {sum, context.layout(sum).tile_at(digits)};
  }
  if (tiles.size() != grid.rows.size() * grid.columns.size()) return std::nullopt;
  for (const auto& [place, tile] : tiles) grid.tiles.push_back(tile);
  if (tiles.size() == 1 && context.box(sum, summands[0]).size == whole.size)
    return Grid{.rows = {}, .columns = {}, .tiles = std::move(grid.tiles)};
  const auto elements = [&](std::size_t begin, std::size_t end) {
    return num_elements(part_of(whole, whole, begin, end).size);
  };
  if (!is_cut_well(grid.rows, elements(dims.batch, first_column), kRows) ||
      !is_cut_well(grid.columns, elements(first_column, rank), kColumns))
    return std::nullopt;
  return grid;
}

/// Sorts the offsets of a result's rows or columns by box. Returns the ends of the boxes.
std::vector<std::int64_t> cut_outer(OffsetTable& outer, const std::vector<Box>& boxes,
                                    const Shape& extents) {
  ir::Ints dims(extents.size());
  std::iota(dims.begin(), dims.end(), 0);
  const std::vector<std::int64_t> strides = row_major_strides(extents);
  OffsetTable ordered;
  std::vector<std::int64_t> ends;
  for (const Box& box : boxes) {
    const std::int64_t first =
        std::inner_product(strides.begin(), strides.end(), box.start.begin(), std::int64_t{0});
    for (const std::int64_t i : offsets(dims, box.size, strides))
      ordered.push_back(outer[static_cast<std::size_t>(first + i)]);
    ends.push_back(static_cast<std::int64_t>(ordered.size()));
  }
  outer = std::move(ordered);
  return ends;
}

/// Products, or sums of products over devices, that one task computes. Their operands have the same
/// extents, and all have the same B.
struct Products {
  AtomDigits digits;  // of the first piece of the first one
  StridedTile a, b;
  std::size_t pieces = 1;  // over which each is summed
  Grid grid;               // of the first one
  std::vector<TileRef> of_a, of_b, results = {};
  std::size_t count = 0;
};

/// Equal for two tiles only if they can share a plan.
std::vector<std::int64_t> plan_key(const LowerContext& context, const Equation& equation,
                                   const Contraction& contraction, const AtomDigits& digits) {
  std::vector<std::int64_t> key = context.extents_key(equation, digits);
  if (contraction.key == nullptr) return key;
  const std::vector<std::int64_t> more = contraction.key(digits);
  key.insert(key.end(), more.begin(), more.end());
  return key;
}

/// The products of an equation, in as few tasks as possible.
class ProductList {
 public:
  ProductList(const LowerContext& context, const Equation& equation, const Contraction& contraction)
      : context_(context),
        equation_(equation),
        contraction_(contraction),
        a_(equation.operands[contraction.a]),
        b_(equation.operands[1 - contraction.a]),
        is_shared_(!kernels::DotPlan::takes(context.function().type(equation.results[0]).dtype)) {}

  /// A product whose sum also goes over these digits.
  void add(const std::vector<AtomDigits>& summands, Grid grid) {
    std::vector<std::int64_t> key = plan_key(context_, equation_, contraction_, summands[0]);
    const std::vector<std::int64_t> words = grid.words();
    key.insert(key.end(), words.begin(), words.end());
    std::vector<TileRef> of_a, of_b;
    for (const AtomDigits& digits : summands) {
      of_a.push_back(context_.read(a_, digits).tile);
      of_b.push_back(context_.read(b_, digits).tile);
      key.push_back(of_b.back().tile);
    }
    const auto [place, is_new] = last_.try_emplace(std::move(key), products.size());
    const bool has_place =
        !is_new && is_shared_ &&
        products[place->second].results.size() + grid.tiles.size() <= kMostTiles &&
        products[place->second].of_a.size() + of_a.size() <= kMostTiles;
    if (!has_place) {
      place->second = products.size();
      products.push_back({.digits = summands[0],
                          .a = context_.read(a_, summands[0]),
                          .b = context_.read(b_, summands[0]),
                          .pieces = summands.size(),
                          .grid = grid,
                          .of_a = {},
                          .of_b = std::move(of_b)});
    }
    Products& to = products[place->second];
    to.of_a.insert(to.of_a.end(), of_a.begin(), of_a.end());
    to.results.insert(to.results.end(), grid.tiles.begin(), grid.tiles.end());
    ++to.count;
  }

  std::vector<Products> products;

 private:
  const LowerContext& context_;
  const Equation& equation_;
  const Contraction& contraction_;
  ValueId a_, b_;
  bool is_shared_;
  std::map<std::vector<std::int64_t>, std::size_t> last_;
};

/// Products that sum over devices directly, so that no partial result is written. Empty if the
/// parts differ in extents.
std::optional<std::vector<Products>> sums_of(const LowerContext& context, const Equation& equation,
                                             ValueId sum, const Contraction& contraction) {
  const ValueId partial = equation.results[0];
  if (context.function().type(partial).dtype != DType::f32) return std::nullopt;
  const Layout& layout = context.layout(partial);
  std::vector<std::pair<std::vector<AtomDigits>, std::optional<Grid>>> all;
  bool is_scattered = true;
  for (std::int64_t tile : context.tiles(partial)) {
    auto summands = context.own_summands(partial, sum, layout.digits(tile));
    if (summands.size() > kMostTiles) return std::nullopt;
    if (layout.tile_at(summands[0]) != tile) continue;
    const std::vector<std::int64_t> key = plan_key(context, equation, contraction, summands[0]);
    for (const AtomDigits& digits : summands) {
      if (plan_key(context, equation, contraction, digits) != key) return std::nullopt;
    }
    std::optional<Grid> grid;
    if (!context.is_sum_shared(partial)) {
      grid = grid_of(context, partial, sum, summands, contraction.dims);
    }
    is_scattered = is_scattered && grid;
    all.emplace_back(std::move(summands), std::move(grid));
  }
  ProductList list(context, equation, contraction);
  for (auto& [summands, grid] : all) {
    // The maker writes either the whole sum or nothing of it.
    const TileRef first = {partial, layout.tile_at(summands[0])};
    list.add(summands,
             is_scattered ? std::move(*grid) : Grid{.rows = {}, .columns = {}, .tiles = {first}});
  }
  return std::move(list.products);
}

std::vector<Products> products_of(const LowerContext& context, const Equation& equation,
                                  const Contraction& contraction) {
  const ValueId result = equation.results[0];
  ProductList list(context, equation, contraction);
  for (std::int64_t tile : context.tiles(result)) {
    list.add({context.layout(result).digits(tile)},
             {.rows = {}, .columns = {}, .tiles = {{result, tile}}});
  }
  return std::move(list.products);
}

/// The problems of these products; empty in the same cases as repeated(), and if several problems
/// would have sections.
std::optional<std::vector<kernels::GemmProblem>> problems_of(const LowerContext& context,
                                                             const Equation& equation,
                                                             const Products& products,
                                                             const Contraction& contraction) {
  std::vector<kernels::GemmProblem> problems =
      contraction.make(products.a, products.b, products.digits);
  const Grid& grid = products.grid;
  if (problems.size() > 1 && !grid.rows.empty()) return std::nullopt;
  for (kernels::GemmProblem& problem : problems) {
    auto whole = repeated(std::move(problem), products.pieces);
    if (!whole) return std::nullopt;
    problem = std::move(*whole);
    problem.products = static_cast<std::int64_t>(products.count);
    if (grid.rows.empty()) continue;
    const Box box = context.box(equation.results[0], products.digits);
    const auto rows = box.size.begin() + static_cast<std::ptrdiff_t>(contraction.dims.batch);
    const auto columns = box.size.end() - static_cast<std::ptrdiff_t>(contraction.dims.columns);
    problem.row_ends = cut_outer(problem.a.outer, grid.rows, Shape(rows, columns));
    problem.column_ends = cut_outer(problem.b.outer, grid.columns, Shape(columns, box.size.end()));
  }
  return problems;
}

/// One task for each. Empty if a sum over devices has another order than the sums of the devices.
std::optional<std::vector<TileTask>> tasks_of(const LowerContext& context, const Equation& equation,
                                              const std::vector<Products>& all,
                                              const Contraction& contraction) {
  const std::int64_t kind = context.pool().kind_of(equation);
  std::vector<TileTask> tasks;
  for (const Products& products : all) {
    const auto& [digits, a, b, pieces, grid, of_a, of_b, results, count] = products;
    KernelKey key(KernelKey::Kind::contraction);
    key.add(kind).add(plan_key(context, equation, contraction, digits)).add(count).add(pieces);
    key.add(grid.words());
    for (const StridedTile* from : {&a, &b}) key.add(from->offset).add(from->strides);
    key.add(context.read(equation.results[0], digits).strides);
    auto kernel = context.pool().get(
        std::move(key), [&, &one = products]() -> std::shared_ptr<const run::Kernel> {
          auto problems = problems_of(context, equation, one, contraction);
          if (!problems) return nullptr;
          return contraction_kernel(std::move(*problems),
                                    Operands(context, equation, one.a, one.b));
        });
    if (kernel == nullptr) return std::nullopt;
    TileTask task{.kernel = std::move(kernel), .reads = of_a, .writes = results, .may_share = {}};
    task.reads.insert(task.reads.end(), of_b.begin(), of_b.end());
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

OffsetTable offsets(const ir::Ints& dims, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides) {
  OffsetTable table = {0};
  for (std::int64_t dim : dims) {
    const auto d = static_cast<std::size_t>(dim);
    OffsetTable next;
    next.reserve(table.size() * static_cast<std::size_t>(sizes[d]));
    for (std::int64_t base : table) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) next.push_back(base + i * strides[d]);
    }
    table = std::move(next);
  }
  return table;
}

std::vector<TileTask> contraction_tasks(const LowerContext& context, const Equation& equation,
                                        const Contraction& contraction) {
  if (const auto sum = context.sum_of(equation.results[0])) {
    if (const auto sums = sums_of(context, equation, *sum, contraction)) {
      if (auto tasks = tasks_of(context, equation, *sums, contraction)) return std::move(*tasks);
    }
  }
  auto tasks =
      tasks_of(context, equation, products_of(context, equation, contraction), contraction);
  require(tasks.has_value(), "the sum of one device follows the order of its grains");
  return std::move(*tasks);
}

}  // namespace tessera::compile::host
