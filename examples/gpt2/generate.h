// Continues a text, token by token.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "model.h"

namespace gpt2 {

struct GenerateOptions {
  std::int64_t tokens = 64;    // at most, behind the prompt
  std::int64_t sequences = 1;  // different continuations
  nn::SamplingOptions sampling = {};
  std::int64_t seed = 0;
  Mesh mesh = {};  // its axis `data` splits the sequences
};

/// Tokens of the sequences, in steps. All of them begin with the same prompt. The tokens depend on
/// the seed, and not on the mesh.
class Generator {
 public:
  /// Reads the prompt, which has at least one token.
  Generator(const GPT2& model, const Config& config, const std::vector<std::int32_t>& prompt,
            const GenerateOptions& options)
      : model_(model),
        sharding_(options.mesh.axes().empty() ? NamedSharding()
                                              : NamedSharding(options.mesh, P{"data"})),
        key_(options.seed),
        step_(jit(
            [sampling = options.sampling](const GPT2& m, Cache cache, Array ids, Key key) {
              const Key drawn = random::fold_in(key, cache[0].length);
              Array next = nn::sample(drawn, m.next_logits(ids, cache), sampling);
              return std::tuple(next, std::move(cache));
            },
            {.donate_argnums = {1}, .name = "generate"})) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    cache_ = make_cache(config, options.sequences, length + options.tokens);
    for (nn::AttentionCache& layer : cache_) {
      layer.keys = device_put(layer.keys, sharding_);
      layer.values = device_put(layer.values, sharding_);
    }
    advance(broadcast_to(array(prompt, {1, length}), {options.sequences, length}));
  }

  /// The next token of each sequence.
  std::vector<std::int32_t> next() {
    if (is_read_) advance(expand_dims(next_, 1));
    is_read_ = true;
    return next_.to_vector<std::int32_t>();
  }

 private:
  using Step = std::function<std::tuple<Array, Cache>(const GPT2&, Cache, Array, Key)>;

  void advance(const Array& ids) {
    std::tie(next_, cache_) = step_(model_, std::move(cache_), device_put(ids, sharding_), key_);
    is_read_ = false;
  }

  GPT2 model_;
  NamedSharding sharding_;
  Key key_;
  Step step_;
  Cache cache_;
  Array next_;
  bool is_read_ = false;
};

}  // namespace gpt2
