#include "compile/host/contraction.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

#include "compile/host/contraction_kernel.h"
#include "compile/host/kernels/dot/dot.h"

namespace tessera::compile::host {

namespace {

/// A product whose sum also goes over the pieces of several devices. nullopt if the grains would be
/// added in another order than the sums of the devices.
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
  std::vector<Box> rows, columns;  // of the result's rows and columns; empty: one tile has them all
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

/// Whether the boxes cover everything, and cutting at their borders leaves only few rows of
/// micro-tiles unused. With more unused rows, a copy is cheaper.
bool is_cut_well(const std::vector<Box>& boxes, std::int64_t whole, std::int64_t unit) {
  const auto padded = [&](std::int64_t size) { return (size + unit - 1) / unit * unit; };
  std::int64_t size = 0, cut = 0;
  for (const Box& box : boxes) {
    size += num_elements(box.size);
    cut += padded(num_elements(box.size));
  }
  return size == whole && 10 * cut <= 11 * padded(whole);
}

/// The tiles of the sum into which the devices' summands go. nullopt if they do not form a grid
/// over rows and columns, or if the grid is too fine.
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
  AtomDigits digits;  // of the first piece of the first product
  StridedTile a, b;
  std::size_t pieces = 1;  // over which each product is summed
  Grid grid;               // of the first product
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

/// Products that sum over devices directly, so that no partial result is written. nullopt if the
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
    // The equation writes either the whole sum or nothing of it.
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

/// The problems of these products; nullopt in the same cases as repeated(), and if several problems
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

/// One task for each. nullopt if the sum over devices would be added in another order than the sums
/// of the devices.
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
                                    ProductOperands(context, equation, one.a, one.b));
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
