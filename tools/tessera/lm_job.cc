#include "lm_job.h"

#include <cstdio>

#include <tessera/error.h>

namespace tessera::cli {

namespace {

constexpr std::int64_t kBytes = 256;

void check_sizes(const lm::Config& model) {
  if (model.d_model % model.heads != 0) {
    throw UserError({.what = "--heads: the heads do not divide the width of the model",
                     .found = "--heads " + std::to_string(model.heads) + " and --d-model " +
                              std::to_string(model.d_model),
                     .wanted = "a --d-model that is a multiple of --heads",
                     .cure = "write for example --heads 8 --d-model 256"});
  }
  if (model.d_model % 2 != 0) {
    throw UserError({.what = "--d-model: the width of the model is odd",
                     .found = std::to_string(model.d_model),
                     .wanted = "an even width: the positions alternate sines and cosines",
                     .cure = "write for example --d-model 256"});
  }
}

void check(const LmFlags& flags, const Mesh& mesh) {
  if (!mesh.axes().empty() && !mesh.has_axis("data")) {
    throw UserError({.what = "--mesh: the language model splits its batch over the axis data",
                     .found = to_string(mesh),
                     .wanted = "a mesh with an axis named data, or none",
                     .cure = "write for example --mesh data=8"});
  }
  check_sizes(flags.model);
  if (flags.sample > 0 && !flags.model.is_causal) {
    throw UserError({.what = "--sample: a model that sees the future cannot continue a text",
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

auto init_of(const LmFlags& flags) {
  return [&flags](Key key) {
    return LmState(lm::LM(nn::Scope(key), flags.model),
                   optim::adamw({.learning_rate = flags.learning_rate}));
  };
}

}  // namespace

void complete(LmFlags& flags, const Mesh& mesh) {
  if (!flags.text.empty()) flags.model.vocab = kBytes;
  flags.model.is_causal = flags.causal || (!flags.text.empty() && !flags.no_causal);
  check(flags, mesh);
}

Shardings batch_sharding(const Mesh& mesh) {
  if (mesh.axes().empty()) return {};
  return NamedSharding(mesh, P{"data"});
}

Shardings state_shardings(const LmFlags& flags, const Mesh& mesh, const LmState& shapes) {
  if (mesh.axes().empty()) return {};
  return flags.params == "fsdp" ? fsdp_shardings(mesh, shapes) : replicated(mesh, shapes);
}

LmState abstract_state(const LmFlags& flags) { return eval_shape(init_of(flags), Key(flags.seed)); }

LmState make_state(const LmFlags& flags, const Mesh& mesh) {
  const Shardings shardings = state_shardings(flags, mesh, abstract_state(flags));
  return jit(init_of(flags), {.out_shardings = shardings, .name = "init"})(Key(flags.seed));
}

void add_lm_flags(CLI::App& command, LmFlags& flags) {
  add_train_flags(command, flags);
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--vocab", flags.model.vocab, "tokens; 256 with --text");
  add_whole_number(command, flags.model.seq,
                   {.name = "--seq", .text = "tokens of a sequence", .least = 2});
  size("--d-model", flags.model.d_model, "width of the model");
  size("--heads", flags.model.heads, "attention heads; they divide --d-model");
  size("--layers", flags.model.layers, "transformer blocks");
  size("--d-ff", flags.model.d_ff, "width of the hidden layer of a block");
  command.add_option("--text", flags.text, "train on the bytes of this file; implies --causal");
  CLI::Option* causal =
      command.add_flag("--causal", flags.causal, "a position sees earlier ones only")
          ->disable_flag_override();
  command.add_flag("--no-causal", flags.no_causal, "every position sees all")
      ->disable_flag_override()
      ->excludes(causal);
  add_whole_number(command, flags.sample,
                   {.name = "--sample", .text = "write this many bytes of text at the end"});
}

}  // namespace tessera::cli
