// A mixture of experts. Experts and tokens are both split over the axis `expert`; all_to_all takes
// each token to its expert and back.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>
#include <tessera/transform.h>

namespace layouts {

using namespace tessera;

struct ExpertConfig {
  std::int64_t d_model = 16;
  std::int64_t d_ff = 32;
  std::int64_t experts = 8;
  std::int64_t capacity = 4;  // the number of tokens that an expert takes from each group
};

/// Assigns each token of a group to a slot of an expert: gates [S,E] -> [S,E,C], each 1 or 0.
/// Tokens that find no free slot are dropped.
inline Array dispatch_of(const Array& gates, std::int64_t capacity) {
  const Array choice = one_hot(argmax(gates), gates.dim(1), DType::i32);
  const Array place = sum(cumsum(choice, 0) * choice, -1) - 1;
  const Array is_place = equal(expand_dims(place, 1), iota({1, capacity}, 1));
  return expand_dims(astype(choice, DType::f32), 2) * expand_dims(astype(is_place, DType::f32), 1);
}

struct Experts {
  Param router;    // [F,E]
  Param up, down;  // [E,F,M], [E,M,F]
  std::int64_t capacity;

  Experts(const nn::Scope& scope, const ExpertConfig& c)
      : router(scope.param("router", nn::init::normal(1.0), {c.d_model, c.experts})),
        up(scope.param("up", split(), {c.experts, c.d_model, c.d_ff})),
        down(scope.param("down", split(), {c.experts, c.d_ff, c.d_model})),
        capacity(c.capacity) {}

  /// Tokens [N,F] -> [N,F]. The tokens of each device are one group.
  Array operator()(const Array& x) const {
    const auto on_device = [&](const Array& tokens, const Array& routes, const Array& rise,
                               const Array& fall) {
      const Array gates = softmax(dot(tokens, routes));
      const Array dispatch = dispatch_of(gates, capacity);
      const Array sent = einsum("sec,sf->ecf", dispatch, tokens);
      const Array arrived = all_to_all(sent, "expert", 0, 1, /*tiled=*/true);  // [E/n,nC,F]
      const Array done = einsum("ecm,emf->ecf", gelu(einsum("ecf,efm->ecm", arrived, rise)), fall);
      const Array back = all_to_all(done, "expert", 1, 0, /*tiled=*/true);
      return einsum("sec,ecf->sf", dispatch * expand_dims(gates, 2), back);
    };
    return shard_map(on_device, {.in_specs = {P{"expert"}, P{}, P{"expert"}, P{"expert"}},
                                 .out_specs = P{"expert"}})(x, router, up, down);
  }

  /// The same without a mesh: every expert computes every token. `groups`: as many as devices.
  Array evaluate_densely(const Array& x, std::int64_t groups) const {
    const Array gates = softmax(dot(x, router));
    const Array by_group = reshape(gates, {groups, x.dim(0) / groups, gates.dim(1)});
    const Array dispatch =
        vmap([&](const Array& group) { return dispatch_of(group, capacity); })(by_group);
    const Array taken = reshape(sum(dispatch, -1), gates.shape());
    const Array done = einsum("enm,emf->enf", gelu(einsum("nf,efm->enm", x, up)), down);
    return einsum("ne,enf->nf", taken * gates, done);
  }
  TESSERA_MODULE(router, up, down, capacity)

 private:
  static nn::Initializer split() {
    return nn::with_partitioning(nn::init::normal(0.2), P{"expert"});
  }
};

}  // namespace layouts
