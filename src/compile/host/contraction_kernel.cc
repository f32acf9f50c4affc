#include "compile/host/contraction_kernel.h"

#include <algorithm>
#include <array>
#include <optional>

#include "compile/host/kernels/dot/dot.h"
#include "compile/host/kernels/dot/vector_products.h"
#include "compile/host/kernels/window/channels.h"
#include "compile/host/kernels/window/gathered.h"

namespace tessera::compile::host {

namespace {

class GemmKernel final : public run::Kernel {
 public:
  GemmKernel(std::vector<kernels::GemmPlan> plans, std::size_t of_a, std::size_t of_b,
             const ProductOperands& operands)
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
  // Assigns the parts of plans, the longest first, to wherever there is the least work so far.
  void distribute() {
    struct Piece {
      kernels::GemmPlan::PartOfPlan part;
      std::int64_t work;
    };
    std::vector<Piece> longest;
    for (const kernels::GemmPlan& plan : plans_) {
      for (int part = 0; part < plan.num_parts(); ++part)
        longest.push_back({{&plan, part}, plan.flops(part)});
    }
    std::stable_sort(longest.begin(), longest.end(),
                     [](const Piece& x, const Piece& y) { return x.work > y.work; });
    std::vector<std::int64_t> loads(parts_.size());
    for (const auto& [part, work] : longest) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += work;
      parts_[static_cast<std::size_t>(least - loads.begin())].push_back(part);
    }
  }

  std::vector<kernels::GemmPlan> plans_;
  std::vector<std::vector<kernels::GemmPlan::PartOfPlan>> parts_;
  std::size_t of_a_, of_b_;  // tiles
  ProductOperands operands_;
};

/// Products that are computed in another way: of vectors, by channel, or of gathered operands.
template <class Products, class Element>
class ProductsKernel final : public run::Kernel {
 public:
  ProductsKernel(Products products, const ProductOperands& operands)
      : products_(std::move(products)), operands_(operands) {}

  int num_parts() const override { return products_.num_parts(); }
  std::int64_t flops() const override { return kHasIntegers ? 0 : products_.flops(); }
  std::int64_t scratch_bytes() const override { return products_.scratch_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    using Sum = std::conditional_t<kHasIntegers || std::is_same_v<Element, double>, Element, float>;
    products_.run(reinterpret_cast<const Element*>(buffers[0]) + operands_.a_offset,
                  reinterpret_cast<const Element*>(buffers[1]) + operands_.b_offset,
                  reinterpret_cast<Sum*>(buffers[2]), part);
  }

 private:
  // Elements of 16 bits are floats.
  static constexpr bool kHasIntegers = std::is_integral_v<Element> && sizeof(Element) > 2;

  Products products_;
  ProductOperands operands_;
};

/// Into how many pieces to cut each of the `products` products of `rows` rows that are left over
/// when all workers have equally many. Pieces have enough rows for a tile.
std::int64_t pieces_of_each(std::int64_t products, std::int64_t rows, std::int64_t workers) {
  constexpr std::int64_t kFewestRows = 8;
  std::int64_t best = 1;
  for (std::int64_t pieces = 2; rows / pieces >= kFewestRows; ++pieces) {
    const auto rounds = [&](std::int64_t n) { return (products * n + workers - 1) / workers; };
    if (rows % pieces == 0 && rounds(pieces) * best < rounds(best) * pieces) best = pieces;
  }
  return best;
}

/// Plans do not cut products of one micro-tile each. The products that are left over when all
/// workers have equally many are cut along their rows here, so that more workers share them.
void cut_left_over(std::vector<kernels::GemmProblem>& problems, int num_workers) {
  constexpr std::size_t kMostRows = 16, kMostColumns = 32;
  constexpr std::size_t kFewestTerms = 1 << 14;  // of a product that is worth cutting
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
      const auto some = [&](const std::vector<std::int64_t>& offsets) {
        return std::vector<std::int64_t>(offsets.begin() + begin,
                                         offsets.begin() + begin + rows_of_piece);
      };
      kernels::GemmProblem& piece = problems.emplace_back(product);
      piece.a.outer = some(product.a.outer);
      piece.c_rows = some(product.c_rows);
    }
  }
}

template <class Element, class Products>
std::shared_ptr<const run::Kernel> kernel_of(std::optional<Products> products,
                                             const ProductOperands& operands) {
  if (!products) return nullptr;
  return std::make_shared<ProductsKernel<Products, Element>>(*std::move(products), operands);
}

/// nullptr if they are ordinary products.
std::shared_ptr<const run::Kernel> special_kernel(const std::vector<kernels::GemmProblem>& problems,
                                                  const ProductOperands& operands) {
  using namespace kernels;
  const auto& [dtype, unit, workers, caches, a_offset, b_offset] = operands;
  if (dtype == DType::f64)
    return kernel_of<double>(VectorProducts::of(problems, workers), operands);
  if (is_integer(dtype)) {
    if (size_bytes(dtype) == sizeof(std::uint64_t))
      return kernel_of<std::uint64_t>(VectorProducts::of(problems, workers), operands);
    return kernel_of<std::uint32_t>(VectorProducts::of(problems, workers), operands);
  }
  if (dtype == DType::f32) {
    if (auto kernel = kernel_of<float>(VectorProducts::of(problems, workers), operands))
      return kernel;
    if (auto kernel = kernel_of<float>(ChannelProducts::of(problems, workers), operands))
      return kernel;
    return kernel_of<float>(GatheredProducts::of(problems, workers, caches), operands);
  }
  if (dtype != DType::bf16) return nullptr;
  if (auto kernel =
          kernel_of<std::uint16_t>(VectorProducts::of_bf16(problems, unit, workers), operands))
    return kernel;
  if (unit != DotUnit::avx512_bf16) return nullptr;
  return kernel_of<std::uint16_t>(GatheredProducts::of_pairs(problems, workers, caches), operands);
}

std::shared_ptr<const run::Kernel> gemm_kernel(std::vector<kernels::GemmProblem> problems,
                                               const ProductOperands& operands) {
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
  DotKernel(kernels::GemmProblem problem, const ProductOperands& operands)
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
  ProductOperands operands_;
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

}  // namespace

std::shared_ptr<const run::Kernel> contraction_kernel(std::vector<kernels::GemmProblem> problems,
                                                      const ProductOperands& operands) {
  if (auto kernel = special_kernel(problems, operands)) return kernel;
  if (!kernels::DotPlan::takes(operands.dtype)) return gemm_kernel(std::move(problems), operands);
  std::vector<std::shared_ptr<const run::Kernel>> list;
  for (kernels::GemmProblem& problem : problems)
    list.push_back(std::make_shared<DotKernel>(std::move(problem), operands));
  if (list.size() == 1) return list[0];
  return std::make_shared<SeveralKernels>(std::move(list));
}

}  // namespace tessera::compile::host
