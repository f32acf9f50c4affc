#include "command.h"

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "mistakes.h"

namespace tessera::cli {

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::allow_extra_args(bool allows) {
  option_->allow_extra_args(allows);
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::disable_flag_override() {
  option_->disable_flag_override();
  return this;
}

Option* Option::needs(Option* other) {
  option_->needs(other->option_);
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::check(const Check& check, const std::string& values) {
  option_->check(CLI::Validator([check](const std::string& word) { return check(word); }, values));
  return this;
}

std::string Option::get_name() const { return option_->get_name(); }
std::string Option::get_default_str() const { return option_->get_default_str(); }
bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }
std::size_t Option::count() const { return option_->count(); }
std::vector<std::string> Option::results() const { return option_->results(); }

struct Command::State {
  std::unique_ptr<CLI::App> owned;  // the program's app, which owns the apps of its commands
  CLI::App* app = nullptr;
  std::vector<std::unique_ptr<Command>> commands = {};
  std::map<const CLI::Option*, std::unique_ptr<Option>> options = {};

  Option* wrapped(CLI::Option* option) {
    std::unique_ptr<Option>& found = options[option];
    if (found == nullptr) found = std::make_unique<Option>(option);
    return found.get();
  }
  template <class T>
  Option* add(const std::string& name, T& value, const std::string& help) {
    return wrapped(app->add_option(name, value, help));
  }
};

Command::Command(const std::string& help, const std::string& name)
    : state_(std::make_unique<State>(State{.owned = std::make_unique<CLI::App>(help, name)})) {
  state_->app = state_->owned.get();
}

Command::Command(CLI::App& app)
    : state_(std::make_unique<State>(State{.owned = nullptr, .app = &app})) {}

Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& help) {
  state_->commands.push_back(std::make_unique<Command>(*state_->app->add_subcommand(name, help)));
  return state_->commands.back().get();
}

void Command::set_version(const std::string& text) {
  state_->app->set_version_flag("--version", text);
}

void Command::require_subcommand(int count) { state_->app->require_subcommand(count); }

void Command::callback(std::function<void()> run) { state_->app->callback(std::move(run)); }

Option* Command::add_option(const std::string& name, std::string& value, const std::string& help) {
  return state_->add(name, value, help);
}

Option* Command::add_option(const std::string& name, std::int64_t& value, const std::string& help) {
  return state_->add(name, value, help);
}

Option* Command::add_option(const std::string& name, double& value, const std::string& help) {
  return state_->add(name, value, help);
}

Option* Command::add_option(const std::string& name, std::vector<std::string>& values,
                            const std::string& help) {
  return state_->add(name, values, help);
}

Option* Command::add_option(const std::string& name, std::vector<std::int64_t>& values,
                            const std::string& help) {
  return state_->add(name, values, help);
}

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return state_->wrapped(state_->app->add_flag(name, value, help));
}

Option* Command::option(const std::string& name) {
  return state_->wrapped(state_->app->get_option(name));
}

void Command::remove_option(const std::string& name) {
  CLI::Option* option = state_->app->get_option(name);
  state_->options.erase(option);
  state_->app->remove_option(option);
}

std::vector<const Option*> Command::get_options() const {
  std::vector<const Option*> options;
  for (CLI::Option* option : state_->app->get_options()) {
    options.push_back(state_->wrapped(option));
  }
  return options;
}

std::size_t Command::count(const std::string& name) const { return state_->app->count(name); }

int Command::parse(int argc, char** argv) {
  try {
    state_->app->parse(argc, argv);
  } catch (const ExitWith& exit) {
    return exit.code();
  } catch (const CLI::ParseError& error) {
    const bool asks_for_help = error.get_exit_code() == 0;
    if (asks_for_help && !has_unknown_command(*state_->app, argc, argv)) {
      return print_help(*state_->app, error);
    }
    throw mistake_of(*state_->app, error, argc, argv);
  }
  return 0;
}

}  // namespace tessera::cli
