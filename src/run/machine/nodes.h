// The NUMA nodes of the machine: groups of cores with memory of their own.
#pragma once

#include <string>
#include <vector>

namespace tessera::run {

/// The logical CPUs of a node that the calling thread may use, ascending.
using NodeCpus = std::vector<int>;

/// The nodes with at least one such CPU, in the kernel's order. Empty if the kernel does not say.
/// `root` is prepended to the kernel's paths, for tests.
std::vector<NodeCpus> usable_nodes(const std::string& root = "");

/// The node of each of `num_threads` threads: the first nodes are filled first, so that few threads
/// share the memory of one node. If there are more threads than CPUs, they are dealt out evenly.
std::vector<std::size_t> nodes_of_threads(const std::vector<NodeCpus>& nodes, int num_threads);

/// The index of the node with the CPU on which the calling thread runs now; 0 if none has it.
int node_of_this_thread(const std::vector<NodeCpus>& nodes);

/// Lets the calling thread run on these CPUs only. Does nothing if the kernel refuses.
void bind_this_thread(const NodeCpus& cpus);

}  // namespace tessera::run
