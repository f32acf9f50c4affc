#include "compile/host/exchange/summands.h"

#include <algorithm>

#include "base/leaf_tree.h"

namespace tessera::compile::host {

std::vector<Subtree> Summands::subtrees() const {
  const auto count = std::ssize(tiles);
  std::vector<Subtree> subtrees;
  for (std::int64_t first = 0, last = 0; first < count; first = last) {
    const std::int64_t process = processes[static_cast<std::size_t>(first)];
    while (last < count && processes[static_cast<std::size_t>(last)] == process) ++last;
    std::int64_t at = first;
    for (const std::int64_t size : subtrees_within(first, last, count)) {
      subtrees.push_back({process, static_cast<std::size_t>(at), size});
      at += size;
    }
  }
  return subtrees;
}

std::vector<std::int64_t> Summands::members() const {
  std::vector<std::int64_t> members;
  for (const std::int64_t process : processes) {
    if (std::find(members.begin(), members.end(), process) == members.end())
      members.push_back(process);
  }
  return members;
}

}  // namespace tessera::compile::host
