// `tessera train lm`: the language model of examples/lm, data parallel or with sharded parameters.

#include <cmath>
#include <cstdio>
#include <optional>
#include <random>

#include <tessera/checkpoint.h>
#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/train.h>

#include "commands.h"
#include "lm_job.h"
#include "report.h"

namespace tessera::cli {

namespace {

constexpr std::uint32_t kDataSeed = 1234;
constexpr std::int64_t kNumSequences = 8192;
Array place(const Array& batch, const Mesh& mesh) {
  return mesh.axes().empty() ? batch : device_put(batch, batch_sharding(mesh));
}

/// Tokens to train on, and text that is never trained on.
struct Corpus {
  data::Tokens train;
  std::optional<data::Tokens> held_out;
};

Corpus load_corpus(const LmFlags& flags, Report& report) {
  if (flags.text.empty()) {
    return {.train = data::random_tokens(kDataSeed, kNumSequences, flags.model.seq,
                                         static_cast<std::int32_t>(flags.model.vocab)),
            .held_out = {}};
  }
  const data::Text text = data::read_text(flags.text, flags.model.seq);
  char line[160];
  std::snprintf(line, sizeof(line), "text       %zu bytes to train on, the last %zu held out",
                text.train.size(), text.held_out.size());
  report.line(line);
  std::snprintf(line, sizeof(line), "entropy    unigram %.3f, bigram %.3f nats per byte",
                data::unigram_entropy(text.train), data::bigram_entropy(text.train));
  report.line(line);
  return {
      .train = data::shuffled(data::consecutive_windows(text.train, flags.model.seq), kDataSeed),
      .held_out = data::consecutive_windows(text.held_out, flags.model.seq)};
}

void dump(const std::string& path, const LmState& state, const Array& batch) {
  auto [loss, grads] = jit([](const lm::LM& params, Array ids) {
    return loss_and_grads(params, ids);
  })(state.params, batch);
  std::vector<checkpoint::NamedArray> arrays = checkpoint::named_arrays(state.params, "params/");
  for (checkpoint::NamedArray& item : checkpoint::named_arrays(grads, "grads/")) {
    arrays.push_back(std::move(item));
  }
  checkpoint::write_safetensors(path, std::move(arrays));
}

/// Mean loss over the windows of the held-out text, in batches.
double held_out_loss(const lm::LM& params, const data::Tokens& tokens, std::int64_t batch,
                     const Mesh& mesh) {
  auto evaluate =
      jit([](const lm::LM& model, Array ids) { return lm::next_token_loss(model(ids), ids); });
  double sum = 0;
  for (std::int64_t first = 0; first < tokens.num_sequences(); first += batch) {
    const std::int64_t size = std::min(batch, tokens.num_sequences() - first);
    const Array loss = evaluate(params, place(tokens.batch(first, size), mesh));
    sum += loss.item<double>() * static_cast<double>(size);
  }
  return sum / static_cast<double>(tokens.num_sequences());
}

/// Draws an index with probabilities softmax(logits).
std::int32_t draw(std::span<const float> logits, std::mt19937& engine) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float x : logits) total += std::exp(static_cast<double>(x - top));
  double rest = total * (static_cast<double>(engine()) / 4294967296.0);
  for (std::size_t i = 0; i + 1 < logits.size(); ++i) {
    rest -= std::exp(static_cast<double>(logits[i] - top));
    if (rest < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(logits.size() - 1);
}

std::string sample(const lm::LM& params, const LmFlags& flags, const data::Tokens& prompt) {
  auto logits_of = jit([](const lm::LM& model, Array ids) { return model(ids); });
  const std::int64_t seq = flags.model.seq;
  const auto vocab = static_cast<std::size_t>(flags.model.vocab);
  std::vector<std::int32_t> ids(prompt.values().begin(), prompt.values().begin() + seq / 2);
  const std::size_t given = ids.size();
  std::mt19937 engine(static_cast<std::uint32_t>(flags.seed));
  std::string text;
  while (ids.size() < given + static_cast<std::size_t>(flags.sample)) {
    const std::size_t known = std::min(ids.size(), static_cast<std::size_t>(seq));
    // Positions after the last known one are not seen by a causal model.
    std::vector<std::int32_t> window(ids.end() - static_cast<std::ptrdiff_t>(known), ids.end());
    window.resize(static_cast<std::size_t>(seq), 0);
    const std::vector<float> logits = logits_of(params, array(window, {1, seq})).to_vector<float>();
    ids.push_back(draw(std::span(logits).subspan((known - 1) * vocab, vocab), engine));
    text += static_cast<char>(ids.back());
  }
  return text;
}

nlohmann::json extra_json(const LmFlags& flags, const LmState& state) {
  const lm::Config& m = flags.model;
  nlohmann::json extra;
  extra["config"] = {{"vocab", m.vocab},     {"seq", m.seq},       {"d_model", m.d_model},
                     {"heads", m.heads},     {"layers", m.layers}, {"d_ff", m.d_ff},
                     {"causal", m.is_causal}};
  std::int64_t count = 0;
  for (const Array& leaf : tree_leaves(state.params)) count += leaf.size();
  extra["params"] = count;
  extra["params_hash"] = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  extra["collectives"] = nlohmann::json::object();
  for (const CollectiveUse& use : collective_counts()) {
    extra["collectives"][use.kind] = {
        {"count", use.count}, {"bytes", use.bytes}, {"wire_bytes", use.wire_bytes}};
  }
  return extra;
}

void finish_text(const LmFlags& flags, const LmState& state, const Corpus& corpus, const Mesh& mesh,
                 float last_loss, Report& report, nlohmann::json& extra) {
  const double loss = held_out_loss(state.params, *corpus.held_out, flags.batch, mesh);
  char line[96];
  std::snprintf(line, sizeof(line), "loss       training %.4f, held out %.4f nats per byte",
                static_cast<double>(last_loss), loss);
  report.line(line);
  extra["held_out_loss"] = loss;
  if (flags.sample > 0) {
    report.line("sample     seed " + std::to_string(flags.seed) + ":\n" +
                sample(state.params, flags, corpus.train));
  }
}

void train(const LmFlags& flags, const Mesh& mesh) {
  apply(flags);
  const use_mesh scope(mesh);
  Report report(flags);
  if (!flags.text.empty() && !flags.model.is_causal && process_index() == 0) {
    std::fputs("warning: without --causal every position sees the byte that it should predict\n",
               stderr);
  }
  const Corpus corpus = load_corpus(flags, report);
  LmState state = make_state(flags, mesh);
  if (!flags.dump.empty()) dump(flags.dump, state, place(corpus.train.batch(0, flags.batch), mesh));
  auto step = make_step();
  float last_loss = 0;
  for (std::int64_t i = 0; i < flags.steps; ++i) {
    const Array batch = place(corpus.train.batch(i * flags.batch, flags.batch), mesh);
    reset_collective_counts();
    report.begin_step();
    Array loss;
    std::tie(state, loss) = step(std::move(state), batch);
    last_loss = loss.item<float>();
    report.end_step(i, last_loss);
  }
  nlohmann::json extra = extra_json(flags, state);
  if (corpus.held_out) finish_text(flags, state, corpus, mesh, last_loss, report, extra);
  report.write_json("data_parallel_lm", step.compiled(), std::move(extra));
}

}  // namespace

void add_train_lm(CLI::App& train_command) {
  CLI::App* command = train_command.add_subcommand("lm", "a transformer language model");
  auto flags = std::make_shared<LmFlags>();
  add_lm_flags(*command, *flags);
  command->callback([flags] {
    const Mesh mesh = mesh_of(*flags);
    complete(*flags, mesh);
    run_on_devices(*flags, mesh, [&] { train(*flags, mesh); });
  });
}

}  // namespace tessera::cli
