// The processes of a run, and which of them holds the devices of a mesh.
#pragma once

#include <cstdint>

#include <tessera/mesh.h>

namespace tessera::run {

class Transport;

/// Processes are numbered by rank. They may form groups of equally many consecutive ranks, as for a
/// pipeline. The devices of a mesh are divided among the processes of each group, or among all:
/// each process owns a block of consecutive ids (mesh/blocks.h).
struct World {
  /// The transport to all processes; nullptr: this process computes for all devices.
  Transport* transport = nullptr;
  int num_groups = 1;
  /// If there are several groups: the number of devices of each. A mesh with this many devices is
  /// the mesh of a group; any other mesh is that of all groups together.
  std::int64_t devices_per_group = 0;

  int rank() const;
  int size() const;
  int processes_per_group() const { return size() / num_groups; }
  /// The group of a process.
  int group_of(int rank) const { return rank / processes_per_group(); }
  int group() const { return group_of(rank()); }
  /// How many processes share one copy of the values on the mesh.
  int processes_of(const Mesh& mesh) const;
  /// Whether these processes can own equally many devices of the mesh.
  bool can_hold(const Mesh& mesh) const;
};

/// The processes to which this thread belongs: those of the run, unless it computes in its own
/// world.
const World& world();
/// Sets the processes of the run. Call this before anything is computed.
void set_world(const World& world);
/// Makes `own` the world of this thread until the next call; nullptr: that of the run.
void set_world_of_thread(const World* own);

}  // namespace tessera::run
