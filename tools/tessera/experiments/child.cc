#include "child.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/error.h>

namespace tessera::cli {

int run_again(const std::vector<std::string>& launcher, const std::vector<std::string>& words,
              const std::string& output) {
  // A launcher may start the command from another process, where /proc/self names that process.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> texts = launcher;
  texts.push_back(self);
  texts.insert(texts.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  arguments.reserve(texts.size() + 1);
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw RuntimeFault("cannot start " + texts[0] + ", whose output goes to " + output + ": " +
                       std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      throw RuntimeFault("cannot wait for a process: " + std::string(std::strerror(errno)));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tessera::cli
