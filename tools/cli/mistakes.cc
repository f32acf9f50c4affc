#include "mistakes.h"

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "streams.h"

namespace tessera::cli {

namespace {

bool is_flag(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

/// `--steps=3` -> `--steps`.
std::string flag_name(std::string_view word) { return std::string(word.substr(0, word.find('='))); }

std::string quoted_command(const std::string& words) { return "`" + words + "`"; }

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The names of the positional arguments.
std::vector<std::string> positionals_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) names.push_back(option->get_name(true));
  }
  return names;
}

/// A command: its words on the command line, and the arguments after them.
struct CommandLine {
  const CLI::App* app;
  std::string words;
  std::vector<std::string> arguments = {};
};

CommandLine command_line_of(const CLI::App& app, int argc, const char* const* argv) {
  CommandLine command{.app = &app, .words = app.get_name()};
  int next = 1;
  for (; next < argc; ++next) {
    const auto subs = command.app->get_subcommands(
        [&](const CLI::App* sub) { return sub->get_name() == argv[next]; });
    if (subs.empty()) break;
    command.app = subs[0];
    command.words += " " + subs[0]->get_name();
  }
  command.arguments.assign(argv + next, argv + argc);
  return command;
}

UserError command_mistake(const CommandLine& command) {
  const std::vector<std::string> names = subcommands_of(*command.app);
  const std::string help = quoted_command(command.words + " --help") + " explains them";
  if (command.arguments.empty() || is_flag(command.arguments[0])) {
    return UserError(
        {.what = "a command is missing after " + quoted_command(command.words),
         .found = command.arguments.empty() ? "the end of the line" : command.arguments[0],
         .wanted = list_of(names),
         .cure =
             "write for example " + quoted_command(command.words + " " + names[0]) + "; " + help});
  }
  const std::string& word = command.arguments[0];
  const std::string meant = nearest(word, names);
  return UserError(
      {.what = word + ": " + quoted_command(command.words) + " has no such command",
       .found = word,
       .wanted = list_of(names),
       .cure = "write " + quoted_command(command.words + " " + (meant.empty() ? names[0] : meant)) +
               "; " + help});
}

UserError unexpected_word(const CommandLine& command, const std::string& word) {
  const std::string help = quoted_command(command.words + " --help") + " lists the flags";
  const std::vector<std::string> positionals = positionals_of(*command.app);
  if (!is_flag(word) && !positionals.empty()) {
    return UserError({.what = quoted_command(command.words) + " takes one " + list_of(positionals),
                      .found = word + ", one too many",
                      .wanted = list_of(positionals) + " --FLAG VALUE",
                      .cure = "remove it, or put its flag in front of it; " + help});
  }
  if (!is_flag(word)) {
    return UserError({.what = quoted_command(command.words) + " takes flags only",
                      .found = word,
                      .wanted = "--FLAG VALUE",
                      .cure = "remove it, or put its flag in front of it; " + help});
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : command.app->get_options()) {
    if (!option->get_positional()) names.push_back(option->get_name());
  }
  const std::string meant = nearest(flag_name(word), names);
  return UserError({.what = flag_name(word) + ": there is no such flag",
                    .found = word,
                    .wanted = "a flag of " + quoted_command(command.words),
                    .cure = meant.empty() ? help : "write " + meant + "; " + help});
}

bool takes_value(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() > 0;
}

/// The first argument that is neither a flag of the command nor the value of one.
std::string first_unexpected(const CommandLine& command) {
  std::size_t num_positionals = positionals_of(*command.app).size();
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    const std::string& word = command.arguments[i];
    const CLI::Option* option = command.app->get_option_no_throw(flag_name(word));
    if (!is_flag(word) && num_positionals > 0) {
      --num_positionals;
      continue;
    }
    if (option == nullptr) return word;
    const bool has_value = word.find('=') != std::string::npos;
    if (takes_value(option) && !has_value) ++i;
  }
  return "an argument";
}

/// The error for a flag with too many or too few values.
UserError wrong_number_of_values(const CommandLine& command, const std::string& name) {
  std::vector<std::string> given;
  for (const std::string& word : command.arguments) {
    if (flag_name(word) == name) given.push_back(word);
  }
  const CLI::Option* option = command.app->get_option_no_throw(name);
  if (!takes_value(option)) {
    return UserError({.what = name + ": this flag takes no value",
                      .found = list_of(given),
                      .wanted = name,
                      .cure = "write " + name + " alone, or leave it out"});
  }
  if (given.size() > 1) {
    return UserError({.what = name + ": the flag is given more than once",
                      .found = std::to_string(given.size()) + " times",
                      .wanted = "once",
                      .cure = "keep one of them"});
  }
  const std::string value = option->get_default_str();
  return UserError({.what = name + ": the value is missing",
                    .found = list_of(given) + " without a value",
                    .wanted = name + " VALUE",
                    .cure = value.empty() ? "write a value after it"
                                          : "write for example " + name + " " + value});
}

bool is_a(const CLI::ParseError& error, CLI::ExitCodes kind) {
  return error.get_exit_code() == static_cast<int>(kind);
}

}  // namespace

UserError mistake_of(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv) {
  const CommandLine command = command_line_of(app, argc, argv);
  if (!subcommands_of(*command.app).empty()) return command_mistake(command);
  const std::string text = error.what();
  if (is_a(error, CLI::ExitCodes::ExtrasError)) {
    return unexpected_word(command, first_unexpected(command));
  }
  if (is_a(error, CLI::ExitCodes::ArgumentMismatch)) {
    const std::string name = text.substr(0, text.find_first_of(": "));
    return wrong_number_of_values(command, is_flag(name) ? name : "--" + name);
  }
  // CLI11's texts about two flags are `--first excludes --second` and `--first requires --second`.
  const std::string first = text.substr(0, text.find(' '));
  const std::string second = text.substr(text.rfind(' ') + 1);
  if (is_a(error, CLI::ExitCodes::ExcludesError)) {
    return UserError({.what = text,
                      .found = first + " and " + second,
                      .wanted = "at most one of them",
                      .cure = "leave out " + first + " or " + second});
  }
  if (is_a(error, CLI::ExitCodes::RequiresError)) {
    return UserError({.what = text,
                      .found = first + " alone",
                      .wanted = "both of them",
                      .cure = "add " + second + ", or leave out " + first});
  }
  return UserError(
      {.what = text, .cure = quoted_command(command.words + " --help") + " lists what it takes"});
}

bool has_unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const CommandLine command = command_line_of(app, argc, argv);
  return !subcommands_of(*command.app).empty() && !command.arguments.empty() &&
         !is_flag(command.arguments[0]);
}

int print_help(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream text;
  const int code = app.exit(error, text, text);
  print(text.str());
  return code;
}

}  // namespace tessera::cli
