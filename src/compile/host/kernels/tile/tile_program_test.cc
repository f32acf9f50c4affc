#include "compile/host/kernels/tile/tile_program.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "base/sanitized.h"
#include "base/threefry.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using Strides = std::vector<std::int64_t>;
using Buffer = std::vector<std::byte>;

// --- the definition: element by element, in plain order ------------------------------------------

std::int64_t place(std::int64_t offset, const Strides& strides, const Strides& index) {
  return std::inner_product(strides.begin(), strides.end(), index.begin(), offset);
}

std::uint64_t read(const Buffer& buffer, std::int64_t element, DType dtype) {
  std::uint64_t word = 0;
  const std::size_t size = size_bytes(dtype);
  std::memcpy(&word, buffer.data() + at(element) * size, size);
  return word;
}

template <class T>
std::uint64_t word_of(T value) {
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}

std::uint64_t number(std::int64_t value, DType dtype) {
  if (dtype == DType::f32) return word_of(static_cast<float>(value));
  if (dtype == DType::f64) return word_of(static_cast<double>(value));
  if (dtype == DType::i64) return word_of(value);
  return dtype == DType::boolean ? word_of(static_cast<std::uint8_t>(value != 0))
                                 : word_of(static_cast<std::uint32_t>(value));
}

std::uint64_t number(double value, DType dtype) {
  if (dtype == DType::f32) return word_of(static_cast<float>(value));
  if (dtype == DType::f64) return word_of(value);
  const bool is_too_low = dtype == DType::u32 && value < 0;  // saturates
  return number(is_too_low ? 0 : static_cast<std::int64_t>(value), dtype);
}

void run_element(const TileProgram& p, const Strides& index, const std::vector<Buffer>& in,
                 std::vector<Buffer>& out) {
  std::vector<std::uint64_t> regs(at(p.num_registers), 0);
  for (const auto& load : p.loads)
    regs[at(load.reg)] =
        read(in[at(load.access.buffer)], place(load.access.offset, load.access.strides, index),
             load.access.dtype);
  for (const auto& constant : p.constants)
    regs[at(constant.reg)] = number(constant.value, constant.dtype);
  for (const auto& iota : p.iotas)
    regs[at(iota.reg)] = number(place(iota.start, iota.coefficients, index), iota.dtype);
  for (const auto& random : p.random_bits) {
    std::uint32_t key[2];
    std::memcpy(key, in[at(random.key_buffer)].data(), sizeof(key));
    const auto counter = static_cast<std::uint64_t>(place(random.base, random.strides, index));
    regs[at(random.reg)] = random_bits({key[0], key[1]}, counter);
  }
  for (const TileStep& step : p.steps) {
    TileInput inputs[3];
    for (std::size_t k = 0; k < at(step.num_inputs); ++k)
      inputs[k] = {&regs[at(step.inputs[k])], false};
    std::uint64_t result = 0;
    step.kernel->run(inputs, &result, 1);
    regs[at(step.output)] = result;
  }
  for (const auto& store : p.stores) {
    const std::size_t size = size_bytes(store.access.dtype);
    const std::int64_t element = place(store.access.offset, store.access.strides, index);
    std::memcpy(out[at(store.access.buffer)].data() + at(element) * size, &regs[at(store.reg)],
                size);
  }
}

std::vector<Buffer> reference(const TileProgram& p, const std::vector<Buffer>& in) {
  std::vector<Buffer> out = in;
  Strides index(p.extents.size(), 0);
  for (std::int64_t n = num_elements(p.extents); n > 0; --n) {
    run_element(p, index, in, out);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < p.extents[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

std::vector<std::byte*> pointers(std::vector<Buffer>& buffers) {
  std::vector<std::byte*> result;
  for (Buffer& buffer : buffers) result.push_back(buffer.data());
  return result;
}

void run_all(const TilePlan& plan, const std::vector<std::byte*>& buffers) {
  for (int part = plan.num_parts(); part-- > 0;) plan.run(buffers, part);
}

// --- building programs ---------------------------------------------------------------------------

struct Builder {
  TileProgram p;
  std::vector<DType> dtypes;
  std::vector<Buffer> buffers;
  std::mt19937 random;

  explicit Builder(Shape extents, std::uint32_t seed = 1) : random(seed) {
    p.extents = std::move(extents);
  }

  int new_register(DType dtype) {
    dtypes.push_back(dtype);
    return p.num_registers++;
  }
  // Random finite values: equal bits then mean equal values.
  int new_buffer(DType dtype, std::int64_t elements) {
    Buffer buffer(at(elements) * size_bytes(dtype));
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto small = static_cast<std::int64_t>(random() % 2001) - 1000;
      std::uint64_t word =
          dtype == DType::f32 ? word_of(static_cast<float>(small) * 0.01f) : number(small, dtype);
      if (dtype == DType::boolean) word = random() % 2;
      std::memcpy(buffer.data() + at(i) * size_bytes(dtype), &word, size_bytes(dtype));
    }
    buffers.push_back(std::move(buffer));
    return static_cast<int>(buffers.size()) - 1;
  }
  // A new buffer that is as large as `strides` require, plus some elements around.
  TileAccess new_access(DType dtype, Strides strides) {
    std::int64_t low = 0;
    std::int64_t high = 0;
    for (std::size_t d = 0; d < strides.size(); ++d)
      (strides[d] < 0 ? low : high) += strides[d] * std::max<std::int64_t>(p.extents[d] - 1, 0);
    const auto margin = static_cast<std::int64_t>(random() % 4);
    const int buffer = new_buffer(dtype, high - low + 1 + 2 * margin);
    return {
        .buffer = buffer, .offset = margin - low, .strides = std::move(strides), .dtype = dtype};
  }
  int load(DType dtype, Strides strides) { return load(new_access(dtype, std::move(strides))); }
  int load(const TileAccess& access) {
    p.loads.push_back({new_register(access.dtype), access});
    return p.loads.back().reg;
  }
  int constant(double value, DType dtype) {
    p.constants.push_back({new_register(dtype), value, dtype});
    return p.constants.back().reg;
  }
  int step(const char* kernel, std::vector<int> inputs, DType out) {
    TileStep s{};
    s.kernel = find_tile_kernel(kernel, dtypes[at(inputs.back())]);
    EXPECT_NE(s.kernel, nullptr) << kernel;
    s.num_inputs = static_cast<int>(inputs.size());
    std::copy(inputs.begin(), inputs.end(), s.inputs);
    s.output = new_register(out);
    s.out_dtype = out;
    p.steps.push_back(s);
    return s.output;
  }
  void store(int reg) { store(reg, new_access(dtypes[at(reg)], row_major_strides(p.extents))); }
  void store(int reg, const TileAccess& access) { p.stores.push_back({reg, access}); }

  void expect_right(const std::string& what = "") {
    const std::vector<Buffer> want = reference(p, buffers);
    std::vector<Buffer> have = buffers;
    const TilePlan plan(p, 4);
    run_all(plan, pointers(have));
    for (std::size_t b = 0; b < want.size(); ++b)
      EXPECT_TRUE(have[b] == want[b]) << what << " buffer " << b;
  }
};

// --- random programs -----------------------------------------------------------------------------

class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : random_(seed), b_(random_extents(), seed) {}

  Builder build() {
    for (int i = 1 + pick(4); i > 0; --i) ready_.push_back(b_.load(some_dtype(), some_strides()));
    if (pick(2)) ready_.push_back(b_.constant(pick(100) - 50, some_dtype()));
    if (pick(3) == 0) add_iota();
    if (pick(3) == 0) add_random();
    for (int i = pick(9); i > 0; --i) add_step();
    for (int i = 1 + pick(3); i > 0; --i) {
      const int reg = pick(2) ? ready_.back() : some_ready();
      b_.store(reg, b_.new_access(b_.dtypes[at(reg)], store_strides()));
    }
    return std::move(b_);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  int some_ready() { return ready_[at(pick(static_cast<int>(ready_.size())))]; }

  Shape random_extents() {
    static const std::vector<std::int64_t> kSizes = {1,  2,  3,  4,  5,   7,   8,   16,  31,  32,
                                                     33, 63, 64, 65, 100, 257, 512, 513, 700, 1030};
    Shape extents;
    std::int64_t total = 1;
    for (int i = pick(5); i > 0; --i) {
      const std::int64_t extent = kSizes[at(pick(static_cast<int>(kSizes.size())))];
      if (total * extent > 20000) continue;
      extents.push_back(extent);
      total *= extent;
    }
    return extents;
  }
  DType some_dtype() {
    static const DType kTypes[] = {DType::f32, DType::f32, DType::f64,    DType::i32,
                                   DType::i64, DType::f32, DType::boolean};
    return kTypes[at(pick(7))];
  }
  DType some_number() {
    static const DType kTypes[] = {DType::f32, DType::f64, DType::i32, DType::i64};
    return kTypes[at(pick(4))];
  }
  // Strides that are dense, permuted, broadcast, reversed or padded.
  Strides some_strides() {
    Strides strides = store_strides();
    for (std::int64_t& stride : strides) {
      const int how = pick(8);
      if (how == 0) stride = 0;
      if (how == 1) stride = -stride;
    }
    if (pick(6) == 0) std::fill(strides.begin(), strides.end(), 0);
    return strides;
  }
  // Strides that give every element its own position.
  Strides store_strides() {
    const Shape& extents = b_.p.extents;
    std::vector<std::size_t> order(extents.size());
    std::iota(order.begin(), order.end(), 0);
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    Strides strides(extents.size());
    std::int64_t stride = pick(8) == 0 ? 2 : 1;
    for (std::size_t d = order.size(); d-- > 0;) {
      strides[order[d]] = stride;
      stride *= extents[order[d]] + (pick(6) == 0 ? 1 : 0);
    }
    return strides;
  }
  void add_iota() {
    const DType dtype = some_number();
    Strides coefficients = b_.p.extents;
    for (std::int64_t& c : coefficients) c = pick(3) - 1;
    b_.p.iotas.push_back({b_.new_register(dtype), pick(50), std::move(coefficients), dtype});
    ready_.push_back(b_.p.iotas.back().reg);
  }
  void add_random() {
    const int key = b_.new_buffer(DType::u32, 2);
    const std::int64_t base = pick(2) ? (std::int64_t{1} << 32) - 50 : pick(1000);
    Strides strides = pick(2) ? row_major_strides(b_.p.extents) : b_.p.extents;
    b_.p.random_bits.push_back({b_.new_register(DType::u32), key, base, std::move(strides)});
    const int bits = b_.p.random_bits.back().reg;
    ready_.push_back(b_.step("convert_u32_i32", {bits}, DType::i32));
  }
  int as(DType dtype) {
    const int reg = some_ready();
    const DType from = b_.dtypes[at(reg)];
    if (from == dtype) return reg;
    const auto kernel = std::string("convert_").append(name(from)).append("_").append(name(dtype));
    return b_.step(kernel.c_str(), {reg}, dtype);
  }
  void add_step() {
    const DType dtype = some_number();
    switch (pick(7)) {
      case 0:
        return ready_.push_back(b_.step("neg", {as(dtype)}, dtype));
      case 1:
        return ready_.push_back(b_.step("add", {as(dtype), as(dtype)}, dtype));
      case 2:
        return ready_.push_back(b_.step("max", {as(dtype), as(dtype)}, dtype));
      case 3:
        return ready_.push_back(b_.step("compare_lt", {as(dtype), as(dtype)}, DType::boolean));
      case 4:
        return ready_.push_back(
            b_.step("select", {as(DType::boolean), as(dtype), as(dtype)}, dtype));
      case 5:
        return ready_.push_back(
            b_.step("and", {as(DType::boolean), as(DType::boolean)}, DType::boolean));
      default:
        return ready_.push_back(b_.step("sub", {as(dtype), as(dtype)}, dtype));
    }
  }

  std::mt19937 random_;
  Builder b_;
  std::vector<int> ready_;
};

TEST(TileProgram, RandomProgramsEqualPlainLoops) {
  constexpr std::uint32_t kPrograms = num_cases(600);
  std::uint32_t seed = 0;
  testing::on_every_target([&seed](const char* /*name*/) {
    for (const std::uint32_t end = seed + kPrograms; seed < end; ++seed) {
      Builder b = RandomProgram(seed).build();
      b.expect_right("seed " + std::to_string(seed) + " extents " + to_string(b.p.extents));
      if (::testing::Test::HasFailure()) break;
    }
  });
}

// A plan of few elements has memory of its own, which one thread uses at a time.
TEST(TileProgram, ThreadsRunAPlanAtTheSameTime) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const Builder b = RandomProgram(seed).build();
    const std::vector<Buffer> want = reference(b.p, b.buffers);
    const TilePlan plan(b.p, 1);
    std::atomic<int> num_wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int run = 0; run < 50; ++run) {
          std::vector<Buffer> have = b.buffers;
          plan.run(pointers(have), 0);
          if (have != want) ++num_wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(num_wrong, 0) << "seed " << seed << " extents " << to_string(b.p.extents);
  }
}

// --- hand-written cases --------------------------------------------------------------------------

TEST(TileProgram, EmptyAndScalarSpaces) {
  for (const Shape& extents :
       {Shape{}, Shape{1}, Shape{1, 1}, Shape{0}, Shape{4, 0}, Shape{0, 7}}) {
    Builder b(extents);
    const int x = b.load(DType::f32, Strides(extents.size(), 1));
    b.store(b.step("neg", {x}, DType::f32));
    b.store(b.constant(3.5, DType::f32));
    b.expect_right(to_string(extents));
  }
}

TEST(TileProgram, LoadsAndConstantsAreStoredWithoutSteps) {
  Builder b({37, 65});
  const int x = b.load(DType::f32, {1, 37});
  b.store(x);
  b.store(b.load(DType::boolean, {65, 1}));
  b.store(b.load(DType::i32, {0, 1}));
  b.store(b.load(DType::f64, {65, -1}));
  b.store(b.constant(-7, DType::i32));
  b.expect_right();
}

TEST(TileProgram, ShortRowsWithBroadcasts) {
  for (std::int64_t columns : {3, 32, 63, 64, 200, 300}) {
    Builder b({5, 9, columns});
    const int x = b.load(DType::f32, {9 * columns, columns, 1});
    const int row = b.load(DType::f32, {0, 0, 1});
    const int column = b.load(DType::f32, {9, 1, 0});
    const int outer = b.load(DType::f32, {1, 0, 0});
    const int scaled = b.step("mul", {b.step("add", {x, row}, DType::f32), column}, DType::f32);
    b.store(b.step("sub", {scaled, b.step("neg", {outer}, DType::f32)}, DType::f32));
    b.expect_right(std::to_string(columns));
  }
}

TEST(TileProgram, TransposesOfLargeMatrices) {
  Builder b({300, 450});
  const int x = b.load(DType::f32, {1, 300});
  const int y = b.load(DType::f32, {450, 1});
  b.store(b.step("add", {x, y}, DType::f32));
  b.store(b.step("neg", {x}, DType::f32), b.new_access(DType::f32, {1, 300}));
  b.expect_right();
}

TEST(TileProgram, TransposesElementsOfAllSizes) {
  for (DType dtype : {DType::boolean, DType::bf16, DType::f64}) {
    for (const Shape& extents : {Shape{300, 450}, Shape{70, 33}, Shape{37, 130}, Shape{3, 200}}) {
      Builder b(extents);
      const int x = b.load(dtype, {1, extents[0]});
      const int y = b.load(dtype, {extents[1], 1});
      b.store(x);
      b.store(y, b.new_access(dtype, {1, extents[0]}));
      b.expect_right();
    }
  }
}

TEST(TileProgram, PartsCoverLargeSpacesOnce) {
  Builder b({300, 1000});
  const int x = b.load(DType::f32, {1000, 1});
  b.store(b.step("add", {x, x}, DType::f32));
  EXPECT_EQ(TilePlan(b.p, 4).num_parts(), 9);
  b.expect_right();
  Builder small({10, 10});
  small.store(small.constant(1, DType::f32));
  EXPECT_EQ(TilePlan(small.p, 4).num_parts(), 1);
}

// Stored buffers share memory with loaded ones. Results must be as if all loads came first.
void expect_right_in_place(Builder& b, const std::vector<std::pair<int, int>>& shared) {
  const std::vector<Buffer> want = reference(b.p, b.buffers);
  std::vector<Buffer> have = b.buffers;
  std::vector<std::byte*> buffers = pointers(have);
  for (const auto& [write, from] : shared) buffers[at(write)] = buffers[at(from)];
  run_all(TilePlan(b.p, 4), buffers);
  for (const auto& [write, from] : shared) EXPECT_TRUE(have[at(from)] == want[at(write)]);
}

TEST(TileProgram, ResultsMayTakeTheMemoryOfOperands) {
  for (const Shape& extents : {Shape{3000}, Shape{70, 33}, Shape{9, 600}}) {
    const Strides dense = row_major_strides(extents);
    Builder b(extents);
    const auto access = [&] {
      const int buffer = b.new_buffer(DType::f32, num_elements(extents));
      return TileAccess{.buffer = buffer, .offset = 0, .strides = dense, .dtype = DType::f32};
    };
    const int x = b.load(access());
    const int y = b.load(access());
    // x is read again after the first result is stored, and y is stored unchanged.
    const int first = b.step("add", {x, y}, DType::f32);
    b.store(first, access());
    b.store(b.step("mul", {first, x}, DType::f32), access());
    b.store(y, access());
    expect_right_in_place(b, {{2, 0}});
    expect_right_in_place(b, {{2, 1}});
    expect_right_in_place(b, {{3, 0}});
    expect_right_in_place(b, {{2, 1}, {3, 0}});
    expect_right_in_place(b, {{2, 0}, {3, 1}});
    expect_right_in_place(b, {{4, 0}, {2, 1}});
  }
}

TEST(TileProgram, OperandsMaySwapMemory) {
  const Strides dense = {100, 1};
  Builder b({7, 100});
  for (int i = 0; i < 4; ++i) b.new_buffer(DType::f32, 700);
  const int x = b.load({.buffer = 0, .offset = 0, .strides = dense, .dtype = DType::f32});
  const int y = b.load({.buffer = 1, .offset = 0, .strides = dense, .dtype = DType::f32});
  b.store(x, {.buffer = 2, .offset = 0, .strides = dense, .dtype = DType::f32});
  b.store(y, {.buffer = 3, .offset = 0, .strides = dense, .dtype = DType::f32});
  expect_right_in_place(b, {{2, 1}, {3, 0}});
}

}  // namespace
}  // namespace tessera::kernels
