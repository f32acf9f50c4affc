// Kills a process that is stopped while it leaves the others, and a launcher that does not end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace tessera::run {

/// A small process that watches this one. The other ranks watch this process as long as they
/// exchange messages. After that nobody else would notice a SIGSTOP, and the launcher would wait
/// for ever.
///
/// mpirun of Open MPI may itself wait for ever, for a lock in memory that it has freed (PMIx 4.2),
/// if processes end during MPI_Init. So if this process ends without begin(), mpirun is killed if
/// it keeps running although none of its processes is left.
class EndWatch {
 public:
  /// After this time, a process is killed. Before that, the watching process calls `report`.
  struct Limit {
    std::chrono::milliseconds time;
    std::function<void()> report;
  };

  /// Call this while the process has few threads: it forks. `stopped` is for this process,
  /// `idle_launcher` for mpirun, to whose standard error it reports. Without pidfds nothing is
  /// watched.
  EndWatch(const Limit& stopped, const Limit& idle_launcher);
  /// Ends the other process, unless begin() was called.
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// From now on this process is killed if it stands still in the state "stopped".
  void begin();

 private:
  void say(std::uint64_t end) const;

  int word_ = -1;
  bool has_begun_ = false;
};

}  // namespace tessera::run
