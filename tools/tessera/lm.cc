// `tessera train lm`: the language model of examples/lm, on random tokens or the bytes of a text.

#include <cmath>
#include <cstdio>
#include <optional>
#include <random>

#include <tessera/data.h>

#include "add_job.h"
#include "commands.h"
#include "job.h"
#include "lm/model.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::uint32_t kDataSeed = 1234;
constexpr std::int64_t kNumSequences = 8192;

JobInfo lm_info() {
  return {.name = "lm",
          .help = "a transformer language model",
          .report_name = "data_parallel_lm",
          .axes = {"data"}};
}

struct LmFlags : TrainFlags {
  lm::Config model;
  std::string text;
  bool causal = false;
  bool no_causal = false;
  bool recompute_logits = false;
  std::int64_t sample = 0;
};

void check(const LmFlags& flags) {
  const lm::Config& model = flags.model;
  check_heads(model.heads, "--d-model", model.d_model);
  if (model.d_model % 2 != 0) {
    throw UserError({.what = "--d-model: the width of the model is odd",
                     .found = std::to_string(model.d_model),
                     .wanted = "an even width: position embeddings alternate sines and cosines",
                     .cure = "write for example --d-model 256"});
  }
  if (flags.sample > 0 && !flags.model.is_causal) {
    throw UserError({.what = "--sample: a model that sees later tokens cannot continue a text",
                     .found = flags.no_causal ? "--no-causal" : "neither --text nor --causal",
                     .wanted = "a causal model that is trained on text",
                     .cure = flags.no_causal ? "leave out --no-causal" : "add --text FILE"});
  }
  if (flags.sample > 0 && flags.text.empty()) {
    throw UserError({.what = "--sample: the model is trained on random tokens, not on text",
                     .found = "no --text",
                     .wanted = "a causal model that is trained on text",
                     .cure = "add --text FILE"});
  }
}

/// Sets what the flags imply; throws UserError if they contradict each other.
LmFlags completed(LmFlags flags) {
  if (!flags.text.empty()) flags.model.vocab = kBytes;
  flags.model.is_causal = flags.causal || (!flags.text.empty() && !flags.no_causal);
  flags.model.dtype = compute_dtype(flags);
  check(flags);
  return flags;
}

double entropy_term(double count, double total) { return -count * std::log(count / total); }

/// Entropy in nats of a byte.
double unigram_entropy(std::span<const std::uint8_t> text) {
  std::vector<double> counts(256);
  for (std::uint8_t byte : text) counts[byte] += 1;
  double sum = 0;
  for (double count : counts) {
    if (count > 0) sum += entropy_term(count, static_cast<double>(text.size()));
  }
  return sum / static_cast<double>(text.size());
}

/// Entropy in nats of a byte, given the preceding one.
double bigram_entropy(std::span<const std::uint8_t> text) {
  std::vector<double> pairs(std::size_t{256} * 256);
  std::vector<double> firsts(256);
  for (std::size_t i = 1; i < text.size(); ++i) {
    pairs[text[i - 1] * 256U + text[i]] += 1;
    firsts[text[i - 1]] += 1;
  }
  double sum = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] > 0) sum += entropy_term(pairs[i], firsts[i / 256]);
  }
  return sum / static_cast<double>(text.size() - 1);
}

/// Tokens to train on and, for a text, tokens that are held out.
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
  const data::Text text = data::read_text(flags.text, flags.model.seq, kNowhere);
  char line[160];
  std::snprintf(line, sizeof(line),
                "text       %zu bytes to train on; the %zu bytes after them are held out",
                text.train.size(), text.held_out.size());
  report.line(line);
  std::snprintf(line, sizeof(line), "entropy    unigram %.3f, bigram %.3f nats per byte",
                unigram_entropy(text.train), bigram_entropy(text.train));
  report.line(line);
  return {
      .train = data::shuffled(data::consecutive_windows(text.train, flags.model.seq), kDataSeed),
      .held_out = data::consecutive_windows(text.held_out, flags.model.seq)};
}

/// The mean loss over the windows of the held-out text, evaluated in batches.
double held_out_loss(const lm::LM& params, const data::Tokens& tokens, std::int64_t batch,
                     const Mesh& mesh) {
  auto evaluate =
      jit([](const lm::LM& model, Array ids) { return lm::next_token_loss(model(ids), ids); });
  double sum = 0;
  for (std::int64_t first = 0; first < tokens.num_sequences(); first += batch) {
    const std::int64_t size = std::min(batch, tokens.num_sequences() - first);
    const Array loss = evaluate(params, tokens.batch(first, size, batch_sharding(mesh, lm_info())));
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
    // The padding after the last known token does not matter, since the model is causal.
    std::vector<std::int32_t> window(ids.end() - static_cast<std::ptrdiff_t>(known), ids.end());
    window.resize(static_cast<std::size_t>(seq), 0);
    const std::vector<float> logits = logits_of(params, array(window, {1, seq})).to_vector<float>();
    ids.push_back(draw(std::span(logits).subspan((known - 1) * vocab, vocab), engine));
    text += static_cast<char>(ids.back());
  }
  return text;
}

class LmJob final : public Job<lm::LM, Array> {
 public:
  LmJob(const LmFlags& flags, Mesh mesh) : flags_(completed(flags)), mesh_(std::move(mesh)) {}

  lm::LM make_model(const Key& key) const override { return {nn::Scope(key), flags_.model}; }
  std::tuple<Array, lm::LM> loss_and_grads(const lm::LM& params, const Array& ids,
                                           const Array& /*step*/) const override {
    return value_and_grad([&](const lm::LM& model) {
      return flags_.recompute_logits ? lm::next_token_loss(model, ids)
                                     : lm::next_token_loss(model(ids), ids);
    })(params);
  }
  void load(Report& report) override {
    if (!flags_.text.empty() && !flags_.model.is_causal) {
      std::fputs("warning: without --causal every position sees the byte that it should predict\n",
                 stderr);
    }
    corpus_ = load_corpus(flags_, report);
  }
  std::uint64_t data_hash() const override {
    const auto add = [](std::uint64_t hash, const data::Tokens& tokens) {
      return hash_with(hash, std::as_bytes(std::span(tokens.values())));
    };
    const std::uint64_t hash = add(kNoBytes, corpus_->train);
    return corpus_->held_out ? add(hash, *corpus_->held_out) : hash;
  }
  Array batch(std::int64_t step) const override {
    return corpus_->train.batch(step * flags_.batch, flags_.batch,
                                batch_sharding(mesh_, lm_info()));
  }
  Array blank_batch() const override { return zeros({flags_.batch, flags_.model.seq}, DType::i32); }
  StepWork work() const override {
    return {.count = flags_.batch * flags_.model.seq, .unit = "tokens"};
  }
  nlohmann::json config() const override {
    const lm::Config& m = flags_.model;
    return {{"vocab", m.vocab},   {"seq", m.seq},   {"d_model", m.d_model}, {"heads", m.heads},
            {"layers", m.layers}, {"d_ff", m.d_ff}, {"causal", m.is_causal}};
  }
  void finish(const lm::LM& params, float last_loss, Report& report,
              nlohmann::json& extra) const override {
    if (!corpus_->held_out) return;
    const double loss = held_out_loss(params, *corpus_->held_out, flags_.batch, mesh_);
    char line[96];
    std::snprintf(line, sizeof(line), "loss       training %.4f, held out %.4f nats per byte",
                  printable(static_cast<double>(last_loss)), printable(loss));
    report.line(line);
    extra["held_out_loss"] = loss;
    if (flags_.sample == 0) return;
    report.line("sample     seed " + std::to_string(flags_.seed) + ":\n" +
                sample(params, flags_, corpus_->train));
  }

 private:
  LmFlags flags_;
  Mesh mesh_;
  std::optional<Corpus> corpus_;
};

void add_lm_flags(Command& command, LmFlags& flags) {
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--vocab", flags.model.vocab, "number of tokens in the vocabulary; 256 with --text");
  add_whole_number(command, flags.model.seq,
                   {.name = "--seq", .text = "tokens per sequence", .least = 2});
  size("--d-model", flags.model.d_model, "width of the model");
  size("--heads", flags.model.heads, "attention heads; their number must divide --d-model");
  size("--layers", flags.model.layers, "transformer blocks");
  size("--d-ff", flags.model.d_ff, "width of the hidden layer of a block");
  add_path(command, flags.text, "--text", "train on the bytes of this file; implies --causal",
           "/usr/share/common-licenses/GPL-3")
      ->excludes(command.option("--vocab"));
  Option* causal = command
                       .add_flag("--causal", flags.causal,
                                 "each position attends only to itself and earlier ones")
                       ->disable_flag_override();
  command.add_flag("--no-causal", flags.no_causal, "each position attends to all positions")
      ->disable_flag_override()
      ->excludes(causal);
  command
      .add_flag(
          "--recompute-logits", flags.recompute_logits,
          "compute the logits in parts, and again in the backward pass: less memory, more work")
      ->disable_flag_override();
  add_whole_number(command, flags.sample,
                   {.name = "--sample", .text = "generate this many bytes of text at the end"});
}

}  // namespace

void add_lm(const ModelCommands& commands) { add_job<LmJob>(commands, lm_info(), add_lm_flags); }

}  // namespace tessera::cli
