// Continues texts, token by token.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "model.h"

namespace gpt2 {

struct GenerateOptions {
  std::int64_t tokens = 64;    // the most tokens to add to a prompt
  std::int64_t sequences = 1;  // different continuations of each prompt
  nn::SamplingOptions sampling = {};
  std::int64_t seed = 0;
  Mesh mesh = {};  // its axis `data` splits the sequences
};

using Tokens = std::vector<std::int32_t>;

/// Generates one token per sequence and step. Each prompt has `sequences` sequences, one prompt
/// after the other. Tokens depend on the prompt and the seed, not on the mesh or other prompts.
class Generator {
 public:
  /// Reads the prompts, which all have the same number of tokens, at least one.
  Generator(const GPT2& model, const Config& config, const std::vector<Tokens>& prompts,
            const GenerateOptions& options)
      : model_(model),
        sharding_(options.mesh.axes().empty() ? NamedSharding()
                                              : NamedSharding(options.mesh, P{"data"})),
        key_(options.seed),
        step_(jit(
            [sampling = options.sampling, sequences = options.sequences](const GPT2& m, Cache cache,
                                                                         Array ids, Key key) {
              const Key drawn = random::fold_in(key, cache[0].length);
              const Array logits = m.next_logits(ids, cache);
              // Each prompt gets the same random draws that it would get alone.
              const auto draw = [&](const Array& rows) {
                return nn::sample(drawn, rows, sampling);
              };
              const Array rows = reshape(logits, {-1, sequences, logits.dim(1)});
              return std::tuple(reshape(vmap(draw)(rows), {-1}), std::move(cache));
            },
            {.donate_argnums = {1}, .name = "generate"})) {
    const auto length = std::ssize(prompts.at(0));
    const std::int64_t batch = std::ssize(prompts) * options.sequences;
    cache_ = make_cache(config, batch, length + options.tokens);
    for (nn::AttentionCache& layer : cache_) {
      layer.keys = device_put(layer.keys, sharding_);
      layer.values = device_put(layer.values, sharding_);
    }
    Tokens rows;
    for (const Tokens& prompt : prompts) {
      require(std::ssize(prompt) == length, "prompts have the same number of tokens");
      for (std::int64_t i = 0; i < options.sequences; ++i) {
        rows.insert(rows.end(), prompt.begin(), prompt.end());
      }
    }
    advance(array(rows, {batch, length}));
  }

  /// The next token of each sequence.
  Tokens next() {
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
