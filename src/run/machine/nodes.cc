#include "run/machine/nodes.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <numeric>

#include "run/machine/cores.h"

namespace tessera::run {

namespace {

/// Reads a list such as `0-3,8`; stops at text of another form.
std::vector<int> cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc()) break;
    int last = first;
    if (next < end && *next == '-') {
      const auto range = std::from_chars(next + 1, end, last);
      if (range.ec != std::errc()) break;
      next = range.ptr;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = next < end && *next == ',' ? next + 1 : end;
  }
  return cpus;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<NodeCpus> usable_nodes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node/";
  const std::vector<int> allowed = allowed_cpus();
  std::vector<NodeCpus> nodes;
  for (const int node : cpu_list(text_of(folder + "online"))) {
    NodeCpus usable;
    for (const int cpu : cpu_list(text_of(folder + "node" + std::to_string(node) + "/cpulist"))) {
      if (std::binary_search(allowed.begin(), allowed.end(), cpu)) usable.push_back(cpu);
    }
    if (!usable.empty()) nodes.push_back(std::move(usable));
  }
  return nodes;
}

std::vector<std::size_t> nodes_of_threads(const std::vector<NodeCpus>& nodes, int num_threads) {
  std::vector<std::size_t> of_threads;
  if (nodes.empty()) return of_threads;
  while (std::ssize(of_threads) < num_threads) {
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      of_threads.insert(of_threads.end(), nodes[node].size(), node);
    }
  }
  of_threads.resize(static_cast<std::size_t>(num_threads));
  return of_threads;
}

int node_of_this_thread(const std::vector<NodeCpus>& nodes) {
  const int cpu = current_cpu();
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (std::binary_search(nodes[node].begin(), nodes[node].end(), cpu))
      return static_cast<int>(node);
  }
  return 0;
}

void bind_this_thread(const NodeCpus& cpus) { run_on(cpus); }

}  // namespace tessera::run
