// Compares machine code of random loops with the same loops interpreted.
#include "compile/host/kernels/loop/code/loop_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "compile/host/kernels/loop/loop_program.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/with_type.h"
#include "tests/fuzz/random.h"

namespace tessera::kernels {
namespace {

using fuzz::Random;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kRounds = 8;      // at most
constexpr std::int64_t kArrayRows = 40;  // of arrays that are read and written in place
constexpr std::int64_t kArrayColumns = 3;

const std::vector<DType> kDTypes = {DType::f32, DType::f64, DType::i32,    DType::u32,
                                    DType::i64, DType::u64, DType::boolean};

template <typename T>
T random_number(Random& random) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_floating_point_v<T>) {
    const std::vector<T> special = {T{0},
                                    -T{0},
                                    Limits::infinity(),
                                    Limits::max(),
                                    Limits::quiet_NaN(),
                                    -Limits::infinity(),
                                    Limits::min(),
                                    -Limits::min() / 2,
                                    T{1},
                                    T{2147483648.0},
                                    T{0.5},
                                    T{-3.25}};
    if (random.chance(40)) return random.choose(special);
    return static_cast<T>(random.between(-4000, 4000)) / T{64};
  } else {
    const std::vector<T> special = {
        T{0}, T{1}, static_cast<T>(-1), Limits::max(), Limits::min(), T{31}, T{32}, T{63}};
    if (random.chance(50)) return random.choose(special);
    return static_cast<T>(random.between(-50, 50));
  }
}

template <typename T>
void append(Bytes& bytes, T number) {
  const auto* from = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), from, from + sizeof(number));
}

Bytes random_bytes(Random& random, DType dtype, std::int64_t count) {
  Bytes bytes;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_flag = dtype == DType::boolean;
      append(bytes, is_flag ? static_cast<T>(random.chance(50)) : random_number<T>(random));
    }
  });
  return bytes;
}

struct Signature {
  std::string name;
  int num_inputs;
};

std::vector<Signature> ops_of(DType dtype) {
  std::vector<Signature> ops = {{"select", 3}};
  for (const char* relation : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    ops.push_back({std::string("compare_") + relation, 2});
  }
  const auto add = [&](int num_inputs, std::initializer_list<const char*> names) {
    for (const char* name : names) ops.push_back({name, num_inputs});
  };
  if (dtype == DType::boolean) {
    add(1, {"not", "copy"});
    add(2, {"and", "or", "xor", "max", "min"});
    return ops;
  }
  add(1, {"neg", "abs", "sign", "copy"});
  add(2, {"add", "sub", "mul", "div", "max", "min", "rem"});
  add(3, {"clamp"});
  if (is_float(dtype)) {
    add(1, {"sqrt", "rsqrt", "floor", "ceil", "round", "is_finite", "exp", "tanh"});
    add(2, {"pow"});
    add(3, {"fma"});
  } else {
    add(1, {"not", "population_count"});
    add(2, {"and", "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"});
  }
  return ops;
}

/// A program with a number of random steps.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random(seed) {
    program.length = kRounds;
    program.is_reverse = random.chance(30);
    for (const DType dtype : kDTypes) add_inputs(dtype);
    if (random.chance(60)) add_array();
    if (random.chance(30)) add_condition();
    // Registers that few programs need, and more than a processor has.
    const std::int64_t num_steps =
        random.chance(30) ? random.between(60, 150) : random.between(1, 25);
    for (std::int64_t i = 0; i < num_steps; ++i) add_step();
    end_carries();
    const int stored = random.choose(std::vector{100, 20});
    for (const LoopProgram::Step& step : program.body) {
      for (const int reg : step.outputs) {
        if (random.chance(stored)) store(reg);
      }
    }
  }

  std::vector<Bytes> buffers() {
    std::vector<Bytes> result;
    for (const auto& [dtype, size] : buffers_) result.push_back(random_bytes(random, dtype, size));
    return result;
  }
  DType dtype_of_buffer(std::size_t buffer) const { return buffers_[buffer].dtype; }

  Random random;
  LoopProgram program;

 private:
  struct Buffer {
    DType dtype;
    std::int64_t size;
  };

  int add_register(DType dtype, std::int64_t size) {
    program.registers.push_back({.dtype = dtype, .size = size});
    return static_cast<int>(program.registers.size()) - 1;
  }
  int add_buffer(DType dtype, std::int64_t size) {
    buffers_.push_back({dtype, size});
    return static_cast<int>(buffers_.size()) - 1;
  }
  std::int64_t any_size() { return random.choose(std::vector<std::int64_t>{1, 1, 1, 3, 4}); }

  void add_inputs(DType dtype) {
    const std::int64_t size = any_size();
    const int constant = add_register(dtype, size);
    program.constants.push_back({.reg = constant, .bytes = random_bytes(random, dtype, size)});
    const int invariant = add_register(dtype, 1);
    program.loads.push_back({.reg = invariant, .buffer = add_buffer(dtype, 1), .stride = 0});
    const int slice = add_register(dtype, size);
    program.loads.push_back(
        {.reg = slice, .buffer = add_buffer(dtype, size * kRounds), .stride = size});
    for (int i = 0; i < 2; ++i) {
      const int carry = add_register(dtype, size);
      program.carries.push_back({.reg = carry,
                                 .from = add_buffer(dtype, size),
                                 .to = add_buffer(dtype, size),
                                 .next = {}});
    }
    for (int reg = constant; reg < static_cast<int>(program.registers.size()); ++reg) {
      known_.push_back(reg);
    }
  }

  void add_array() {
    const DType dtype = random.choose(kDTypes);
    const std::int64_t size = kArrayRows * kArrayColumns;
    array_ = add_register(dtype, size);
    program.registers.back().is_in_place = true;
    program.carries.push_back({.reg = array_,
                               .from = add_buffer(dtype, size),
                               .to = add_buffer(dtype, size),
                               .next = {}});
  }

  // Rounds are counted from any number; the loop ends when its last three bits reach a limit.
  void add_condition() {
    counter_ = add_register(DType::i32, 1);
    program.carries.push_back({.reg = counter_,
                               .from = add_buffer(DType::i32, 1),
                               .to = add_buffer(DType::i32, 1),
                               .next = {}});
    const int low = add_register(DType::i32, 1);
    program.decision = add_register(DType::boolean, 1);
    program.condition.push_back({.kernel = find_tile_kernel("and", DType::i32),
                                 .inputs = {counter_, number(7)},
                                 .outputs = {low}});
    program.condition.push_back(
        {.kernel = find_tile_kernel("compare_lt", DType::i32),
         .inputs = {low, number(static_cast<std::int32_t>(random.between(0, 7)))},
         .outputs = {program.decision}});
  }

  int number(std::int32_t value) {
    const int reg = add_register(DType::i32, 1);
    Bytes bytes;
    append(bytes, value);
    program.constants.push_back({.reg = reg, .bytes = bytes});
    return reg;
  }

  // Elements of registers that are known in the condition too.
  int any_of(DType dtype, std::int64_t size) {
    std::vector<int> found;
    for (const int reg : known_) {
      const auto& has = program.registers[static_cast<std::size_t>(reg)];
      if (has.dtype == dtype && (has.size == 1 || has.size == size)) found.push_back(reg);
    }
    return random.chance(40) ? found.back() : random.choose(found);
  }
  const LoopProgram::Register& at(int reg) const {
    return program.registers[static_cast<std::size_t>(reg)];
  }

  void add_step() {
    if (array_ >= 0 && random.chance(20)) return add_part();
    if (random.chance(15)) return add_elements();
    if (random.chance(15)) return add_conversion();
    if (random.chance(10)) return add_choice();
    const DType dtype = random.choose(kDTypes);
    const Signature op = random.choose(ops_of(dtype));
    const TileKernel* kernel = find_tile_kernel(op.name, dtype);
    ASSERT_NE(kernel, nullptr) << op.name;
    const bool is_flag = op.name.starts_with("compare_") || op.name == "is_finite";
    std::vector<int> inputs;
    const std::int64_t size = any_size();
    for (int i = 0; i < op.num_inputs; ++i) {
      inputs.push_back(any_of(op.name == "select" && i == 0 ? DType::boolean : dtype, size));
    }
    add_computed(kernel, inputs, is_flag ? DType::boolean : dtype);
  }

  void add_computed(const TileKernel* kernel, const std::vector<int>& inputs, DType dtype) {
    std::int64_t size = 1;
    for (const int reg : inputs) size = std::max(size, at(reg).size);
    const int out = add_register(dtype, size);
    program.body.push_back({.kernel = kernel, .inputs = inputs, .outputs = {out}});
    known_.push_back(out);
  }

  // Between two numbers, by a comparison of others that no other step reads.
  void add_choice() {
    const DType compared = random.choose(kDTypes);
    const DType dtype = random.choose(kDTypes);
    const int flag = add_register(DType::boolean, 1);
    program.body.push_back({.kernel = find_tile_kernel("compare_le", compared),
                            .inputs = {any_of(compared, 1), any_of(compared, 1)},
                            .outputs = {flag}});
    const std::int64_t size = any_size();
    add_computed(find_tile_kernel("select", dtype),
                 {flag, any_of(dtype, size), any_of(dtype, size)}, dtype);
  }

  void add_conversion() {
    const DType from = random.choose(kDTypes);
    const DType to = random.choose(kDTypes);
    const std::string op = "convert_" + std::string(name(from)) + "_" + std::string(name(to));
    const TileKernel* kernel = find_tile_kernel(op, from);
    if (kernel != nullptr) add_computed(kernel, {any_of(from, any_size())}, to);
  }

  void add_elements() {
    const DType dtype = random.choose(kDTypes);
    LoopProgram::Elements elements;
    for (std::int64_t i = any_size(); i > 0; --i) {
      const int reg = any_of(dtype, any_size());
      elements.push_back({.reg = reg, .index = random.between(0, at(reg).size - 1)});
    }
    const int out = add_register(dtype, std::ssize(elements));
    program.body.push_back({.elements = elements, .outputs = {out}});
    known_.push_back(out);
  }

  void add_part() {
    LoopProgram::Part part{.array = array_,
                           .part = -1,
                           .is_written = random.chance(50),
                           .extents = {kArrayRows, kArrayColumns},
                           .sizes = {random.between(1, 2), random.between(1, 2)},
                           .starts = {any_of(DType::i32, 1), any_of(DType::i32, 1)},
                           .outside = {}};
    const DType dtype = at(array_).dtype;
    if (random.chance(30)) part.starts[random.pick(2)] = -1;
    if (random.chance(50)) part.outside = random_bytes(random, dtype, 1);
    const std::int64_t size = part.sizes[0] * part.sizes[1];
    LoopProgram::Step step{.inputs = {array_}};
    for (const int start : part.starts) {
      if (start >= 0) step.inputs.push_back(start);
    }
    if (part.is_written) {
      // A register of its own, because a written part needs one with all elements.
      LoopProgram::Elements elements;
      const int from = any_of(dtype, size);
      for (std::int64_t i = 0; i < size; ++i) {
        elements.push_back({.reg = from, .index = at(from).size == 1 ? 0 : i});
      }
      part.part = add_register(dtype, size);
      program.body.push_back({.elements = elements, .outputs = {part.part}});
      step.inputs.push_back(part.part);
    } else {
      part.part = add_register(dtype, size);
      step.outputs = {part.part};
      known_.push_back(part.part);
    }
    // All reads and writes happen in the order of the program.
    if (last_part_) step.after.push_back(*last_part_);
    last_part_ = program.body.size();
    step.part = std::make_shared<const LoopProgram::Part>(part);
    program.body.push_back(std::move(step));
  }

  void end_carries() {
    const bool swaps = random.chance(30);
    for (auto& carry : program.carries) {
      const auto [dtype, size, is_in_place] = at(carry.reg);
      if (is_in_place) continue;
      if (carry.reg == counter_) {
        const int next = add_register(DType::i32, 1);
        program.body.push_back({.kernel = find_tile_kernel("add", DType::i32),
                                .inputs = {counter_, number(1)},
                                .outputs = {next}});
        carry.next = {{.reg = next, .index = 0}};
        continue;
      }
      const int whole = swaps ? other_carry(carry.reg) : any_of(dtype, size);
      for (std::int64_t i = 0; i < size; ++i) {
        const int reg = random.chance(swaps ? 95 : 70) ? whole : any_of(dtype, size);
        carry.next.push_back({.reg = reg, .index = at(reg).size == 1 ? 0 : i});
      }
    }
  }

  /// The other one of the two carries with this dtype that are not in place.
  int other_carry(int reg) const {
    for (const auto& carry : program.carries) {
      const bool is_other = carry.reg != reg && carry.reg != counter_ && carry.reg != array_;
      if (is_other && at(carry.reg).dtype == at(reg).dtype) return carry.reg;
    }
    return reg;
  }

  void store(int reg) {
    if (at(reg).is_in_place || reg == array_) return;
    LoopProgram::Elements elements;
    for (std::int64_t i = 0; i < at(reg).size; ++i) elements.push_back({.reg = reg, .index = i});
    program.stores.push_back({.elements = elements,
                              .buffer = add_buffer(at(reg).dtype, at(reg).size * kRounds),
                              .stride = at(reg).size});
  }

  std::vector<Buffer> buffers_;
  std::vector<int> known_;
  int array_ = -1;
  int counter_ = -1;
  std::optional<std::size_t> last_part_;
};

template <typename T>
bool are_nans(const std::byte* a, const std::byte* b) {
  T x;
  T y;
  std::memcpy(&x, a, sizeof(x));
  std::memcpy(&y, b, sizeof(y));
  return std::isnan(x) && std::isnan(y);
}

std::string hex(const Bytes& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

/// Whether they have the same bits; one NaN is like another.
bool are_same(const Bytes& a, const Bytes& b, DType dtype) {
  const std::size_t width = size_bytes(dtype);
  for (std::size_t i = 0; i < a.size(); i += width) {
    if (std::memcmp(a.data() + i, b.data() + i, width) == 0) continue;
    if (dtype == DType::f32 && are_nans<float>(a.data() + i, b.data() + i)) continue;
    if (dtype == DType::f64 && are_nans<double>(a.data() + i, b.data() + i)) continue;
    return false;
  }
  return true;
}

std::vector<Bytes> run(const LoopPlan& plan, std::vector<Bytes> buffers) {
  std::vector<std::byte*> pointers;
  for (Bytes& buffer : buffers) pointers.push_back(buffer.data());
  plan.run(pointers);
  return buffers;
}

/// Whether it became machine code.
bool check_program(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomProgram random(seed);
  const std::vector<Bytes> buffers = random.buffers();
  const LoopPlan interpreted(random.program, LoopPlan::Form::interpreted);
  const LoopPlan compiled(random.program);
  const std::vector<Bytes> wanted = run(interpreted, buffers);
  const std::vector<Bytes> found = run(compiled, buffers);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(are_same(found[i], wanted[i], random.dtype_of_buffer(i)))
        << "buffer " << i << " of " << name(random.dtype_of_buffer(i)) << ": " << hex(found[i])
        << " instead of " << hex(wanted[i]);
  }
  return compiled.is_machine_code();
}

TEST(LoopCode, RandomLoopsHaveTheBitsOfTheInterpreter) {
  const char* given = std::getenv("TESSERA_SEED");
  const std::uint64_t first = given == nullptr ? 1 : std::stoull(given);
  constexpr int kPrograms = 300;
  testing::on_every_target([&](const char*) {
    int num_compiled = 0;
    for (int i = 0; i < kPrograms && !::testing::Test::HasFailure(); ++i) {
      num_compiled += check_program(first + static_cast<std::uint64_t>(i)) ? 1 : 0;
    }
    EXPECT_GT(num_compiled, loops::has_loop_code() ? kPrograms / 2 : -1);
  });
}

}  // namespace
}  // namespace tessera::kernels
