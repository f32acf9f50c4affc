// Several threads of a program execute at the same time.
#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <thread>

#include "run/arena_pool.h"
#include "run/test_graph.h"
#include "run/threads/admission.h"

namespace tessera::run {
namespace {

using namespace testing;

/// Calls `body` with the numbers from 0 to `count` - 1, each in its own thread.
template <typename Body>
void in_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// The largest number of threads that were in a scope at the same time.
class AtOnce {
 public:
  void enter() {
    const int now = ++now_;
    int most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) continue;
  }
  void leave() { --now_; }
  int now() const { return now_; }
  int most() const { return most_; }

 private:
  std::atomic<int> now_ = 0;
  std::atomic<int> most_ = 0;
};

class ConcurrencyTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { Engine::instance().set_num_threads(GetParam()); }
  void TearDown() override { Engine::instance().set_num_threads(1); }
};
INSTANTIATE_TEST_SUITE_P(Threads, ConcurrencyTest, ::testing::Values(1, 2, 3, 5));

/// A program of tasks that mix numbers in the arena. Tasks may have several parts.
struct Mixer {
  static constexpr std::uint32_t kPartsMost = 4;
  Graph graph;

  Mixer(unsigned seed, std::uint32_t num_tasks, bool communicates, AtOnce& parts) {
    std::minstd_rand random(seed);
    graph.executable.inputs = {{.tile_bytes = {4}}};
    graph.executable.outputs = {{.tile_bytes = {4}}};
    graph.executable.communicates = communicates;
    std::vector<std::uint32_t> places = {graph.input(0)};
    // Every task has its own memory, so that only the dependencies order the tasks.
    for (std::uint32_t id = 0; id < num_tasks; ++id) {
      places.push_back(graph.arena(64 * id, 4 * kPartsMost));
    }
    for (std::uint32_t id = 0; id < num_tasks; ++id) {
      std::set<std::uint32_t> after;
      for (std::uint32_t i = 0; i < 1 + random() % 3; ++i) {
        if (id > 0) after.insert(static_cast<std::uint32_t>(random() % id));
      }
      std::vector<std::uint32_t> read = {places[id + 1], places[0]};
      for (const std::uint32_t other : after) read.push_back(places[other + 1]);
      const int num_parts = static_cast<int>(random() % kPartsMost) + 1;
      graph.task(
          [&parts, num_parts, id](Buffers b, int part) {
            parts.enter();
            std::uint32_t sum = id + static_cast<std::uint32_t>(number(b[1])) * 3;
            for (std::size_t i = 2; i < b.size(); ++i) {
              sum = sum * 31 + static_cast<std::uint32_t>(number(b[i]));
            }
            if (sum % 7 == 0) std::this_thread::yield();
            for (int i = part; i < static_cast<int>(kPartsMost); i += num_parts) {
              number(b[0] + 4 * i) = static_cast<std::int32_t>(sum + static_cast<unsigned>(i));
            }
            parts.leave();
          },
          read, {after.begin(), after.end()}, num_parts);
      // A task that communicates has one part in each of these programs.
      graph.executable.tasks[id].communicates = communicates && num_parts == 1 && random() % 3 == 0;
    }
    std::vector<std::uint32_t> all(num_tasks);
    std::vector<std::uint32_t> read = {graph.output(0)};
    for (std::uint32_t id = 0; id < num_tasks; ++id) {
      all[id] = id;
      read.push_back(places[id + 1]);
    }
    graph.task(
        [](Buffers b, int) {
          std::uint32_t sum = 0;
          for (std::size_t i = 1; i < b.size(); ++i) {
            for (std::size_t k = 0; k < kPartsMost; ++k) {
              sum = sum * 17 + static_cast<std::uint32_t>(number(b[i] + 4 * k));
            }
          }
          number(b[0]) = static_cast<std::int32_t>(sum);
        },
        read, all);
  }
  std::int32_t run(std::int32_t input) const {
    return number(graph.run({{number_buffer(input)}})[0][0]);
  }
};

TEST_P(ConcurrencyTest, EightThreadsGetWhatOneGets) {
  AtOnce parts;
  std::vector<std::unique_ptr<Mixer>> mixers;
  std::vector<std::int32_t> wanted;
  for (unsigned i = 0; i < 12; ++i) {
    mixers.push_back(std::make_unique<Mixer>(i + 1, 1 + i * i, i % 3 == 2, parts));
    wanted.push_back(mixers.back()->run(static_cast<std::int32_t>(i)));
  }
  std::atomic<int> num_wrong = 0;
  in_threads(8, [&](int thread) {
    std::minstd_rand random(static_cast<unsigned>(thread) + 1);
    for (int repeat = 0; repeat < 60; ++repeat) {
      const std::size_t i = random() % mixers.size();
      if (mixers[i]->run(static_cast<std::int32_t>(i)) != wanted[i]) num_wrong += 1;
    }
  });
  EXPECT_EQ(num_wrong, 0);
  // In addition: the thread that communicates, and workers that are ending a part while a caller
  // takes their place.
  EXPECT_LE(parts.most(), 2 * GetParam());
}

/// Waits until `condition` holds. Returns false if that takes too long.
template <typename Condition>
bool wait_for(const Condition& condition, std::chrono::milliseconds most) {
  const auto limit = std::chrono::steady_clock::now() + most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_P(ConcurrencyTest, AsManyExecutionsOverlapAsThreadsCompute) {
  AtOnce inside;
  std::atomic<int> num_alone = 0;
  const int most = GetParam();
  in_threads(most + 3, [&](int i) {
    Graph graph;
    // The first executions wait for each other.
    graph.task([&](Buffers, int) {
      inside.enter();
      const auto all = [&] { return inside.most() >= most; };
      if (!wait_for(all, std::chrono::seconds(20))) num_alone += 1;
      inside.leave();
    });
    graph.executable.arena_bytes = 1000 * (i + 1);
    graph.run();
  });
  EXPECT_EQ(num_alone, 0);
  EXPECT_EQ(inside.most(), most);
}

TEST_P(ConcurrencyTest, ExecutionsThatCommunicateRunOneAfterTheOther) {
  AtOnce communicating, computing;
  std::atomic<bool> has_met = GetParam() == 1;
  in_threads(6, [&](int thread) {
    const bool communicates = thread < 4;
    for (int repeat = 0; repeat < 20; ++repeat) {
      Graph graph;
      graph.executable.communicates = communicates;
      AtOnce& own = communicates ? communicating : computing;
      graph.task([&, communicates](Buffers, int) {
        own.enter();
        wait_for(
            [&] {
              if (communicates && computing.now() > 0) has_met = true;
              return has_met.load();
            },
            std::chrono::milliseconds(200));
        own.leave();
      });
      graph.executable.tasks[0].communicates = communicates;
      graph.run();
    }
  });
  EXPECT_EQ(communicating.most(), 1);
  EXPECT_TRUE(has_met) << "no other execution ran beside one that communicates";
}

TEST_P(ConcurrencyTest, AFaultEndsItsExecutionOnly) {
  AtOnce parts;
  const Mixer good(3, 40, false, parts);
  const std::int32_t wanted = good.run(5);
  std::atomic<int> num_wrong = 0;
  std::atomic<int> num_faults = 0;
  in_threads(4, [&](int thread) {
    for (int repeat = 0; repeat < 40; ++repeat) {
      if (thread % 2 == 0) {
        if (good.run(5) != wanted) num_wrong += 1;
        continue;
      }
      Graph bad;
      bad.task(
          [](Buffers, int part) {
            if (part == 2) throw std::out_of_range("planned");
          },
          {}, {}, 5);
      try {
        bad.run();
      } catch (const std::out_of_range&) {
        num_faults += 1;
      }
    }
  });
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(num_faults, 80);
}

TEST(Concurrency, ChangesWaitForExecutionsAndExecutionsForChanges) {
  AtOnce parts;
  const Mixer mixer(9, 30, false, parts);
  const std::int32_t wanted = mixer.run(1);
  std::atomic<int> num_wrong = 0;
  in_threads(5, [&](int thread) {
    for (int repeat = 0; repeat < 40; ++repeat) {
      if (thread == 0) {
        Engine::instance().set_num_threads(1 + repeat % 4);
      } else if (thread == 1) {
        Engine::instance().start_trace();
        std::this_thread::yield();
        Engine::instance().stop_trace();
      } else if (mixer.run(1) != wanted) {
        num_wrong += 1;
      }
    }
  });
  EXPECT_EQ(num_wrong, 0);
  Engine::instance().set_num_threads(1);
}

TEST(Concurrency, TracesTellCallersApart) {
  Engine& engine = Engine::instance();
  engine.set_num_threads(2);
  engine.start_trace();
  AtOnce inside;
  std::vector<Graph> graphs(2);
  for (Graph& graph : graphs) {
    graph.task([&](Buffers, int) {
      inside.enter();
      wait_for([&] { return inside.most() >= 2; }, std::chrono::seconds(20));
    });
  }
  in_threads(2, [&](int i) { graphs[static_cast<std::size_t>(i)].run(); });
  const EngineTrace trace = engine.stop_trace();
  engine.set_num_threads(1);
  ASSERT_EQ(trace.executions.size(), 2U);
  std::set<int> callers;
  for (const ExecutionTrace& execution : trace.executions) {
    callers.insert(execution.caller);
    ASSERT_EQ(execution.parts.size(), 1U);
    EXPECT_LE(execution.start_ns, execution.parts[0].start_ns);
    EXPECT_LE(execution.parts[0].end_ns, execution.end_ns);
  }
  EXPECT_EQ(callers, (std::set<int>{0, PartTime::kMoreCallers}));
}

// --- arenas --------------------------------------------------------------------------------------

TEST(ArenaPool, OneExecutionAtATimeHasOneArena) {
  ArenaPool pool;
  for (const std::int64_t bytes : {100, 50, 400, 0, 300}) {
    const std::int64_t grows = pool.new_bytes(bytes);
    const std::int64_t before = pool.held_bytes();
    const ArenaPool::Lease arena(pool, bytes);
    EXPECT_EQ(pool.held_bytes() - before, grows);
    EXPECT_EQ(pool.held_bytes(), std::max<std::int64_t>(before, bytes));
  }
  EXPECT_EQ(pool.held_bytes(), 400);
}

TEST(ArenaPool, LargeArenasAreNotKeptTwice) {
  ArenaPool pool;
  { const ArenaPool::Lease large(pool, 1000); }
  {
    // A small execution holds the large arena when a large execution arrives.
    const ArenaPool::Lease small(pool, 10);
    EXPECT_EQ(pool.new_bytes(1000), 1000);
    const ArenaPool::Lease large(pool, 1000);
    EXPECT_EQ(pool.held_bytes(), 2000);
  }
  EXPECT_EQ(pool.held_bytes(), 1000);
  const ArenaPool::Lease large(pool, 1000);
  const ArenaPool::Lease small(pool, 10);
  EXPECT_EQ(pool.held_bytes(), 1010);
}

TEST(ArenaPool, HoldsNoMoreThanWasNeededAtOnce) {
  ArenaPool pool;
  std::minstd_rand random(11);
  std::vector<std::pair<std::int64_t, std::unique_ptr<ArenaPool::Lease>>> leases;
  std::int64_t needed = 0;
  std::int64_t most = 0;
  for (int step = 0; step < 2000; ++step) {
    if (leases.size() < 6 && random() % 2 == 0) {
      const auto bytes = static_cast<std::int64_t>(random() % 1000);
      const std::int64_t grows = pool.new_bytes(bytes);
      const std::int64_t before = pool.held_bytes();
      leases.emplace_back(bytes, std::make_unique<ArenaPool::Lease>(pool, bytes));
      EXPECT_EQ(std::max<std::int64_t>(0, pool.held_bytes() - before), grows);
      needed += bytes;
      most = std::max(most, needed);
      std::memset(leases.back().second->data(), step % 100, static_cast<std::size_t>(bytes));
    } else if (!leases.empty()) {
      const std::size_t i = random() % leases.size();
      needed -= leases[i].first;
      leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (leases.empty()) {
      EXPECT_LE(pool.held_bytes(), most);
    }
  }
}

// --- admission -----------------------------------------------------------------------------------

TEST(Admission, ServesInTheOrderOfArrival) {
  Admission admission(2);
  std::vector<int> order;
  std::mutex mutex;
  std::vector<std::thread> threads;
  {
    const Alone alone(admission);
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back([&, i] {
        if (i == 2) {
          const Alone change(admission);
          const std::lock_guard<std::mutex> lock(mutex);
          order.push_back(i);
        } else {
          const Admitted admitted(admission, i % 2 == 1);
          const std::lock_guard<std::mutex> lock(mutex);
          order.push_back(i);
        }
      });
      // The next thread has to arrive later.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(order.size(), 5U);
  EXPECT_EQ(order[2], 2) << "the change overtook an execution or was overtaken";
  EXPECT_EQ((std::set<int>{order[0], order[1]}), (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace tessera::run
