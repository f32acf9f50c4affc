// `tessera train gpt2`: GPT-2 of examples/gpt2, fine-tuned on a text or trained from scratch.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <tessera/data.h>

#include "gpt2/config.h"
#include "gpt2/weights.h"
#include "tools/cli/output_file.h"
#include "tools/tessera/add_job.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/gpt2/folder.h"
#include "tools/tessera/job.h"

namespace tessera::cli {

namespace {

constexpr std::uint32_t kOrderSeed = 1234;
constexpr std::int64_t kUsualLength = 128;

JobInfo gpt2_info() {
  return {.name = "gpt2",
          .help = "GPT-2, from weights in Hugging Face's layout or from a configuration",
          .report_name = "gpt2",
          .axes = {"data"}};
}

struct Gpt2Flags : TrainFlags {
  Gpt2Flags() {
    mesh = "none";
    batch = 8;
    learning_rate = 5e-5;
  }
  std::string weights;
  std::string config;
  std::string text;
  std::string save;
  std::int64_t seq = 0;  // 0: 128, or as many as the model has positions
  bool recompute_logits = false;
  double dropout = 0;
  double attention_dropout = 0;

  const std::string& folder() const { return weights.empty() ? config : weights; }
};

gpt2::Config config_of(const Gpt2Flags& flags) {
  if (flags.folder().empty()) {
    throw UserError({.what = "gpt2: no model is given",
                     .found = "neither --weights nor --config",
                     .wanted = "a folder with config.json, vocab.json and merges.txt",
                     .cure =
                         "add --weights DIR to start from its weights, or --config DIR to start "
                         "from random ones"});
  }
  gpt2::Config config = gpt2::read_config(flags.folder());
  config.dtype = compute_dtype(flags);
  config.dropout = flags.dropout;
  config.attention_dropout = flags.attention_dropout;
  return config;
}

std::int64_t length_of(const Gpt2Flags& flags, const gpt2::Config& config) {
  if (flags.seq == 0) return std::min(kUsualLength, config.positions);
  if (flags.seq <= config.positions) return flags.seq;
  throw UserError(
      {.what = "--seq: the model does not have that many positions",
       .found = std::to_string(flags.seq),
       .wanted = "at most " + std::to_string(config.positions) + ", n_positions of the model",
       .cure = "write --seq " + std::to_string(config.positions)});
}

/// Windows of consecutive tokens; throws UserError if there is none.
data::Tokens windows_of(const std::vector<std::int32_t>& ids, std::int64_t length,
                        const char* which) {
  const auto count = static_cast<std::int64_t>(ids.size()) / length;
  if (count == 0) {
    throw UserError({.what = "--text: the text has fewer tokens than a sequence",
                     .found = std::to_string(ids.size()) + " tokens to " + which,
                     .wanted = "at least " + std::to_string(length),
                     .cure = "use a longer text or shorter sequences: --seq"});
  }
  return {{ids.begin(), ids.begin() + count * length}, length};
}

struct TokenizedText {
  data::Tokens train, held_out;
};

TokenizedText tokenized(const Gpt2Flags& flags, std::int64_t length, std::int64_t vocab,
                        Report& report) {
  if (flags.text.empty()) {
    throw UserError({.what = "train gpt2: there is no text to train on",
                     .found = "no --text",
                     .wanted = "a text file in UTF-8",
                     .cure = "add --text FILE"});
  }
  const data::BytePairTokenizer tokenizer = read_tokenizer(flags.folder(), vocab);
  data::Text text = data::read_text(flags.text, length, kNowhere);
  // A character that the cut divides goes to the first part.
  const auto is_inner = [](std::uint8_t byte) { return (byte & 0xC0U) == 0x80U; };
  const auto whole = std::find_if_not(text.held_out.begin(), text.held_out.end(), is_inner);
  text.train.insert(text.train.end(), text.held_out.begin(), whole);
  text.held_out.erase(text.held_out.begin(), whole);
  const auto encoded = [&](const std::vector<std::uint8_t>& bytes) {
    try {
      return tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } catch (const UserError& error) {
      throw told_of("--text", error);
    }
  };
  const std::vector<std::int32_t> train = encoded(text.train);
  const std::vector<std::int32_t> held_out = encoded(text.held_out);
  report.line("text       " + std::to_string(train.size()) + " tokens to train on; the " +
              std::to_string(held_out.size()) + " tokens after them are held out");
  return {.train = data::shuffled(windows_of(train, length, "train on"), kOrderSeed),
          .held_out = windows_of(held_out, length, "be held out")};
}

/// The mean loss over the windows of the held-out text, evaluated in batches.
double held_out_loss(const gpt2::GPT2& params, const data::Tokens& tokens, std::int64_t batch,
                     const Mesh& mesh) {
  auto evaluate = jit([](const gpt2::GPT2& model, Array ids) {
    return gpt2::next_token_loss(model, ids, /*recomputes=*/true);
  });
  double sum = 0;
  for (std::int64_t first = 0; first < tokens.num_sequences(); first += batch) {
    const std::int64_t size = std::min(batch, tokens.num_sequences() - first);
    const Array ids = tokens.batch(first, size, batch_sharding(mesh, gpt2_info()));
    sum += evaluate(params, ids).item<double>() * static_cast<double>(size);
  }
  return sum / static_cast<double>(tokens.num_sequences());
}

class Gpt2Job final : public Job<gpt2::GPT2, Array> {
 public:
  Gpt2Job(const Gpt2Flags& flags, Mesh mesh)
      : flags_(flags),
        mesh_(std::move(mesh)),
        config_(config_of(flags)),
        length_(length_of(flags, config_)) {}

  gpt2::GPT2 make_model(const Key& key) const override { return {nn::Scope(key), config_}; }
  std::optional<gpt2::GPT2> pretrained() const override {
    if (flags_.weights.empty()) return std::nullopt;
    return gpt2::read_weights(flags_.weights, config_);
  }
  std::tuple<Array, gpt2::GPT2> loss_and_grads(const gpt2::GPT2& params, const Array& ids,
                                               const Array& step) const override {
    nn::Mode mode;
    if (flags_.dropout > 0 || flags_.attention_dropout > 0) {
      const Key key = random::split<2>(Key(flags_.seed))[1];
      mode = nn::Mode::train(random::fold_in(key, step));
    }
    return value_and_grad([&](const gpt2::GPT2& model) {
      return gpt2::next_token_loss(model, ids, flags_.recompute_logits, mode);
    })(params);
  }
  void load(Report& report) override {
    if (!flags_.save.empty()) check_folder("--save", flags_.save);
    corpus_ = tokenized(flags_, length_, config_.vocab, report);
  }
  std::uint64_t data_hash() const override {
    const std::uint64_t hash =
        hash_with(kNoBytes, std::as_bytes(std::span(corpus_->train.values())));
    return hash_with(hash, std::as_bytes(std::span(corpus_->held_out.values())));
  }
  Array batch(std::int64_t step) const override {
    return corpus_->train.batch(step * flags_.batch, flags_.batch,
                                batch_sharding(mesh_, gpt2_info()));
  }
  Array blank_batch() const override { return zeros({flags_.batch, length_}, DType::i32); }
  StepWork work() const override { return {.count = flags_.batch * length_, .unit = "tokens"}; }
  nlohmann::json config() const override {
    return {{"vocab", config_.vocab},         {"seq", length_},
            {"positions", config_.positions}, {"features", config_.features},
            {"hidden", config_.hidden},       {"heads", config_.heads},
            {"layers", config_.layers},       {"pretrained", !flags_.weights.empty()},
            {"dropout", config_.dropout},     {"attention_dropout", config_.attention_dropout}};
  }
  void finish(const gpt2::GPT2& params, float last_loss, Report& report,
              nlohmann::json& extra) const override {
    const double loss = held_out_loss(params, corpus_->held_out, flags_.batch, mesh_);
    char line[120];
    std::snprintf(line, sizeof(line),
                  "loss       training %.4f, held out %.4f nats per token: perplexity %.2f",
                  printable(static_cast<double>(last_loss)), printable(loss),
                  printable(std::exp(loss)));
    report.line(line);
    extra["held_out_loss"] = loss;
    if (flags_.save.empty()) return;
    save(params);
    report.line("saved      " + flags_.save +
                ", for `tessera generate gpt2 --weights` and other "
                "programs");
  }

 private:
  /// Writes a folder with the layout of the one that was read.
  void save(const gpt2::GPT2& params) const {
    namespace fs = std::filesystem;
    if (process_index() == 0) {
      fs::create_directories(flags_.save);
      for (const char* name : {"config.json", "vocab.json", "merges.txt"}) {
        const std::string to = flags_.save + "/" + name;
        std::error_code ignored;  // the calls below report errors of the paths
        if (fs::equivalent(flags_.folder() + "/" + name, to, ignored)) continue;
        write_file("--save", to, read_folder_file(flags_.folder(), name));
      }
    }
    gpt2::write_weights(flags_.save + "/model.safetensors", params, config_);
  }

  Gpt2Flags flags_;
  Mesh mesh_;
  gpt2::Config config_;
  std::int64_t length_;
  std::optional<TokenizedText> corpus_;
};

void add_gpt2_flags(Command& command, Gpt2Flags& flags) {
  Option* weights =
      add_path(command, flags.weights, "--weights",
               "a folder with config.json, model.safetensors, vocab.json and merges.txt", "gpt2");
  add_path(command, flags.config, "--config",
           "a folder with the same files except the weights: parameters start from random values",
           "gpt2")
      ->excludes(weights);
  add_path(command, flags.text, "--text", "train on this text file, in UTF-8",
           "/usr/share/common-licenses/GPL-3");
  add_whole_number(
      command, flags.seq,
      {.name = "--seq",
       .text = "tokens per sequence; default: 128, or all positions of a model with fewer",
       .least = 2});
  command
      .add_flag(
          "--recompute-logits", flags.recompute_logits,
          "compute the logits in parts, and again in the backward pass: less memory, more work")
      ->disable_flag_override();
  add_probability(
      command, flags.dropout, "--dropout",
      "fraction of elements to drop from embeddings and from the outputs of attention and MLP");
  add_probability(command, flags.attention_dropout, "--attention-dropout",
                  "fraction of attention probabilities to drop");
  add_path(command, flags.save, "--save",
           "write the trained model to this folder, in the layout of --weights", "tuned");
}

}  // namespace

void add_gpt2(const ModelCommands& commands) {
  add_job<Gpt2Job>(commands, gpt2_info(), add_gpt2_flags);
  add_generate_gpt2(commands.generate);
}

}  // namespace tessera::cli
