// Measures images per second of the vision transformer's training data: flipped, cropped and
// normalised.
#include <array>
#include <benchmark/benchmark.h>
#include <memory>
#include <vector>

#include <tessera/data.h>

namespace {

using namespace tessera;

/// As many images of the same size as CIFAR-10's training data, generated in memory.
class Images final : public data::Source {
 public:
  Images() : pixels_(kCount * kBytes) {
    for (std::size_t i = 0; i < pixels_.size(); ++i) {
      pixels_[i] = static_cast<std::uint8_t>(i * i % 251);
    }
  }
  std::int64_t size() const override { return kCount; }
  data::Record read(std::int64_t record, data::RecordRandom& /*random*/) const override {
    const auto begin = pixels_.begin() + record * kBytes;
    return {{.shape = {32, 32, 3}, .values = std::vector<std::uint8_t>(begin, begin + kBytes)},
            {.shape = {}, .values = std::vector<std::int32_t>{3}}};
  }

 private:
  static constexpr std::int64_t kCount = 45000;
  static constexpr std::int64_t kBytes = 3072;
  std::vector<std::uint8_t> pixels_;
};

data::Record flip_and_crop(data::Record x, data::RecordRandom& random) {
  constexpr std::array kMeans = {0.4914, 0.4822, 0.4465};
  constexpr std::array kDeviations = {0.2023, 0.1994, 0.2010};
  x[0] = data::random_horizontal_flip(std::move(x[0]), random);
  x[0] = data::random_resized_crop(x[0], random, {.scale = {0.9, 1.0}, .ratio = {0.9, 1.1}});
  x[0] = data::normalised(x[0], kMeans, kDeviations);
  return x;
}

data::Dataset augmented() {
  return data::Dataset(std::make_shared<Images>()) | data::shuffle(12) | data::repeat() |
         data::map(flip_and_crop);
}

void one_record(benchmark::State& state) {
  const data::Dataset dataset = augmented();
  std::int64_t place = 0;
  for (auto _ : state) benchmark::DoNotOptimize(dataset.read(place++));
  state.SetItemsProcessed(place);
}
BENCHMARK(one_record);

/// Without workers: reads the records and makes the arrays on the calling thread.
void batch_of_128(benchmark::State& state) {
  data::Batches batches = augmented() | data::batch(128, data::drop_remainder, 0);
  for (auto _ : state) benchmark::DoNotOptimize(batches.next());
  state.SetItemsProcessed(state.iterations() * 128);
}
BENCHMARK(batch_of_128);

}  // namespace

BENCHMARK_MAIN();
