// `tessera generate gpt2`: continues a text.

#include "gpt2/generate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>

#include "gpt2/config.h"
#include "gpt2/weights.h"
#include "tools/cli/input_file.h"
#include "tools/cli/streams.h"
#include "tools/cli/waiting.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/gpt2/folder.h"
#include "tools/tessera/job.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

std::string read_folder_file(const std::string& folder, const std::string& name) {
  return read_input(folder + "/" + name,
                    {.what = "gpt2: the file cannot be read",
                     .wanted = "a folder with config.json, vocab.json and merges.txt",
                     .cure = "check the path of the folder"});
}

data::BytePairTokenizer read_tokenizer(const std::string& folder, std::int64_t vocab) {
  data::BytePairTokenizer tokenizer(folder + "/vocab.json", folder + "/merges.txt", kNowhere);
  if (tokenizer.size() <= vocab) return tokenizer;
  throw UserError({.what = "gpt2: the vocabulary has more tokens than the model",
                   .found = folder + ": vocab.json has ids up to " +
                            std::to_string(tokenizer.size() - 1) + ", vocab_size is " +
                            std::to_string(vocab),
                   .wanted = "ids below vocab_size",
                   .cure = "use vocab.json, merges.txt and config.json of the same model"});
}

namespace {

using nlohmann::json;

JobInfo generate_info() {
  return {.name = "gpt2", .help = {}, .report_name = {}, .axes = {"data"}};
}

struct GenerateFlags : TrainFlags {
  GenerateFlags() { mesh = "none"; }
  std::string weights;
  std::vector<std::string> prompts;
  std::vector<std::string> stop;
  std::int64_t tokens = 64;
  std::int64_t sequences = 1;
  nn::SamplingOptions sampling;
};

/// The ids of a prompt. An empty prompt becomes the token that ends the preceding text.
gpt2::Tokens prompt_ids(const std::string& prompt, const GenerateFlags& flags,
                        const gpt2::Config& config, const data::BytePairTokenizer& tokenizer) {
  gpt2::Tokens ids;
  try {
    ids = tokenizer.encode(prompt);
  } catch (const UserError& error) {
    throw told_of("--prompt", error);
  }
  if (ids.empty() && config.end) ids.push_back(*config.end);
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length == 0) {
    throw UserError({.what = "--prompt: the text is empty",
                     .found = "no token, and the model has no eos_token_id",
                     .wanted = "a text to continue",
                     .cure = "write for example --prompt 'Once upon a time'"});
  }
  if (length + flags.tokens <= config.positions) return ids;
  const std::int64_t left = config.positions - length;
  throw UserError(
      {.what = "--prompt: the text and its continuation are longer than the context",
       .found = std::to_string(length) + " tokens and --tokens " + std::to_string(flags.tokens),
       .wanted =
           "together at most " + std::to_string(config.positions) + ", n_positions of the model",
       .cure = left >= 1 ? "write --tokens " + std::to_string(left) + ", or a shorter prompt"
                         : "write a shorter prompt"});
}

/// One continuation of a prompt.
struct Sequence {
  std::vector<std::int32_t> ids = {};
  std::string text = {};
  bool is_done = false;
};

/// Adds a token. A sequence ends with the token that ends texts, or just before a stop string.
void add_token(Sequence& sequence, std::int32_t id, const GenerateFlags& flags,
               const gpt2::Config& config, const data::BytePairTokenizer& tokenizer) {
  if (sequence.is_done) return;
  sequence.ids.push_back(id);
  if (config.end == id) {
    sequence.is_done = true;
    return;
  }
  // A model may have more logits than the vocabulary has tokens, because its rows are padded.
  if (id < tokenizer.size()) sequence.text += tokenizer.decode(std::span(&id, 1), kNowhere);
  std::size_t cut = sequence.text.size();
  for (const std::string& stop : flags.stop) cut = std::min(cut, sequence.text.find(stop));
  sequence.is_done = cut < sequence.text.size();
  sequence.text.resize(cut);
}

/// The model with kernels and embeddings in the dtype of products, so that the steps need not
/// convert them again and again.
gpt2::GPT2 with_dtype(const gpt2::GPT2& model, DType dtype) {
  if (dtype == DType::f32) return model;
  return tree_map([&](const Array& x) { return x.rank() > 1 ? astype(x, dtype) : x; }, model);
}

/// A prompt and its continuations.
struct Continued {
  std::string prompt;
  gpt2::Tokens ids = {};
  std::vector<Sequence> sequences = {};
};

/// How many tokens were made in how many seconds, without the tokens that a compilation delays.
struct Speed {
  std::int64_t tokens = 0;
  double seconds = 0;
  double tokens_per_second() const {
    return tokens == 0 ? 0 : static_cast<double>(tokens) / seconds;
  }
};

/// Continues several prompts together; all of them have the same number of tokens.
void generate(gpt2::Generator& generator, const GenerateFlags& flags, const gpt2::Config& config,
              const data::BytePairTokenizer& tokenizer, const std::vector<Continued*>& prompts,
              const std::function<void()>& on_token, Speed& speed) {
  const auto size = static_cast<std::size_t>(flags.sequences);
  for (Continued* prompt : prompts) prompt->sequences.resize(size);
  const auto add = [&] {
    const gpt2::Tokens next = generator.next();
    bool is_done = true;
    for (std::size_t i = 0; i < next.size(); ++i) {
      Sequence& sequence = prompts[i / size]->sequences[i % size];
      add_token(sequence, next[i], flags, config, tokenizer);
      is_done = is_done && sequence.is_done;
    }
    return is_done;
  };
  // The first token comes from the pass over the prompt. The second one compiles the step that
  // makes all further tokens.
  constexpr std::int64_t kFirst = 2;
  auto start = std::chrono::steady_clock::now();
  std::int64_t count = 0;
  for (bool is_done = false; count < flags.tokens && !is_done;) {
    is_done = add();
    ++count;
    if (count > kFirst) continue;
    on_token();
    if (count == kFirst) start = std::chrono::steady_clock::now();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (count <= kFirst) return;
  speed.tokens += (count - kFirst) * flags.sequences * std::ssize(prompts);
  speed.seconds += seconds.count();
}

Speed generate_all(const GenerateFlags& flags, const gpt2::Config& config,
                   const data::BytePairTokenizer& tokenizer, const Mesh& mesh,
                   std::vector<Continued>& prompts) {
  std::optional<Waiting> waiting("reading the weights");
  gpt2::GPT2 model = with_dtype(gpt2::read_weights(flags.weights, config), config.dtype);
  if (!mesh.axes().empty()) {
    model = device_put(model, state_shardings(flags, mesh, generate_info(), model));
  }
  waiting.emplace("compiling the model");
  std::map<std::size_t, std::vector<Continued*>> by_length;
  for (Continued& prompt : prompts) by_length[prompt.ids.size()].push_back(&prompt);
  Speed speed;
  for (const auto& [length, group] : by_length) {
    std::vector<gpt2::Tokens> ids;
    for (const Continued* prompt : group) ids.push_back(prompt->ids);
    gpt2::Generator generator(model, config, ids,
                              {.tokens = flags.tokens,
                               .sequences = flags.sequences,
                               .sampling = flags.sampling,
                               .seed = flags.seed,
                               .mesh = mesh});
    generate(
        generator, flags, config, tokenizer, group, [&] { waiting.reset(); }, speed);
  }
  return speed;
}

/// The text with U+FFFD in place of what is not UTF-8, such as a character that is not complete.
std::string readable(const std::string& text) {
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

void show(const std::vector<Continued>& prompts, const Speed& speed) {
  std::string text;
  for (const Continued& prompt : prompts) {
    for (const Sequence& sequence : prompt.sequences) {
      text += readable(prompt.prompt + sequence.text) + "\n";
      if (prompt.sequences.size() > 1 || prompts.size() > 1) text += "----\n";
    }
  }
  char line[80];
  std::snprintf(line, sizeof(line), "generated  %.1f tokens per second\n",
                speed.tokens_per_second());
  print(text + (speed.tokens > 0 ? line : ""));
}

json json_of(const Continued& prompt) {
  const Sequence& first = prompt.sequences[0];
  json object = {{"prompt_ids", prompt.ids}, {"ids", first.ids}, {"text", readable(first.text)}};
  for (const Sequence& sequence : prompt.sequences) {
    object["sequences"].push_back({{"ids", sequence.ids}, {"text", readable(sequence.text)}});
  }
  return object;
}

/// With one prompt, its members are in the object itself; with several, each prompt has an object
/// in `prompts`.
json json_of(const GenerateFlags& flags, const std::vector<Continued>& prompts,
             const Speed& speed) {
  json object = {{"model", "gpt2"},
                 {"tokens_per_second", speed.tokens_per_second()},
                 {"seed", flags.seed},
                 {"mesh", flags.mesh}};
  if (prompts.size() == 1) object.update(json_of(prompts[0]));
  for (const Continued& prompt : prompts) object["prompts"].push_back(json_of(prompt));
  return object;
}

void check_sampling(const nn::SamplingOptions& sampling) {
  if (sampling.top_p > 0 && sampling.top_p <= 1) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%g", sampling.top_p);
  throw UserError({.what = "--top-p: the value is not valid",
                   .found = text,
                   .wanted = "a probability above 0 and at most 1",
                   .cure = "write for example --top-p 0.9"});
}

/// An empty text is part of every continuation, so nothing would be generated.
void check_stop(const std::vector<std::string>& stop) {
  if (std::find(stop.begin(), stop.end(), "") == stop.end()) return;
  throw UserError({.what = "--stop: the text is empty",
                   .found = "\"\"",
                   .wanted = "a text that ends a continuation",
                   .cure = "write for example --stop '.', or leave --stop out"});
}

void run_generate(const GenerateFlags& flags) {
  check_sampling(flags.sampling);
  check_stop(flags.stop);
  const Mesh mesh = mesh_of(flags, generate_info());
  run_on_devices(flags, mesh, 1, [&] {
    apply(flags);
    const use_mesh scope(mesh);
    gpt2::Config config = gpt2::read_config(flags.weights);
    config.dtype = compute_dtype(flags);
    const data::BytePairTokenizer tokenizer = read_tokenizer(flags.weights, config.vocab);
    std::vector<Continued> prompts;
    for (const std::string& prompt : flags.prompts) {
      prompts.push_back({.prompt = prompt, .ids = prompt_ids(prompt, flags, config, tokenizer)});
    }
    const Speed speed = generate_all(flags, config, tokenizer, mesh, prompts);
    if (process_index() != 0) return;
    if (flags.json != "-") show(prompts, speed);
    if (!flags.json.empty()) write_json(flags.json, json_of(flags, prompts, speed));
  });
}

void add_sampling_flags(Command& command, GenerateFlags& flags) {
  add_number(command, flags.sampling.temperature,
             {.name = "--temperature",
              .text = "values below 1 favour likely tokens; 0 always takes the most likely token",
              .has_least = true});
  add_whole_number(command, flags.sampling.top_k,
                   {.name = "--top-k",
                    .text = "draw only from the K most likely tokens; 0: from all tokens",
                    .least = 0});
  command
      .add_option("--top-p", flags.sampling.top_p,
                  "draw only from the most likely tokens that together have this probability")
      ->capture_default_str();
  add_whole_number(command, flags.seed,
                   {.name = "--seed",
                    .text = "seed of the draws",
                    .least = 0,
                    .most = std::numeric_limits<std::int64_t>::max()});
}

void add_device_flags(Command& command, GenerateFlags& flags) {
  command
      .add_option("--mesh", flags.mesh,
                  "mesh axes, for example data=2 to split the sequences, or none")
      ->capture_default_str();
  add_choice(command, flags.params, "--params", {"replicated", "fsdp"},
             "how parameters are sharded");
  add_threads_flag(command, flags);
  add_choice(command, flags.dtype, "--dtype", {"f32", "bf16"},
             "dtype of activations and matrix operands");
  add_engine_flag(command, flags);
}

}  // namespace

void add_generate_gpt2(Command& generate) {
  Command* command =
      generate.add_subcommand("gpt2", "GPT-2, with weights in Hugging Face's layout");
  auto flags = std::make_shared<GenerateFlags>();
  add_path(*command, flags->weights, "--weights",
           "a folder with config.json, model.safetensors, vocab.json and merges.txt", "gpt2")
      ->required();
  command
      ->add_option(
          "--prompt", flags->prompts,
          "the text to continue, in UTF-8; may be repeated: prompts with the same number of "
          "tokens are continued together")
      ->allow_extra_args(false)
      ->required();
  add_whole_number(*command, flags->tokens,
                   {.name = "--tokens", .text = "generate at most this many tokens"});
  add_whole_number(
      *command, flags->sequences,
      {.name = "--sequences", .text = "number of continuations of each prompt", .most = 4096});
  command->add_option("--stop", flags->stop, "end a continuation before the first of these texts");
  add_sampling_flags(*command, *flags);
  add_device_flags(*command, *flags);
  add_path(*command, flags->json, "--json", "write one JSON object; - is standard output",
           "generated.json");
  command->callback([flags] { run_generate(*flags); });
}

}  // namespace tessera::cli
