// vmap of functions with control flow, and of functions with nested functions.
#include <gtest/gtest.h>

#include <tessera/control.h>
#include <tessera/grad.h>
#include <tessera/ops.h>
#include <tessera/random.h>
#include <tessera/transform.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::numbers;

using Floats = std::vector<float>;

void expect_close(const Array& found, const Array& wanted) {
  const Floats x = found.to_vector<float>();
  const Floats y = wanted.to_vector<float>();
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i], y[i], 1e-5F * (1 + std::abs(y[i]))) << i;
  }
}

/// Expects vmap(f)(x), traced or not, to equal f applied to each row.
template <typename F>
void expect_rows(F f, const Array& x) {
  const Array found = vmap(f)(x);
  for (std::int64_t i = 0; i < x.dim(0); ++i) expect_same_bits(found[i], f(x[i]));
  expect_same_bits(jit(vmap(f))(x), found);
}

/// Expects the gradient of the sum of vmap(f)(x) to consist of the gradients of the rows.
template <typename F>
void expect_gradients(F f, const Array& x) {
  auto loss = [&](Array row) { return sum(f(row)); };
  const Array each = vmap(grad(loss))(x);
  for (std::int64_t i = 0; i < x.dim(0); ++i) expect_same_bits(each[i], grad(loss)(x[i]));
  expect_close(grad([&](Array all) { return sum(vmap(f)(all)); })(x), each);
}

TEST(VmapControl, Scan) {
  const Array w = numbers({4, 4}, 1);
  auto f = [&](Array x) {
    const auto [last, sums] = scan(
        [&](Array carry, Array row) {
          carry = tanh(dot(carry, w) + row);
          return std::pair(carry, sum(carry * row));
        },
        zeros({4}), x);
    return last * sum(sums);
  };
  const Array x = numbers({3, 5, 4}, 2);
  expect_rows(f, x);
  expect_gradients(f, x);
}

TEST(VmapControl, ScanWithSharedSlices) {
  const Array xs = numbers({5, 4}, 1);
  auto f = [&](Array start) {
    return scan([](Array carry, Array row) { return std::pair(carry * row, row); }, start, xs)
        .first;
  };
  const Array x = numbers({3, 4}, 2);
  expect_rows(f, x);
  expect_gradients(f, x);
}

TEST(VmapControl, WhileRunsEachElementAsOftenAsItWants) {
  auto f = [](Array x) {
    return while_loop([](Array v) { return sum(v * v) < 100.0F; },
                      [](Array v) { return v * 1.5F + 0.25F; }, x);
  };
  expect_rows(f, numbers({6, 3}, 1));
}

TEST(VmapControl, CondTakesEachElementsBranch) {
  auto f = [](Array x) {
    return cond(
        sum(x) > 0.0F, [](Array v) { return exp(v); }, [](Array v) { return v * v; }, x);
  };
  const Array x = numbers({8, 3}, 1);
  expect_rows(f, x);
  expect_gradients(f, x);
  const Array pred = array({true});
  auto shared = [&](Array v) {
    return cond(
        pred[0], [](Array u) { return exp(u); }, [](Array u) { return u * u; }, v);
  };
  expect_rows(shared, x);
  const std::string ir = jit(vmap(shared)).lower(x).ir();
  EXPECT_NE(ir.find("cond["), std::string::npos) << ir;
}

TEST(VmapControl, Remat) {
  const Array w = numbers({4, 4}, 1);
  auto f = remat([w](Array x) { return tanh(dot(tanh(dot(x, w)), w)); });
  const Array x = numbers({3, 4}, 2);
  expect_rows(f, x);
  expect_gradients(f, x);
}

TEST(VmapControl, CustomVjpAddsUpForSharedArguments) {
  auto f = custom_vjp([](Array w, Array x) { return sum(w * x) * w; },
                      [](Array w, Array x) { return std::pair(sum(w * x) * w, std::pair(w, x)); },
                      [](std::pair<Array, Array> r, Array ct) {
                        const auto& [w, x] = r;
                        return std::pair(x * sum(ct * w) + ct * sum(w * x), w * sum(ct * w));
                      });
  const Array w = numbers({4}, 1);
  const Array x = numbers({3, 4}, 2);
  expect_rows([&](Array row) { return f(w, row); }, x);
  expect_gradients([&](Array row) { return f(w, row); }, x);
  auto batched = [&](Array v) { return sum(vmap(f, {.in_axes = {none, 0}})(v, x)); };
  auto loop = [&](Array v) { return sum(f(v, x[0])) + sum(f(v, x[1])) + sum(f(v, x[2])); };
  expect_close(grad(batched)(w), grad(loop)(w));
}

TEST(VmapControl, RunsOnAMesh) {
  const Mesh mesh = make_mesh({{"data", 2}});
  auto f = [](Array x) {
    const Array grown = while_loop([](Array v) { return sum(v * v) < 50.0F; },
                                   [](Array v) { return v * 1.5F + 0.25F; }, x);
    return scan([](Array c, Array v) { return std::pair(c + v, c * v); }, scalar(0.0F), grown)
        .second;
  };
  const Array x = numbers({4, 3}, 1);
  expect_same_bits(vmap(f)(device_put(x, NamedSharding(mesh, P{"data"}))), vmap(f)(x));
}

}  // namespace
}  // namespace tessera
