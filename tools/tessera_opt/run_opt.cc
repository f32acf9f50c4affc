#include "run_opt.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fmt/format.h>
#include <vector>

#include <tessera/error.h>

#include "read_program.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/stablehlo.h"
#include "stages.h"
#include "tools/cli/streams.h"

namespace tessera::opt {

namespace {

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// Parses a list of input numbers such as `0,2`.
std::vector<std::size_t> input_numbers(const std::string& flag, const std::string& text,
                                       const ir::Function& function) {
  std::vector<std::size_t> numbers;
  for (const std::string& word : split_list(text)) {
    std::size_t number = 0;
    const char* end = word.data() + word.size();
    const auto [reached, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || reached != end || number >= function.inputs.size()) {
      throw UserError(
          {.what = flag + ": there is no such input",
           .found = word.empty() ? "an empty number" : word,
           .wanted = fmt::format("numbers below {}, separated by commas", function.inputs.size()),
           .cure = "number the inputs of the function from 0"});
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::size_t> wrt_of(const std::string& text, const ir::Function& function) {
  const std::string prefix = "wrt=";
  const std::string flag = "--differentiate";
  const std::vector<std::size_t> numbers =
      input_numbers(flag, text.starts_with(prefix) ? text.substr(prefix.size()) : text, function);
  for (const std::size_t number : numbers) {
    const Type& type = function.type(function.inputs[number]);
    if (is_float(type.dtype)) continue;
    throw UserError({.what = flag + ": the input has no gradient",
                     .found = fmt::format("input {}: {}", number, to_string(type)),
                     .wanted = "floating-point inputs",
                     .cure = "leave out this input"});
  }
  return numbers;
}

partition::PartitionOptions partition_options(const Flags& flags, const ir::Function& function) {
  partition::PartitionOptions options;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const ir::Value& input = function.values[function.inputs[i]];
    options.inputs.push_back(input.sharding.value_or(replicated_sharding(input.type.rank())));
    if (options.inputs.back().partial.empty()) continue;
    throw UserError({.what = fmt::format("--partition: input {} is partial", i),
                     .found = to_string(function.mesh, options.inputs.back()),
                     .wanted = "a sharding without a + part",
                     .cure = "remove the + part: only collectives use partial values"});
  }
  options.is_storage.resize(function.inputs.size(), false);
  if (flags.storage.empty()) return options;
  for (const std::size_t number : input_numbers("--storage", flags.storage, function)) {
    options.is_storage[number] = true;
  }
  return options;
}

std::vector<ir::Pass> chosen_passes(const Flags& flags, const std::vector<Stage>& all) {
  const bool has_range = !flags.from.empty() || !flags.to.empty();
  const bool has_stages = flags.simplify || flags.partition;
  if (!flags.passes.empty() && (has_range || has_stages)) {
    throw UserError({.what = "--passes: the passes are chosen twice",
                     .found = has_range ? "--passes and --from or --to"
                                        : "--passes and --simplify or --partition",
                     .wanted = "one of the two",
                     .cure = "keep --passes alone; it runs passes in the order of its list"});
  }
  if (!flags.passes.empty()) return named_passes(all, split_list(flags.passes));
  if (has_range) {
    // Without --from, the range starts after the stage differentiate, unless --differentiate names
    // inputs to differentiate with respect to.
    const bool is_open =
        flags.from.empty() && flags.differentiate.empty() && flags.to != "differentiate";
    return passes_between(all, is_open ? "simplify" : flags.from, flags.to);
  }
  std::vector<ir::Pass> passes;
  for (const Stage& stage : all) {
    const bool is_chosen = (stage.name == "differentiate" && !flags.differentiate.empty()) ||
                           (stage.name == "simplify" && flags.simplify) ||
                           (stage.name == "partition" && flags.partition);
    if (is_chosen) passes.insert(passes.end(), stage.passes.begin(), stage.passes.end());
  }
  return passes;
}

/// The rule that an internal error names, without its source location.
std::string broken_rule(const InternalError& error) {
  const std::string text = error.what();
  const std::string prefix = "internal error: ";
  const std::size_t begin = text.starts_with(prefix) ? prefix.size() : 0;
  return text.substr(begin, text.rfind(" (") - begin);
}

/// Throws UserError if the verifier rejects the program: then the text or the choice of passes is
/// wrong.
void check_fits(const ir::Function& function, ir::Verifier verifier, const std::string& user) {
  try {
    verifier(function, "reading");
  } catch (const InternalError& error) {
    throw UserError({.what = user + ": the program does not have the required form",
                     .found = broken_rule(error),
                     .wanted = "the output of the earlier passes",
                     .cure = "run these first; `tessera-opt --list` shows their order"});
  }
}

void check_loss(const ir::Function& function, const Flags& flags) {
  if (flags.differentiate.empty()) {
    throw UserError({.what = "differentiate: no input to differentiate with respect to",
                     .found = "no --differentiate",
                     .wanted = "--differentiate wrt=NUMBERS",
                     .cure = "write for example --differentiate wrt=0"});
  }
  if (!function.outputs.empty()) return;
  throw UserError({.what = "differentiate: the function returns nothing",
                   .found = "no output",
                   .wanted = "a loss, f32[], as output 0",
                   .cure = "return the loss first"});
}

void print_error(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

ir::Function run_passes(const Flags& flags, const std::vector<ir::Pass>& passes,
                        ir::Function function) {
  ir::PassOptions options;
  options.verify = flags.verify;
  options.observe = [&](const ir::PassEvent& event) {
    if (flags.time) {
      print_error(fmt::format("{:<28} {:>10.3f} ms  {} equations before, {} after\n",
                              event.pass.name, 1e3 * event.seconds, event.before.equations.size(),
                              event.after.equations.size()));
    }
    if (flags.dump_each) {
      print_error("# after " + event.pass.name + "\n" + ir::print(event.after));
    }
  };
  if (!flags.disable.empty()) options.disabled = split_list(flags.disable);
  for (const ir::Pass& pass : passes) {
    if (pass.name == "differentiate") check_loss(function, flags);
    check_fits(function, pass.takes, pass.name);
    function = ir::run_passes({pass}, function, options);
  }
  return function;
}

/// The name of --from for StableHLO modules, which come before all stages.
constexpr std::string_view kImport = "stablehlo";

void check_emit(const Flags& flags) {
  if (!flags.emit.empty() && flags.emit != "stablehlo" && flags.emit != "module") {
    throw UserError({.what = "--emit: there is no such language",
                     .found = flags.emit,
                     .wanted = "stablehlo or module",
                     .cure = "leave out --emit to print the IR"});
  }
  if (flags.emit.empty() || !flags.explain) return;
  throw UserError({.what = "--emit: the output is chosen twice",
                   .found = "--emit and --explain",
                   .wanted = "one of them",
                   .cure = "run tessera-opt once for each"});
}

}  // namespace

void run_opt(Flags flags) {
  check_emit(flags);
  StageOptions options;
  if (flags.list) {
    cli::print(list_text(stages(options)));
    return;
  }
  std::string bytes = read_file(flags.file);
  const bool is_module = flags.from == kImport || flags.emit == "module";
  if (is_module) {
    // Throws for anything that is not a StableHLO module.
    const auto module = stablehlo::bytecode::read_module(bytes);
    if (flags.emit == "module") {
      cli::print(stablehlo::bytecode::print(*module));
      return;
    }
    flags.from.clear();
  }
  ir::Function function = program_of(std::move(bytes), flags.mesh);
  if (!flags.differentiate.empty()) options.wrt = wrt_of(flags.differentiate, function);
  options.partition = partition_options(flags, function);
  const std::vector<Stage> all = stages(options);
  if (!flags.disable.empty()) {
    ir::check_disabled(split_list(flags.disable), passes_of(all), "--disable");
  }
  function = run_passes(flags, chosen_passes(flags, all), std::move(function));
  if (!flags.explain) {
    cli::print(flags.emit.empty() ? ir::print(function) : stablehlo::emit(function));
    return;
  }
  check_fits(function, partition::passes(options.partition).back().gives, "--explain");
  cli::print(partition::explain_text(function));
}

}  // namespace tessera::opt
