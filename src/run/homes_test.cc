// Parts go to threads of the node that ran the same parts of earlier tasks.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "run/test_graph.h"

namespace tessera::run {
namespace {

using namespace testing;

constexpr int kThreeNodes[] = {1, 2, 3};  // one thread each

Graph one_task(
    int parts, Body body = [](Buffers, int) {}) {
  Graph graph;
  graph.task(std::move(body), {}, {}, parts);
  return graph;
}

std::vector<int> all_claimed(Frame& frame, int node) {
  std::vector<int> claimed;
  for (int part = 0; part != Frame::kNoPart;) {
    part = frame.claim_part(0, node);
    if (part != Frame::kNoPart) claimed.push_back(part);
  }
  return claimed;
}

TEST(Parts, OfTheNodeGoFirst) {
  const Graph graph = one_task(10);
  Frame frame(graph.executable, Binding(), nullptr, kThreeNodes);
  frame.start();
  EXPECT_EQ(frame.num_unclaimed(0), 10);
  EXPECT_EQ(frame.claim_part(0, 2), 6);
  EXPECT_EQ(frame.num_unclaimed(0), 9);
  EXPECT_EQ(all_claimed(frame, 1), (std::vector<int>{3, 4, 5, 7, 8, 9, 0, 1, 2}));
  EXPECT_EQ(frame.num_unclaimed(0), 0);
  frame.arm(0);
  EXPECT_EQ(frame.num_unclaimed(0), 10);
  EXPECT_EQ(frame.claim_part(0, 0), 0);
  frame.stop_parts(0);
  EXPECT_EQ(frame.claim_part(0, 1), Frame::kNoPart);
}

TEST(Parts, AreDealtOutByTheNumberOfThreads) {
  const Graph graph = one_task(12);
  constexpr int kUneven[] = {4, 5, 6};  // four threads, then one, then one
  Frame frame(graph.executable, Binding(), nullptr, kUneven);
  frame.start();
  EXPECT_EQ(frame.claim_part(0, 0), 0);
  EXPECT_EQ(frame.claim_part(0, 1), 8);
  EXPECT_EQ(frame.claim_part(0, 2), 10);
}

TEST(Parts, FewerThanNodes) {
  const Graph graph = one_task(2);
  for (int node = 0; node < 3; ++node) {
    Frame frame(graph.executable, Binding(), nullptr, kThreeNodes);
    frame.start();
    EXPECT_EQ(all_claimed(frame, node).size(), 2U);
  }
}

TEST(Parts, AreClaimedOnceByThreadsOfSeveralNodes) {
  constexpr int kParts = 10007;
  const Graph graph = one_task(kParts);
  Frame frame(graph.executable, Binding(), nullptr, kThreeNodes);
  frame.start();
  std::vector<std::atomic<int>> times(kParts);
  std::vector<std::thread> threads;
  for (int node : {0, 1, 2, 1}) {
    threads.emplace_back([&, node] {
      for (const int part : all_claimed(frame, node)) times[static_cast<std::size_t>(part)] += 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : times) ASSERT_EQ(count, 1);
}

/// The parts that each thread has run, in the order in which it ran them.
class Notes {
 public:
  void add(int task, int part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& notes = std::this_thread::get_id() == caller ? of_caller_ : of_worker_;
    notes[static_cast<std::size_t>(task)].push_back(part);
  }
  std::vector<int> of_caller(int task) const { return of_caller_[static_cast<std::size_t>(task)]; }
  std::vector<int> of_worker(int task) const { return of_worker_[static_cast<std::size_t>(task)]; }

  std::thread::id caller;

 private:
  std::mutex mutex_;
  std::vector<std::vector<int>> of_caller_{2}, of_worker_{2};
};

/// Two tasks. A thread ends its first part of a task only when the other thread has begun one too.
Graph two_tasks(Notes& notes, std::vector<std::atomic<int>>& arrived) {
  Graph graph;
  std::vector<std::uint32_t> last;
  for (int task = 0; task < 2; ++task) {
    auto body = [&notes, &arrived, task](Buffers, int part) {
      notes.add(task, part);
      std::atomic<int>& here = arrived[static_cast<std::size_t>(task)];
      here += 1;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (here < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    };
    last = {graph.task(body, {}, last, 8)};
  }
  return graph;
}

TEST(Homes, EachNodeBeginsWithItsParts) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  const std::vector<NodeCpus> nodes = two_nodes();
  Engine::instance().set_nodes(nodes);
  Engine::instance().set_num_threads(2);
  for (const std::size_t node : {std::size_t{0}, std::size_t{1}}) {
    Notes notes;
    std::vector<std::atomic<int>> arrived(2);
    const Graph graph = two_tasks(notes, arrived);
    std::thread caller([&] {
      bind_this_thread(nodes[node]);
      notes.caller = std::this_thread::get_id();
      graph.run();
    });
    caller.join();
    for (int task = 0; task < 2; ++task) {
      const std::vector<int> mine = notes.of_caller(task), others = notes.of_worker(task);
      ASSERT_EQ(mine.size() + others.size(), 8U);
      ASSERT_FALSE(mine.empty());
      ASSERT_FALSE(others.empty());
      EXPECT_EQ(mine.front(), node == 0 ? 0 : 4 + (others.front() == 4 ? 1 : 0));
      EXPECT_GE(others.front(), 4);  // the worker is bound to the second node
    }
  }
  Engine::instance().set_nodes(std::nullopt);
}

TEST(Homes, ThreadsThatAreNotBoundTakePartsInOrder) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  Engine::instance().set_nodes(two_nodes());
  Engine::instance().set_binding(false);
  Engine::instance().set_num_threads(2);
  Notes notes;
  notes.caller = std::this_thread::get_id();
  std::vector<std::atomic<int>> arrived(2);
  two_tasks(notes, arrived).run();
  for (int task = 0; task < 2; ++task) {
    ASSERT_FALSE(notes.of_caller(task).empty());
    ASSERT_FALSE(notes.of_worker(task).empty());
    EXPECT_EQ(notes.of_caller(task).front() + notes.of_worker(task).front(), 1);
  }
  Engine::instance().set_binding(true);
  Engine::instance().set_nodes(std::nullopt);
}

}  // namespace
}  // namespace tessera::run
