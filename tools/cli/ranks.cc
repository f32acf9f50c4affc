#include "ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "run_main.h"

namespace tessera::cli {

namespace {

std::vector<std::string> arguments;
bool has_joined = false;

constexpr std::string_view kOwnFlags[] = {"--threads", "--json",        "--profile",
                                          "--dump",    "--tensorboard", "--progress"};

bool is_own(std::string_view flag) {
  return std::find(std::begin(kOwnFlags), std::end(kOwnFlags), flag) != std::end(kOwnFlags);
}

}  // namespace

int RankProgram::report(const std::exception_ptr& error) {
  const int code = exit_code(error);
  std::string name = name_;
  // All ranks make the same user errors, so these need no rank.
  if (process_count() > 1 && code != 1) name += ": rank " + std::to_string(process_index());
  report_error(name.c_str(), error);
  return code;
}

int RankProgram::report_again(const std::exception_ptr& error) { return exit_code(error); }

void keep_arguments(int argc, char** argv) {
  arguments.assign(argv + std::min(argc, 1), argv + argc);
}

std::vector<std::pair<std::string, std::string>> flags_that_agree() {
  std::vector<std::pair<std::string, std::string>> flags;
  std::string words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with("--")) {
      words += (words.empty() ? "" : " ") + word;
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string flag = word.substr(0, equals);
    std::string value = equals == std::string::npos ? "given" : word.substr(equals + 1);
    const bool has_next = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (equals == std::string::npos && has_next) value = arguments[++i];
    if (!is_own(flag)) flags.emplace_back(std::move(flag), std::move(value));
  }
  flags.insert(flags.begin(), {"the command", words});
  return flags;
}

void run_as_rank(const char* name, LaunchOptions options, const std::function<void()>& body) {
  has_joined = true;
  RankProgram program(name, body);
  const int code = run_launched(program, options, std::source_location());
  if (code != 0) throw ExitWith(code);
}

void report_as_rank(const char* name, const std::exception_ptr& error) {
  if (!is_launched() || has_joined) return;
  run_as_rank(name, {}, [&] { std::rethrow_exception(error); });
}

}  // namespace tessera::cli
