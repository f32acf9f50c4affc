// tessera_fuzz_commands [--seed S] [--cases N] [--seconds T]
//
// Command lines of the real flags with good and bad values, and mutated IR programs. Each must end
// with exit code 0, or with 1 and one message that names its cure. Exit code 1: something else
// happened, or all command lines had the same outcome.
#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <unistd.h>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/run_cases.h"
#include "tests/fuzz/spawn.h"

namespace {

using tessera::fuzz::Random;
using tessera::fuzz::SpawnResult;
using Words = std::vector<std::string>;

constexpr int kCasesToJudge = 200;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 120;

/// A flag as --help shows it.
struct Flag {
  std::string name;
  bool takes_value;
};

struct Tool {
  std::string name, path;
  Words command;  // words before the flags
  std::vector<Flag> flags;
};

struct CommandCase {
  const Tool* tool = nullptr;
  Words words;
  std::string stdin_text;
};

/// A folder for what the commands write. It is removed at the end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("tessera_fuzz_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Lines of --help such as `  --mesh TEXT=data=8    mesh axes`.
std::vector<Flag> flags_of(const std::string& help) {
  std::vector<Flag> flags;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  --")) continue;
    const std::size_t end = std::min(line.find(' ', 2), line.size());
    const std::string after = line.substr(end, 5);
    const bool takes_value =
        after.starts_with(" TEXT") || after.starts_with(" INT") || after.starts_with(" FLOA");
    flags.push_back({line.substr(2, end - 2), takes_value});
  }
  return flags;
}

Tool make_tool(const std::string& name, const std::string& path, Words command,
               const Folder& folder) {
  Words help = command;
  help.emplace_back("--help");
  const SpawnResult result = tessera::fuzz::spawn(path, help, {.folder = folder.path()});
  return {name, path, std::move(command), flags_of(result.stdout_text)};
}

/// Sizes are small or invalid, because a run that is accepted must not take long.
const Words kSizes = {"1", "2", "4", "8"};
const Words kBadSizes = {
    "0",   "-1", "1.5", "abc", "",  " ",      "1e9", "0x10", "99999999999999999999",
    "nan", "+8", "8 ",  "--",  "-", "1000001"};
const Words kWords = {"none",
                      "data=2",
                      "data=2,model=2",
                      "data=8",
                      "model=2",
                      "data=0",
                      "data=2,",
                      "data=2,data=2",
                      "=2",
                      "data=99999999",
                      "replicated",
                      "fsdp",
                      "host",
                      "reference",
                      "exact",
                      "f32",
                      "auto",
                      "off",
                      "sharding",
                      "ir",
                      "collectives",
                      "memory",
                      "traced",
                      "partitioned",
                      "0",
                      "1",
                      "0,1",
                      "wrt=0",
                      "wrt=0,1",
                      "wrt=",
                      "wrt=9",
                      ",",
                      "0,,1",
                      "simplify",
                      "partition",
                      "differentiate",
                      "split",
                      "combine_collectives",
                      "recompute_cheap_values",
                      "sink_into_loops",
                      "remove_dead_code",
                      "split,split",
                      "remove_dead_code,split",
                      "merge_common_subexpressions",
                      "",
                      "%s%n",
                      "\xff",
                      "a\nb",
                      "-",
                      "1e-3",
                      "0.5",
                      "stream.in",
                      "no_such_file"};

bool is_file_flag(const std::string& name) {
  return name == "--json" || name == "--dump" || name == "--text";
}

bool is_size_flag(const Tool& tool, const std::string& name) {
  static const Words others = {"--mesh",     "--params", "--numerics", "--dtype", "--engine",
                               "--progress", "--what",   "--stage",    "--lr"};
  return tool.name == "tessera" && std::find(others.begin(), others.end(), name) == others.end() &&
         !is_file_flag(name);
}

std::string value_of(const Tool& tool, const std::string& flag, Random& random) {
  // Values become names of files in the folder, never elsewhere.
  if (is_file_flag(flag)) return random.choose(Words{"a", "b.json", "stream.in", "no_such_file"});
  if (is_size_flag(tool, flag)) return random.choose(random.chance(75) ? kSizes : kBadSizes);
  std::string value = random.choose(kWords);
  if (random.chance(10)) value = tessera::fuzz::mutated(value, random.choose(kWords), random);
  std::erase(value, '/');
  std::erase(value, '\0');
  return value;
}

/// A misspelt flag. It has no `=`, so that it carries no value.
std::string misspelt(const std::string& flag, Random& random) {
  std::string name = tessera::fuzz::mutated(flag, "--no", random);
  std::erase_if(name, [](char c) { return c == '/' || c == '\0' || c == '='; });
  return name;
}

void add_flag(const Tool& tool, Random& random, Words& words) {
  const Flag& flag = random.choose(tool.flags);
  const std::string name = random.chance(95) ? flag.name : misspelt(flag.name, random);
  const bool gives_value = random.chance(5) ? !flag.takes_value : flag.takes_value;
  if (!gives_value) {
    words.push_back(name);
  } else if (random.chance(20)) {
    words.push_back(name + "=" + value_of(tool, flag.name, random));
  } else {
    words.push_back(name);
    words.push_back(value_of(tool, flag.name, random));
  }
}

/// Adds flags for the smallest training run, except those that are already given.
void keep_small(const Tool& tool, Words& words) {
  if (tool.command.empty() || tool.name != "tessera") return;
  const std::vector<std::pair<std::string, std::string>> small = {
      {"--steps", "1"},   {"--layers", "1"}, {"--d-model", "4"}, {"--heads", "1"},
      {"--d-ff", "4"},    {"--seq", "2"},    {"--vocab", "8"},   {"--batch", "8"},
      {"--threads", "1"}, {"--mesh", "none"}};
  for (const auto& [name, value] : small) {
    const bool is_given = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word == name || word.starts_with(name + "=");
    });
    if (is_given) continue;
    words.push_back(name);
    words.push_back(value);
  }
}

CommandCase make_case(std::uint64_t seed, const std::vector<Tool>& tools, const Words& texts) {
  Random random(seed);
  CommandCase c;
  c.tool = &random.choose(tools);
  c.words = c.tool->command;
  if (!c.words.empty() && random.chance(3)) {
    c.words[random.pick(c.words.size())] = random.choose(Words{"trian", "bert", "", "--", "show"});
    c.words.emplace_back("--help-me");  // never accepted, whatever the words before it mean
  }
  for (std::int64_t n = random.between(0, 4); n > 0; --n) add_flag(*c.tool, random, c.words);
  if (random.chance(3)) c.words.push_back(random.choose(Words{"-", "x", "--", "stream.in"}));
  keep_small(*c.tool, c.words);
  if (c.tool->name == "tessera-opt") {
    c.stdin_text = random.choose(texts);
    for (std::int64_t n = random.between(-2, 3); n > 0; --n) {
      c.stdin_text = tessera::fuzz::mutated(c.stdin_text, random.choose(texts), random);
    }
  }
  return c;
}

std::size_t count_lines(const std::string& text, const std::string& start) {
  std::size_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) ++count;
  return count;
}

/// What is wrong with how the command ended; empty if nothing is.
std::string fault_of(const Tool& tool, const SpawnResult& result) {
  if (result.signal == SIGALRM) return "hangs";
  if (result.signal != 0) return fmt::format("ends by signal {}", result.signal);
  const std::size_t messages = count_lines(result.stderr_text, tool.name + ": ") -
                               count_lines(result.stderr_text, tool.name + ": note: ");
  if (result.exit_code == 0) return messages == 0 ? "" : "ends with 0 and a message";
  if (result.exit_code != 1) return fmt::format("ends with {}", result.exit_code);
  if (messages != 1) return fmt::format("ends with 1 and {} messages", messages);
  if (count_lines(result.stderr_text, "  cure:") != 1) return "gives a message without a cure";
  return {};
}

std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '=' || c == ',' ||
           c == '_' || c == '.';
  });
  return is_plain ? word : "'" + word + "'";
}

void report(std::uint64_t seed, const CommandCase& c, const SpawnResult& result,
            const std::string& fault) {
  std::string line = c.tool->path;
  for (const std::string& word : c.words) line += " " + quoted(word);
  fmt::print("FAILED, seed {}: the command {}\n{}\n", seed, fault, line);
  fmt::print("--- standard error\n{}", result.stderr_text);
  if (!c.stdin_text.empty()) fmt::print("--- standard input\n{}\n---\n", c.stdin_text);
}

int run(const tessera::fuzz::RunOptions& options, const char* program) {
  const Folder folder;
  const std::vector<Tool> tools = {make_tool("tessera", TESSERA_COMMAND, {"train", "lm"}, folder),
                                   make_tool("tessera", TESSERA_COMMAND, {"show", "lm"}, folder),
                                   make_tool("tessera-opt", TESSERA_OPT_COMMAND, {}, folder),
                                   make_tool("tessera-opt", TESSERA_OPT_COMMAND, {}, folder)};
  for (const Tool& tool : tools) {
    if (tool.flags.size() >= 10) continue;
    fmt::print("FAILED: {} --help shows no flags\n", tool.path);
    return 1;
  }
  const Words texts = tessera::fuzz::ir_texts(40);
  int accepted = 0;
  int rejected = 0;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase, [&](std::uint64_t seed) {
        const CommandCase c = make_case(seed, tools, texts);
        const SpawnResult result = tessera::fuzz::spawn(
            c.tool->path, c.words, {.stdin_text = c.stdin_text, .folder = folder.path()});
        (result.exit_code == 0 ? accepted : rejected) += 1;
        const std::string fault = fault_of(*c.tool, result);
        if (!fault.empty()) report(seed, c, result, fault);
        return fault.empty();
      });
  fmt::print("command lines: {} accepted, {} rejected\n", accepted, rejected);
  const int total = accepted + rejected;
  const bool is_covered = total < kCasesToJudge || (accepted > total / 20 && rejected > total / 20);
  if (!is_covered) fmt::print("FAILED: nearly all command lines end alike\n");
  return is_good && is_covered ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz_commands";
  return run(
      tessera::fuzz::read_options(program, argc, argv, {.cases = 1'000'000'000, .seconds = 30}),
      program);
}
