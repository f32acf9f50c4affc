// Command-line parsing: nested commands with flags. A wrapper of CLI11, which only command.cc and
// mistakes.cc include, because its headers take seconds to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

/// A flag or a positional argument of a command, which owns it.
class Option {
 public:
  /// Returns why a value is not valid, or an empty text if it is; may throw UserError instead.
  using Check = std::function<std::string(const std::string& word)>;

  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  /// Makes --help show the current value of the variable as the default.
  Option* capture_default_str();
  /// Whether several words may follow the flag.
  Option* allow_extra_args(bool allows);
  /// Splits each word at this character into several values.
  Option* delimiter(char between);
  /// Rejects a value after a flag that takes none.
  Option* disable_flag_override();
  Option* needs(Option* other);
  Option* excludes(Option* other);
  /// Checks each word; `values` describes the valid ones in --help.
  Option* check(const Check& check, const std::string& values);

  std::string get_name() const;
  std::string get_default_str() const;
  bool takes_value() const;
  /// How many times the option was given.
  std::size_t count() const;
  /// The words that were given to it.
  std::vector<std::string> results() const;

 private:
  CLI::Option* option_;
};

/// A program, or one of its commands. The variables that are passed to it must outlive it.
class Command {
 public:
  Command(const std::string& help, const std::string& name);
  explicit Command(CLI::App& app);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(const std::string& name, const std::string& help);
  void require_subcommand(int count);
  /// Sets the text that --version prints.
  void set_version(const std::string& text);
  /// Sets the function to call when the whole command line has been read.
  void callback(std::function<void()> run);

  Option* add_option(const std::string& name, std::string& value, const std::string& help);
  Option* add_option(const std::string& name, std::int64_t& value, const std::string& help);
  Option* add_option(const std::string& name, double& value, const std::string& help);
  Option* add_option(const std::string& name, std::vector<std::string>& values,
                     const std::string& help);
  Option* add_option(const std::string& name, std::vector<std::int64_t>& values,
                     const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  /// An option that was added before.
  Option* option(const std::string& name);
  void remove_option(const std::string& name);
  std::vector<const Option*> get_options() const;
  /// How many times the flag `name` was given.
  std::size_t count(const std::string& name) const;

  /// Parses the command line and calls the callbacks of its commands; returns the exit code. Throws
  /// UserError.
  int parse(int argc, char** argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Thrown by a command whose error has been reported already: the program ends with this code.
class ExitWith : public std::exception {
 public:
  explicit ExitWith(int code) : code_(code) {}
  int code() const { return code_; }
  const char* what() const noexcept override { return "the error has been reported"; }

 private:
  int code_;
};

}  // namespace tessera::cli
