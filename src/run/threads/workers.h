// The threads that run executions.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "run/execution.h"
#include "run/machine/nodes.h"
#include "run/measurements.h"
#include "run/threads/idle_threads.h"

namespace tessera::run {

/// What an execution knows about the nodes.
struct CallerHome {
  std::span<const int> threads_up_to;  // see Frame::Frame()
  int node = 0;                        // of the caller, which is not bound
};

/// An execution in flight, on the stack of its caller.
struct Run {
  Execution& execution;
  int node;        // of the caller
  int number = 0;  // of the caller, for traces
  IdleThreads::Caller caller = {};
  ExecutionNotes notes = {};
  std::atomic<int> num_users = 0;  // threads besides the caller that use it
};

/// Executions in flight share the workers. Each brings the thread that called Engine::execute(),
/// which computes only for this execution. For each caller except one, a worker stops computing as
/// soon as its current part has ended, so that `num_threads` threads compute.
///
/// Between the tasks of an execution, threads do not lock the mutex that they all share. It guards
/// the list of executions, which threads read when they look for another one.
class Workers {
 public:
  explicit Workers(Measurements& measured);
  ~Workers() { stop(); }

  /// Call these four while nothing runs. All but start() stop the threads.
  void set_num_threads(int count);
  void set_binding(bool is_on);
  void set_nodes(std::optional<std::vector<NodeCpus>> nodes);
  void stop();

  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }
  /// For executions: one per thread that has a core.
  int num_lists() const { return std::min(num_threads(), num_cores_); }
  /// Starts the threads that the executable needs and that do not run yet. If the machine cannot
  /// start another thread, the existing ones do the work.
  CallerHome start(const Executable& executable);
  /// Gives the caller a number, and lets workers see the execution.
  void add(Run& run, const Executable& executable);
  /// Returns when the execution is over and no other thread uses it any more.
  void run(Run& run) noexcept;

 private:
  /// Where the threads compute. There is one node if they are not bound.
  struct Homes {
    std::vector<NodeCpus> nodes;           // empty: the threads are not bound
    std::vector<std::size_t> node_of;      // per thread
    std::vector<int> threads_up_to = {1};  // per node with threads
  };
  /// A thread that computes.
  struct Self {
    int number;        // for traces
    std::size_t list;  // the number of its own list in an execution
    int node;
  };

  Homes homes_of_threads() const;
  void start_threads(bool communicates);
  int free_number() const;
  void work_for_all(const Self& self);
  void communicate();
  Run* join();
  static void leave(Run& run) { run.num_users.fetch_sub(1, std::memory_order_release); }
  void compute(Run& run, const Self& self);
  void run_parts(Run& run, const TakenPart& taken, const Self& self);
  template <typename Work>
  void run_kernel(Run& run, TaskRef ref, const Self& self, const Work& work);
  bool may_communicate(const Run& run) const;
  void call_communicator(const Run& run);
  void find_helpers(Run& run, int own);

  Measurements& measured_;
  const int num_cores_;
  std::atomic<int> num_threads_;
  bool binds_ = true;
  std::optional<std::vector<NodeCpus>> nodes_;  // instead of those of the machine
  std::optional<Homes> homes_;                  // of the threads that have been started

  IdleThreads idle_;
  std::mutex mutex_;                       // for the threads and for runs_
  std::atomic<bool> are_started_ = false;  // all workers
  std::vector<std::thread> workers_;
  // Runs the tasks that communicate, so that the others go on computing while it waits. Starts with
  // the first executable that has such tasks.
  std::thread communicator_;
  std::atomic<bool> has_communicator_ = false;
  std::atomic<bool> communicator_sleeps_ = false;
  std::condition_variable wake_communicator_;
  std::vector<Run*> runs_;  // in flight
  std::atomic<std::size_t> num_runs_ = 0;
  std::atomic<std::uint64_t> changes_of_runs_ = 0;
};

}  // namespace tessera::run
