#include "flags.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <sstream>

#include <tessera/debug.h>
#include <tessera/engine.h>
#include <tessera/error.h>

#include "tools/cli/aborts.h"
#include "tools/cli/ranks.h"

namespace tessera::cli {

namespace {

[[noreturn]] void bad_value(const std::string& name, const std::string& found,
                            const std::string& wanted, const std::string& example) {
  throw UserError({.what = name + ": the value is not valid",
                   .found = found.empty() ? "an empty string" : found,
                   .wanted = wanted,
                   .cure = "write for example " + name + " " + example});
}

}  // namespace

bool read_number(const std::string& text, std::int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [reached, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && reached == end;
}

bool read_number(const std::string& text, double& value) {
  // strtod would also take blanks, hexadecimal digits and infinity.
  const std::size_t other = text.find_first_not_of("0123456789+-.eE");
  if (text.empty() || other != std::string::npos) return false;
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

void add_choice(Command& command, std::string& value, const std::string& name,
                const std::vector<std::string>& choices, const std::string& text) {
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
  const std::string example = value.empty() ? choices.front() : value;
  auto check = [name, choices, list, example](const std::string& word) -> std::string {
    for (const std::string& choice : choices) {
      if (choice == word) return {};
    }
    bad_value(name, word, choices.size() == 1 ? list : "one of " + list, example);
  };
  command.add_option(name, value, text)->check(check, "one of " + list)->capture_default_str();
}

Option* add_path(Command& command, std::string& value, const std::string& name,
                 const std::string& text, const std::string& example) {
  auto check = [name, example](const std::string& word) -> std::string {
    if (!word.empty()) return {};
    bad_value(name, word, "the path of a file or folder", example);
  };
  return command.add_option(name, value, text)->check(check, "PATH");
}

namespace {

/// `0.01`, `1e+30`
std::string short_text(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string range_of(const Number& flag) {
  return "a number " + std::string(flag.has_least ? "of at least " : "above ") +
         short_text(flag.least) + " and below " + short_text(flag.end);
}

}  // namespace

Option* add_number(Command& command, double& value, const Number& flag) {
  Option* option = command.add_option(flag.name, value, flag.text);
  const bool is_usual = flag.example.empty();
  if (is_usual) option->capture_default_str();
  const std::string example = is_usual ? option->get_default_str() : flag.example;
  auto check = [flag, example](const std::string& word) -> std::string {
    double x = 0;
    const bool is_number = read_number(word, x);
    const bool is_above = x > flag.least || (flag.has_least && x == flag.least);
    if (is_number && x < flag.end && is_above) return {};
    bad_value(flag.name, word, range_of(flag), example);
  };
  return option->check(check, range_of(flag));
}

void add_probability(Command& command, double& value, const std::string& name,
                     const std::string& text) {
  add_number(command, value, {.name = name, .text = text, .end = 1, .has_least = true});
}

namespace {

Option* check_whole_number(Option* option, const WholeNumber& flag, const std::string& example) {
  auto check = [flag, example](const std::string& word) -> std::string {
    std::int64_t number = 0;
    const bool is_number = read_number(word, number);
    if (is_number && number >= flag.least && number <= flag.most) return {};
    double found = 0;
    const bool is_above = !is_number && read_number(word, found) && found >= 0x1p63;
    const bool is_bounded = is_above || flag.most < std::numeric_limits<std::int64_t>::max();
    const std::string range =
        is_bounded ? "from " + std::to_string(flag.least) + " to " + std::to_string(flag.most)
                   : "of at least " + std::to_string(flag.least);
    bad_value(flag.name, word, "a whole number " + range, example);
  };
  return option->check(check, ">= " + std::to_string(flag.least));
}

}  // namespace

Option* add_whole_number(Command& command, std::int64_t& value, const WholeNumber& flag) {
  const std::string example = std::to_string(value < flag.least ? 8 : value);
  Option* option =
      check_whole_number(command.add_option(flag.name, value, flag.text), flag, example);
  return value < flag.least ? option : option->capture_default_str();
}

void add_whole_numbers(Command& command, std::vector<std::int64_t>& values,
                       const WholeNumber& flag) {
  std::string example;
  for (const std::int64_t value : values)
    example += (example.empty() ? "" : ",") + std::to_string(value);
  Option* option = command.add_option(flag.name, values, flag.text)->delimiter(',');
  check_whole_number(option, flag, example)->capture_default_str();
}

namespace {

void add_process_flags(Command& command, TrainFlags& flags) {
  Option* isolated =
      command
          .add_flag("--isolated", flags.isolated,
                    "run one process per device; the processes share nothing and exchange messages")
          ->disable_flag_override();
  Option* timeout =
      add_number(command, flags.timeout_s,
                 {.name = "--timeout",
                  .text = "seconds without a sign of life after which a process counts as failed"});
  if (!is_launched()) timeout->needs(isolated);
}

void add_checkpoint_flags(Command& command, TrainFlags& flags) {
  Option* checkpoint = add_path(
      command, flags.checkpoint, "--checkpoint",
      "save the state to this folder, at the end and when a signal ends the run", "runs/lm");
  add_whole_number(command, flags.every,
                   {.name = "--every", .text = "also save at intervals of this many steps"})
      ->needs(checkpoint);
  add_whole_number(
      command, flags.keep,
      {.name = "--keep", .text = "how many of the latest checkpoints to keep; default: all"})
      ->needs(checkpoint);
  command.add_flag("--resume", flags.resume, "continue from the last checkpoint, if there is one")
      ->disable_flag_override()
      ->needs(checkpoint);
  command
      .add_flag("--allow-nan", flags.allow_nan,
                "keep training and saving when the loss or the state is no longer finite")
      ->disable_flag_override();
  command
      .add_flag(
          "--check-nans", flags.check_nans,
          "report the op and the source line that produce the first NaN or infinity; needs more "
          "memory")
      ->disable_flag_override();
  command
      .add_flag("--check-indices", flags.check_indices,
                "stop with an error when an index into an array, such as a token, is out of range")
      ->disable_flag_override();
}

}  // namespace

void add_threads_flag(Command& command, TrainFlags& flags) {
  add_whole_number(
      command, flags.threads,
      {.name = "--threads", .text = "worker threads; default: one per core", .most = 1024});
}

void add_engine_flag(Command& command, TrainFlags& flags) {
  command
      .add_option(
          "--engine,--backend", flags.engine,
          "host; reference, which is simple and slow; or the devices of a PJRT plugin: gpu or "
          "pjrt:PATH[,OPTION=VALUE]...")
      ->capture_default_str();
}

void add_train_flags(Command& command, TrainFlags& flags) {
  command
      .add_option("--mesh", flags.mesh, "mesh axes in order, for example data=4,model=2, or none")
      ->capture_default_str();
  add_choice(command, flags.params, "--params", {"replicated", "fsdp", "annotated"},
             "how parameters and optimiser state are sharded");
  add_whole_number(command, flags.steps,
                   {.name = "--steps", .text = "training steps", .most = 1'000'000'000});
  add_whole_number(command, flags.batch,
                   {.name = "--batch", .text = "sequences or images per step"});
  add_whole_number(command, flags.seed,
                   {.name = "--seed",
                    .text = "seed of the parameters",
                    .least = 0,
                    .most = std::numeric_limits<std::int64_t>::max()});
  add_number(command, flags.learning_rate, {.name = "--lr", .text = "learning rate"});
  add_optimizer_flags(command, flags.optimizer);
  add_whole_number(command, flags.log_every,
                   {.name = "--log-every", .text = "steps between printed losses"});
  add_threads_flag(command, flags);
  command
      .add_flag("--no-bind", flags.no_bind,
                "let the system move threads between the NUMA nodes of the machine")
      ->disable_flag_override();
  add_whole_number(command, flags.grains,
                   {.name = "--grains",
                    .text = "number of grains that a sum is split into; results depend on it",
                    .most = 4096});
  add_choice(
      command, flags.numerics, "--numerics", {"exact", "fast", "device"},
      "exact: the same bits on any mesh; fast: fewer bytes between devices; device: sums in the "
      "order of the PJRT plugin, which is the default with a plugin");
  add_choice(command, flags.dtype, "--dtype", {"f32", "bf16"},
             "dtype of activations and matrix operands; parameters and sums are f32");
  add_choice(command, flags.dot_unit, "--dot-unit", {"auto", "portable", "avx512_bf16", "amx_bf16"},
             "the processor unit that multiplies bf16; auto: the best one of this machine");
  add_engine_flag(command, flags);
  add_process_flags(command, flags);
  command
      .add_flag("--allow-overcommit", flags.allow_overcommit,
                "run even if less memory is free than the run needs")
      ->disable_flag_override();
  add_path(command, flags.json, "--json", "write one JSON object at the end; - is standard output",
           "run.json");
  add_path(command, flags.dump, "--dump",
           "write the initial parameters and the first gradients to this file",
           "first.safetensors");
  add_path(command, flags.profile, "--profile",
           "write to this folder how the steps spend their time, and a trace of five steps for "
           "TensorBoard's profile plugin",
           "profile");
  add_checkpoint_flags(command, flags);
  add_path(command, flags.tensorboard, "--tensorboard",
           "write losses and step times to this folder, for TensorBoard", "runs/board");
  add_choice(command, flags.progress, "--progress", {"auto", "off"},
             "auto: show a progress bar on a terminal");
}

DType compute_dtype(const TrainFlags& flags) {
  return flags.dtype == "bf16" ? DType::bf16 : DType::f32;
}

Mesh mesh_of(const std::string& text, const std::string& flag) {
  try {
    return parse_mesh(text, std::source_location());
  } catch (const UserError& error) {
    throw told_of(flag, error);
  }
}

namespace {

/// A PJRT plugin adds in an order of its own, so its numerics are those that no other engine has.
void apply_numerics(const TrainFlags& flags) {
  const bool is_plugin = engine() == "pjrt";
  if (!flags.numerics.empty() && (flags.numerics == "device") != is_plugin) {
    throw UserError({.what = "--numerics: the engine does not have these numerics",
                     .found = "--numerics " + flags.numerics + " --engine " + flags.engine,
                     .wanted = is_plugin ? "device" : "exact or fast",
                     .cure = "leave out --numerics, or use another --engine"});
  }
  set_numerics(flags.numerics == "fast" ? Numerics::fast : Numerics::exact);
}

}  // namespace

void apply(const TrainFlags& flags) {
  set_num_threads(flags.threads > 0 ? static_cast<int>(flags.threads) : cores_of_process());
  set_thread_binding(!flags.no_bind);
  set_grains(flags.grains);
  set_overcommit(flags.allow_overcommit);
  set_index_checks(flags.check_indices);
  try {
    set_dot_unit(flags.dot_unit);
  } catch (const UserError& error) {
    throw told_of("--dot-unit", error);
  }
  if (flags.engine != "host" && flags.engine != "reference") {
    report_aborts("tessera: fault: the PJRT plugin ended the process with ",
                  "; its own output is above. "
                  "Saved checkpoints are intact: --resume continues from the last one.\n");
  }
  try {
    set_engine(flags.engine);
  } catch (const UserError& error) {
    throw told_of("--engine", error);
  }
  apply_numerics(flags);
}

namespace {

void check_timeout(const TrainFlags& flags) {
  if (flags.timeout_s >= 0.1 && flags.timeout_s <= 1e6) return;
  std::ostringstream seconds;
  seconds << flags.timeout_s;
  throw UserError({.what = "--timeout: the value is not valid",
                   .found = seconds.str(),
                   .wanted = "from 0.1 to 1000000 seconds",
                   .cure = "write for example --timeout 60"});
}

void check_isolated(const Mesh& mesh) {
  constexpr std::int64_t kMostProcesses = 256;
  if (mesh.num_devices() <= kMostProcesses) return;
  throw UserError({.what = "--isolated: the mesh has too many devices for one process per device",
                   .found = std::to_string(mesh.num_devices()) + " devices",
                   .wanted = "at most " + std::to_string(kMostProcesses),
                   .cure = "use a smaller mesh, or leave out --isolated"});
}

/// Throws UserError unless all ranks own the same number of devices.
void check_ranks(const Mesh& mesh, int num_ranks) {
  const std::int64_t devices = mesh.num_devices();
  if (devices % num_ranks == 0) return;
  throw UserError({.what = num_ranks > devices
                               ? "--mesh: there are more ranks than devices"
                               : "--mesh: the devices cannot be divided evenly among the ranks",
                   .found = (mesh.axes().empty() ? "no mesh" : to_string(mesh)) + " with " +
                            std::to_string(devices) + (devices == 1 ? " device" : " devices") +
                            ", and " + std::to_string(num_ranks) + " ranks",
                   .wanted = "a number of ranks that divides the number of devices",
                   .cure = "start for example " + std::to_string(devices) +
                           (devices == 1 ? " rank" : " ranks") + ", or write a --mesh of " +
                           std::to_string(num_ranks) + " devices"});
}

void run_launched_ranks(const TrainFlags& flags, const Mesh& mesh, std::int64_t num_groups,
                        const std::function<void()>& body) {
  if (flags.isolated) {
    throw UserError({.what = "--isolated: a launcher such as mpirun has already started processes",
                     .found = "--isolated under a launcher",
                     .wanted = "one of them",
                     .cure = "leave out --isolated, or start the program without the launcher"});
  }
  run_as_rank("tessera",
              {.timeout_s = flags.timeout_s,
               .num_groups = static_cast<int>(num_groups),
               .devices_per_group = mesh.num_devices() / num_groups,
               .must_agree = flags_that_agree()},
              [&] {
                check_ranks(mesh, process_count());
                body();
              });
}

}  // namespace

void run_on_devices(const TrainFlags& flags, const Mesh& mesh, std::int64_t num_groups,
                    const std::function<void()>& body) {
  if (!flags.isolated && !is_launched()) {
    body();
    return;
  }
  if (flags.isolated) check_isolated(mesh);
  check_timeout(flags);
  if (is_launched()) {
    run_launched_ranks(flags, mesh, num_groups, body);
    return;
  }
  RankProgram program("tessera", body);
  int code = 0;
  try {
    code = run_isolated(program, {.num_processes = static_cast<int>(mesh.num_devices()),
                                  .timeout_s = flags.timeout_s,
                                  .num_groups = static_cast<int>(num_groups)});
  } catch (const UserError& error) {
    throw told_of("--isolated", error);
  }
  // The process that failed has printed its error.
  if (code != 0) throw ExitWith(code);
}

}  // namespace tessera::cli
