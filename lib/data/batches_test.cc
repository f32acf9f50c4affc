// Streams of batches: their contents, for any number of threads and from any starting position.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include <tessera/data.h>
#include <tessera/error.h>

namespace tessera::data {
namespace {

using Values = std::vector<std::int32_t>;

/// A source whose record i has the value i.
class Numbers final : public Source {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    ++reads;
    return {{.shape = {}, .values = Values{static_cast<std::int32_t>(record)}}};
  }
  mutable std::atomic<int> reads = 0;

 private:
  std::int64_t size_;
};

Dataset numbers(std::int64_t size) { return Dataset(std::make_shared<Numbers>(size)); }

/// The values of all remaining batches of a stream, one vector per batch.
std::vector<Values> rest(Batches& batches) {
  std::vector<Values> all;
  while (const auto batch = batches.next()) all.push_back(batch->at(0).to_vector<std::int32_t>());
  return all;
}

TEST(Batches, KeepOrDropTheRemainder) {
  Batches kept = numbers(7) | batch(3);
  EXPECT_EQ(kept.size(), 3);
  EXPECT_EQ(rest(kept), (std::vector<Values>{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_FALSE(kept.next());
  EXPECT_EQ(kept.size(), 3);
  Batches dropped = numbers(7) | batch(3, drop_remainder);
  EXPECT_EQ(dropped.size(), 2);
  EXPECT_EQ(rest(dropped), (std::vector<Values>{{0, 1, 2}, {3, 4, 5}}));
  Batches small = numbers(2) | batch(5);
  EXPECT_EQ(rest(small), (std::vector<Values>{{0, 1}}));
}

TEST(Batches, GoOnFromOneEpochToTheNext) {
  Batches batches = numbers(5) | repeat(2) | batch(4, drop_remainder);
  EXPECT_EQ(rest(batches), (std::vector<Values>{{0, 1, 2, 3}, {4, 0, 1, 2}}));
  Batches forever = numbers(3) | repeat() | batch(2);
  EXPECT_EQ(forever.size(), INT64_MAX);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(forever.next());
}

TEST(Batches, AreTheSameForAnyNumberOfThreads) {
  const auto draw = [](Record x, RecordRandom& random) {
    // Delay some records so that the threads finish in varying order.
    if (random.random() < 0.02) std::this_thread::sleep_for(std::chrono::microseconds(300));
    x.push_back({.shape = {2},
                 .values = std::vector<float>{static_cast<float>(random.random()),
                                              static_cast<float>(random.random())}});
    return x;
  };
  std::vector<std::vector<float>> first;
  for (const int workers : {0, 1, 2, 3, 8}) {
    Batches batches =
        numbers(100) | shuffle(12) | repeat(3) | map(draw) | batch(7, Remainder::keep, workers);
    std::vector<std::vector<float>> all;
    while (const auto batch = batches.next()) {
      const auto records = batch->at(0).to_vector<std::int32_t>();
      all.emplace_back(records.begin(), records.end());
      all.push_back(batch->at(1).to_vector<float>());
      EXPECT_EQ(batch->at(1).shape(), (Shape{std::ssize(records), 2}));
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << workers << " workers";
  }
  EXPECT_EQ(first.size(), 2 * 43U);
}

TEST(Batches, GoOnAtAnyPosition) {
  const auto make = [](int workers) {
    return numbers(23) | shuffle(5) | repeat(3) | batch(4, Remainder::keep, workers);
  };
  Batches whole_stream = make(1);
  const std::vector<Values> whole = rest(whole_stream);
  for (std::size_t done = 0; done <= whole.size(); ++done) {
    Batches before = make(2);
    for (std::size_t i = 0; i < done; ++i) before.next();
    const auto integers = before.position().integers();
    Batches after = make(static_cast<int>(done % 3));
    after.next();
    after.seek(Position::from_integers(integers));
    EXPECT_EQ(rest(after),
              std::vector<Values>(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));
  }
}

TEST(Batches, OfAnotherSizeGoOnAtTheNextRecord) {
  Batches before = numbers(10) | shuffle(1) | batch(3);
  before.next();
  Batches after = numbers(10) | shuffle(1) | batch(2);
  after.seek(before.position());
  const Order order{.num_records = 10, .is_shuffled = true, .seed = 1};
  EXPECT_EQ(after.next()->at(0).to_vector<std::int32_t>(),
            (Values{static_cast<std::int32_t>(order.record(3)),
                    static_cast<std::int32_t>(order.record(4))}));
}

TEST(Batches, ThatContinueAnywhereDropTheRemainder) {
  Batches batches = numbers(12) | batch(4, drop_remainder);
  Position position = batches.position();
  position.place = 2;
  batches.seek(position);
  EXPECT_EQ(batches.size(), 2);
  EXPECT_EQ(rest(batches), (std::vector<Values>{{2, 3, 4, 5}, {6, 7, 8, 9}}));
  EXPECT_EQ(batches.size(), 2);
}

TEST(Batches, AreMadeAheadButNotMoreThanTwo) {
  const auto source = std::make_shared<Numbers>(1000);
  Batches batches = Dataset(source) | batch(10);
  const auto wait_for = [&](int reads) {
    for (int i = 0; i < 2000 && source->reads < reads; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  batches.next();
  wait_for(40);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source->reads, 40) << "one given, one that is next, two ahead";
}

TEST(Batches, PassOnTheFirstErrorOfTheStream) {
  const auto fail_late = [](Record x) {
    const std::int32_t number = std::get<Values>(x[0].values)[0];
    if (number >= 13) throw std::runtime_error("record " + std::to_string(number));
    return x;
  };
  for (const int workers : {0, 1, 4}) {
    Batches batches = numbers(40) | map(fail_late) | batch(20, Remainder::keep, workers);
    Batches later = numbers(40) | map(fail_late) | batch(5, Remainder::keep, workers);
    EXPECT_TRUE(later.next());
    EXPECT_TRUE(later.next());
    for (int i = 0; i < 3; ++i) {
      for (Batches* each : {&batches, &later}) {
        try {
          each->next();
          ADD_FAILURE() << "no error";
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "record 13");
        }
      }
    }
    // The position after an error is that of the bad batch, so the batches before it are not lost.
    EXPECT_EQ(later.position().place, 10);
  }
}

TEST(Batches, EndAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    Batches batches = numbers(1000) | repeat() | batch(64, Remainder::keep, i % 5);
    for (int j = 0; j < i % 4; ++j) batches.next();
    Batches moved = std::move(batches);
    moved.next();
    batches = numbers(3) | batch(2);
    EXPECT_TRUE(batches.next());
  }
}

TEST(Batches, OfSequences) {
  Batches batches = sequences(Tokens({1, 2, 3, 4, 5, 6}, 2)) | batch(2);
  const auto first = batches.next();
  EXPECT_EQ(first->at(0).shape(), (Shape{2, 2}));
  EXPECT_EQ(first->at(0).to_vector<std::int32_t>(), (Values{1, 2, 3, 4}));
}

}  // namespace
}  // namespace tessera::data
