// Every op can be reached through the public functions. Each function is traced once, and the
// recorded ops are compared with the op table.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>

#include <tessera/grad.h>
#include <tessera/tessera.h>

#include "ops/record.h"

namespace tessera {
namespace {

/// Floats, integers and booleans of shape [4, 6].
struct Inputs {
  Array x;
  Array i;
  Array flag;
};
using Call = std::function<Array(const Inputs&)>;

/// Sums both results of a call, so that it returns one array.
Array both(const std::pair<Array, Array>& arrays) {
  return sum(astype(arrays.first, DType::f32)) + sum(astype(arrays.second, DType::f32));
}

const std::vector<Call>& elementwise_calls() {
  static const std::vector<Call> calls = {
      [](const Inputs& in) { return exp(in.x) + log(in.x) + log1p(in.x) + expm1(in.x); },
      [](const Inputs& in) { return tanh(in.x) + logistic(in.x) + sqrt(in.x) + rsqrt(in.x); },
      [](const Inputs& in) { return sin(in.x) + cos(in.x) + tan(in.x) + abs(in.x) + neg(in.x); },
      [](const Inputs& in) { return sign(in.x) + floor(in.x) + ceil(in.x) + round(in.x); },
      [](const Inputs& in) { return erf(in.x) + erfc(in.x) + erf_inv(in.x) + square(in.x); },
      [](const Inputs& in) { return cbrt(in.x) + exp2(in.x) + log2(in.x); },
      [](const Inputs& in) { return asin(in.x) + acos(in.x) + atan(in.x) + atan2(in.x, 2); },
      [](const Inputs& in) { return sinh(in.x) + cosh(in.x); },
      [](const Inputs& in) { return asinh(in.x) + acosh(in.x) + atanh(in.x); },
      [](const Inputs& in) { return gelu(in.x) + gelu(in.x, false) + relu(in.x) + silu(in.x); },
      [](const Inputs& in) { return maximum(in.x, 1) + minimum(in.x, 2) + pow(in.x, 3); },
      [](const Inputs& in) { return rem(in.x, 2) + fma(in.x, in.x, 1) + clamp(0, in.x, 1); },
      [](const Inputs& in) { return in.x / 3 - in.x * 2; },
      [](const Inputs& in) { return where(in.flag, in.x, 0) + stop_gradient(in.x); },
      [](const Inputs& in) { return logical_and(is_finite(in.x), in.x < 1); },
      [](const Inputs& in) { return logical_or(in.flag, logical_not(in.x > 1)); },
      [](const Inputs& in) { return logical_xor(in.flag, equal(in.x, 1)); },
      [](const Inputs& in) { return population_count(in.i) + count_leading_zeros(in.i); },
      [](const Inputs& in) { return shift_left(in.i, 1) + shift_right(bitwise_not(in.i), 2); },
      [](const Inputs& in) { return shift_right_arithmetic(in.i, 1) + bitwise_xor(in.i, 5); },
      [](const Inputs& in) { return bitwise_and(in.i, 3) + bitwise_or(in.i, 4); },
      [](const Inputs& in) { return bitcast(astype(in.i, DType::u32), DType::f32); }};
  return calls;
}

const std::vector<Call>& shape_calls() {
  static const std::vector<Call> calls = {
      [](const Inputs& in) {
        return transpose(reshape(in.x, {8, 3}));
      },
      [](const Inputs& in) {
        return slice(broadcast_to(in.x, {2, 4, 6}), 1, 1, 3);
      },
      [](const Inputs& in) {
        return pad(reverse(in.x), {1, 0}, {0, 2});
      },
      [](const Inputs& in) {
        return concatenate({in.x, in.x}) + 1;
      },
      [](const Inputs& in) {
        return astype(iota({4, 6}, 1), DType::f32) + in.x;
      },
      [](const Inputs& in) { return sum(in.x) + max(in.x) + min(in.x) + prod(in.x); },
      [](const Inputs& in) { return logical_and(all(in.flag), any(in.flag)); },
      [](const Inputs& in) { return argmax(in.x) + argmin(in.x); },
      [](const Inputs& in) { return cumsum(in.x) + cumprod(in.x) + cummax(in.x) + cummin(in.x); },
      [](const Inputs& in) { return dot(in.x, transpose(in.x)); },
      [](const Inputs& in) {
        return attention(reshape(in.x, {4, 1, 6}), reshape(in.x, {4, 1, 6}), ones({4, 1, 6}));
      },
      [](const Inputs& in) { return both(top_k(in.x, 2)) + both(sort_by(in.x, in.i)); },
      [](const Inputs& in) { return take_along_axis(in.x, in.i, 0); },
      [](const Inputs& in) { return sum(take(in.x, in.i)); },
      [](const Inputs& in) {
        return scatter(in.x, iota({2}, 0), 1) + scatter_add(in.x, iota({2}, 0), 1);
      },
      [](const Inputs& in) {
        return segment_max(in.x, iota({4}, 0), 2) + segment_min(in.x, iota({4}, 0), 2);
      },
      [](const Inputs& in) {
        return dynamic_slice(in.x, {1, 2}, {2, 2});
      },
      [](const Inputs& in) {
        return dynamic_update_slice(in.x, ones({2, 2}), {1, 2});
      },
      [](const Inputs& in) {
        return conv(reshape(in.x, {2, 6, 2}), ones({3, 2, 1}));
      },
      [](const Inputs& in) {
        return reduce_window_sum(in.x, {2, 3}) + reduce_window_max(in.x, {2, 3});
      },
      [](const Inputs& in) {
        return reduce_window_min(in.x, {2, 3});
      }};
  return calls;
}

const std::vector<Call>& transformed_calls() {
  static const std::vector<Call> calls = {
      [](const Inputs& in) { return with_sharding_constraint(in.x, P{"data"}); },
      [](const Inputs& in) {
        inspect_array_sharding(in.x, [](const NamedSharding&) {});
        return in.x;
      },
      [](const Inputs& in) {
        return vmap(
            [](Array row) {
              return ppermute(row, "i", {{0, 1}});
            },
            {.axis_name = "i"})(in.x);
      },
      [](const Inputs& in) {
        return grad([&](const Array& x) { return sum(take_along_axis(x, in.i, 0)); })(in.x);
      },
      [](const Inputs& in) {
        return grad([&](const Array& x) { return sum(take(x, in.i)); })(in.x);
      },
      [](const Inputs& in) {
        return grad([&](const Array& x) { return sum(reduce_window_max(x, {2, 3})); })(in.x);
      },
      [](const Inputs& in) {
        return grad([&](const Array& x) {
          const Array q = reshape(x, {4, 1, 6});
          const AttentionMask biased{.bias = reshape(sum(x, 1), {1, 1, 4})};
          return sum(attention(q, q, q, biased));
        })(in.x);
      },
      [](const Inputs& in) {
        const Array square = matmul(in.x, transpose(in.x));
        return linalg::cholesky(square) + linalg::qr(square).first + linalg::solve(square, square) +
               linalg::eigh(square).second + std::get<0>(linalg::svd(square));
      },
      [](const Inputs& in) {
        return fft::abs(fft::fft(fft::rfft(in.x))) + fft::irfft(fft::rfft(in.x), {.length = 4});
      },
      [](const Inputs& in) {
        debug::callback([](const std::vector<Array>&) {}, {in.x});
        const auto same = [](const std::vector<Array>& arrays) { return arrays; };
        return pure_callback(same, {in.x.type()}, {in.x})[0];
      },
      [](const Inputs& in) {
        const random::Key key(0);
        return in.x + random::normal(random::fold_in(random::split<2>(key)[0], 1U), {4, 6});
      }};
  return calls;
}

std::set<std::string> ops_of(const Call& call, const Inputs& inputs) {
  auto traced =
      jit([&](Array x, Array i, Array flag) { return call({.x = x, .i = i, .flag = flag}); });
  const std::string text = traced.lower(inputs.x, inputs.i, inputs.flag).ir();
  static const std::regex kEquation(" = ([a-z0-9_]+)");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), kEquation), end; match != end;
       ++match) {
    names.insert((*match)[1]);
  }
  return names;
}

/// The reason why an op has no public function.
std::string reason_without_function(const ops::OpRecord& op) {
  static const std::map<std::string, std::string> kReasons = {
      {"add_any", "placed by derivatives"},
      {"all_gather", "placed by the partitioner"},
      {"all_reduce", "placed by the partitioner"},
      {"all_slice", "placed by the partitioner"},
      {"all_to_all", "placed by the partitioner"},
      {"attention_finish", "placed by the partitioner"},
      {"attention_grad", "placed by the compiler"},
      {"attention_join", "placed by the partitioner"},
      {"attention_parts", "placed by the partitioner"},
      {"axis_all_to_all", "gone when its axis is mapped"},
      {"axis_gather", "gone when its axis is mapped"},
      {"axis_index", "gone when its axis is mapped"},
      {"axis_permute", "gone when its axis is mapped"},
      {"collective_permute", "placed by the partitioner"},
      {"geqrf", "half of qr, in programs of JAX"},
      {"halo_exchange", "placed by the partitioner"},
      {"householder_product", "half of qr, in programs of JAX"},
      {"reduce_scatter", "placed by the partitioner"},
      {"stage_end", "placed by mark_stage_end within pipelines"},
      {"transfer", "placed between groups of devices"},
      {"optimization_barrier", "placed where work is repeated"}};
  if (op.bodies != nullptr) return "takes functions";
  const auto found = kReasons.find(*op.name);
  return found == kReasons.end() ? "" : found->second;
}

TEST(PublicFunctions, ReachEveryOp) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const use_mesh scope(mesh);
  const Inputs inputs{
      .x = ones({4, 6}), .i = zeros({4, 6}, DType::i32), .flag = zeros({4, 6}, DType::boolean)};
  std::set<std::string> reached;
  for (const auto* calls : {&elementwise_calls(), &shape_calls(), &transformed_calls()}) {
    for (const Call& call : *calls) reached.merge(ops_of(call, inputs));
  }
  for (const ops::OpRecord* op : ops::all_ops()) {
    const bool has_reason = !reason_without_function(*op).empty();
    EXPECT_TRUE(reached.contains(*op->name) || has_reason) << *op->name;
  }
}

}  // namespace
}  // namespace tessera
