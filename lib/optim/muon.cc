// Momentum, with matrices made orthogonal by Newton-Schulz.
#include <algorithm>
#include <cmath>

#include "optim/parts.h"

namespace tessera::optim::detail {

namespace {

/// Repeats f(X) = c0 X + (c1 A + c2 A A) X with A = X X^T. For tall matrices A = X^T X multiplies
/// from the right, which gives f(X^T)^T without transposing.
Array orthogonal(Array x, const MuonOptions& o) {
  const std::int64_t rank = x.rank();
  const bool is_tall = x.dim(-2) > x.dim(-1);
  DotDims gram;
  gram.contract_a = gram.contract_b = {is_tall ? rank - 2 : rank - 1};
  for (std::int64_t axis = 0; axis < rank - 2; ++axis) gram.batch_a.push_back(axis);
  gram.batch_b = gram.batch_a;
  x = x / (sqrt(sum(square(x), {-2, -1}, keepdims)) + o.epsilon);
  const auto [c0, c1, c2] = o.ns_coeffs;
  for (std::int64_t step = 0; step < o.ns_steps; ++step) {
    const Array a = dot_general(x, x, gram);
    const Array b = a * c1 + matmul(a, a) * c2;
    x = x * c0 + (is_tall ? matmul(x, b) : matmul(b, x));
  }
  return x;
}

class Muon final : public Optimizer::Rule {
 public:
  explicit Muon(const MuonOptions& options) : o_(options) {}

  std::vector<Optimizer::Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}}; }
  Array update(const Optimizer::Leaf& leaf, const Array& gradient) const override {
    Array& mu = leaf.slots[0];
    mu = moving_average(mu, gradient, o_.beta);
    const Array mu_hat = corrected_momentum(mu, gradient, o_.beta, o_.nesterov, leaf.count);
    return orthogonal(mu_hat, o_) * size_factor(gradient);
  }
  std::string key() const override {
    return "muon " + text(o_.ns_coeffs[0]) + " " + text(o_.ns_coeffs[1]) + " " +
           text(o_.ns_coeffs[2]) + " " + std::to_string(o_.ns_steps) + " " + text(o_.beta) + " " +
           text(o_.epsilon) + (o_.nesterov ? " nesterov" : "") +
           (o_.consistent_rms ? " rms " + text(*o_.consistent_rms) : "");
  }

 private:
  double size_factor(const Array& matrix) const {
    const auto inputs = static_cast<double>(matrix.dim(-2));
    const auto outputs = static_cast<double>(matrix.dim(-1));
    if (o_.consistent_rms) return std::sqrt(std::max(inputs, outputs)) * *o_.consistent_rms;
    return std::sqrt(std::max(1.0, outputs / inputs));
  }

  MuonOptions o_;
};

}  // namespace

Optimizer scale_by_muon(const MuonOptions& options) { return make<Muon>(options); }

}  // namespace tessera::optim::detail
