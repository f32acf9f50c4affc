#include "tests/fuzz/spawn.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cases/case_file.h"
#include "tests/fuzz/run_cases.h"

namespace tessera::fuzz {

namespace {

namespace fs = std::filesystem;

void redirect(int descriptor, const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const SpawnOptions& options, const fs::path& base) {
  redirect(STDIN_FILENO, base.string() + ".in", O_RDONLY);
  redirect(STDOUT_FILENO, base.string() + ".out", O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, base.string() + ".err", O_WRONLY | O_CREAT | O_TRUNC);
  if (chdir(options.folder.c_str()) != 0) _exit(127);
  limit_memory(options.memory);
  for (const std::string& variable : options.environment) {
    if (putenv(const_cast<char*>(variable.c_str())) != 0) _exit(127);
  }
  std::signal(SIGALRM, SIG_DFL);
  alarm(options.seconds);
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  _exit(127);
}

}  // namespace

SpawnResult spawn(const std::string& program, const std::vector<std::string>& arguments,
                  const SpawnOptions& options) {
  const fs::path base = options.folder / "stream";
  std::ofstream(base.string() + ".in", std::ios::binary) << options.stdin_text;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("spawn: fork fails");
  if (child == 0) become(program, arguments, options, base);
  int status = 0;
  waitpid(child, &status, 0);
  SpawnResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.stdout_text = testing::contents(base.string() + ".out");
  result.stderr_text = testing::contents(base.string() + ".err");
  return result;
}

}  // namespace tessera::fuzz
