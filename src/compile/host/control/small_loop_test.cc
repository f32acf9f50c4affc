// Compares small loops, which run as loop programs, with the same rounds run one after the other.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "compile/host/kernels/on_every_target.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "tests/fuzz/control_programs.h"
#include "tests/fuzz/random.h"

namespace tessera::compile {
namespace {

using namespace testing;
using fuzz::Random;
using ir::Builder;
using ir::Ints;
using ir::ValueId;

constexpr std::int64_t kMostElements = 2048;  // of each value of a small loop

/// What the values of a random loop are.
struct Kinds {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  bool has_calls;  // of kernels that compute whole arrays
};

const Kinds kAll = {
    .shapes =
        {{}, {}, {1}, {2}, {3}, {4}, {7}, {2, 3}, {16}, {3, 1, 5}, {64}, {5, 16}, {200}, {3, 47}},
    .dtypes = {DType::f32, DType::f32, DType::f32, DType::i32, DType::u32, DType::boolean,
               DType::f64, DType::i64, DType::u8, DType::bf16, DType::f16},
    .has_calls = true};
/// Loops that become machine code.
const Kinds kNumbers = {.shapes = {{}, {}, {}, {1}, {2}, {3}},
                        .dtypes = {DType::f32, DType::i32, DType::f64, DType::i64, DType::u32,
                                   DType::boolean, DType::bf16},
                        .has_calls = false};

/// Appends random equations, all of which a small loop can hold.
class RandomBody {
 public:
  RandomBody(Builder& b, Random& random, std::vector<ValueId> inputs, const Kinds& kinds = kAll)
      : b_(b), random_(random), values_(std::move(inputs)), kinds_(kinds) {}

  void grow(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values_.push_back(next());
  }
  void grow_simply(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values_.push_back(computed(any()));
  }

  /// A value of this type, usually one of the most recent ones.
  ValueId of_type(const Type& type) {
    std::vector<ValueId> found;
    for (const ValueId id : values_) {
      if (b_.type(id) == type) found.push_back(id);
    }
    if (!found.empty()) return random_.chance(60) ? found.back() : random_.choose(found);
    return fitted(any(), type);
  }
  ValueId any() { return random_.choose(values_); }
  void append(ValueId id) { values_.push_back(id); }

 private:
  ValueId next() {
    const ValueId x = any();
    if (random_.chance(20) && kinds_.has_calls) return called(x);
    return random_.chance(50) ? moved(x) : computed(x);
  }

  /// Ops that a loop program computes by calling their kernels.
  ValueId called(ValueId x) {
    if (is_half(b_.type(x).dtype) && random_.chance(50)) x = ops::convert(b_, x, DType::f32);
    const Type type = b_.type(x);
    const std::int64_t size = num_elements(type.shape);
    if (type.dtype == DType::boolean) return x;
    const ValueId flat = ops::reshape(b_, x, {size});
    switch (random_.pick(5)) {
      case 0: {
        if (type.rank() == 0) return ops::reduce_max(b_, x, {});
        const Ints dims = {random_.between(0, type.rank() - 1)};
        const bool is_summed = !is_half(type.dtype) && random_.chance(50);
        const std::string op = is_summed ? "sum" : random_.chance(50) ? "max" : "min";
        return b_.emit("reduce_" + op, {{"dims", dims}}, {x});
      }
      case 1:
        return is_half(type.dtype) ? x : ops::reduce_sum(b_, flat, {0});
      case 2: {
        const ValueId y = ops::reshape(b_, of_type(type), {size});
        if (type.dtype != DType::f32 && type.dtype != DType::bf16) return y;
        return ops::dot_general(b_, flat, y, {.lhs_contract = {0}, .rhs_contract = {0}});
      }
      case 3: {
        const ValueId start = of_type({DType::i32, {}});
        return ops::dynamic_slice(b_, flat, {start}, {random_.between(1, size)});
      }
      default:
        return chosen(x);
    }
  }

  ValueId chosen(ValueId x) {
    const auto branch = [&] {
      auto made = std::make_shared<Function>();
      Builder b(*made);
      RandomBody body(b, random_, {b.add_input(b_.type(x)), b.add_input({DType::f32, {3}})});
      body.grow_simply(random_.between(0, 4));
      b.set_outputs({body.of_type({DType::f32, {2}})});
      return made;
    };
    std::vector<ops::FunctionPtr> branches = {branch(), branch()};
    if (random_.chance(30)) branches.push_back(branch());
    const ValueId number = of_type({DType::i32, {}});
    return ops::cond(b_, branches, {number, x, of_type({DType::f32, {3}})})[0];
  }

  ValueId computed(ValueId x) {
    const Type type = b_.type(x);
    const ValueId y = of_type(type);
    if (random_.chance(15)) return ops::convert(b_, x, random_.choose(kinds_.dtypes));
    if (random_.chance(15)) {
      const ValueId smaller =
          ops::compare(b_, random_.choose(std::vector<std::string>{"lt", "ge", "ne"}), x, y);
      return random_.chance(50) ? smaller : ops::select(b_, smaller, y, x);
    }
    if (type.dtype == DType::boolean) {
      return random_.chance(50) ? ops::bitwise_and(b_, x, y) : ops::bitwise_not(b_, x);
    }
    if (is_float(type.dtype) && random_.chance(30)) {
      return b_.emit(random_.choose(std::vector<std::string>{"tanh", "abs", "log", "sin", "neg"}),
                     {}, {x});
    }
    return b_.emit(
        random_.choose(std::vector<std::string>{"add", "sub", "mul", "max", "div", "rem"}), {},
        {x, y});
  }

  ValueId moved(ValueId x) {
    const Type type = b_.type(x);
    const auto rank = type.rank();
    switch (random_.pick(6)) {
      case 0:
        return fitted(x, {type.dtype, random_.choose(kinds_.shapes)});
      case 1: {
        if (rank == 0) return ops::broadcast_scalar(b_, x, random_.choose(kinds_.shapes));
        const auto dim = random_.between(0, rank - 1);
        return ops::reverse(b_, x, {dim});
      }
      case 2: {
        Ints permutation;
        for (std::int64_t d = rank; d-- > 0;) permutation.push_back(d);
        return ops::transpose(b_, x, permutation);
      }
      case 3: {
        if (type.dtype == DType::boolean) return x;
        const Shape& shape = random_.choose(kinds_.shapes);
        return shape.empty() ? ops::scalar(b_, 3.0, type.dtype)
                             : ops::iota(b_, type.dtype, shape, 0);
      }
      case 4: {
        if (rank == 0) return x;
        const auto dim = random_.between(0, rank - 1);
        const std::int64_t size = type.shape[static_cast<std::size_t>(dim)];
        const std::int64_t start = random_.between(0, size - 1);
        return ops::slice_dim(b_, x, dim, start, random_.between(start + 1, size));
      }
      default:
        return joined(x);
    }
  }

  ValueId joined(ValueId x) {
    if (num_elements(b_.type(x).shape) > 200) return x;
    const Shape flat = {num_elements(b_.type(x).shape)};
    std::vector<ValueId> parts;
    for (std::int64_t i = random_.between(1, 4); i > 0; --i) {
      parts.push_back(ops::reshape(b_, random_.chance(50) ? x : of_type(b_.type(x)), flat));
    }
    return ops::concatenate(b_, parts, 0);
  }

  /// The elements of `x`, truncated or repeated to fill the type.
  ValueId fitted(ValueId x, const Type& type) {
    if (b_.type(x).dtype != type.dtype) x = ops::convert(b_, x, type.dtype);
    const std::int64_t size = num_elements(type.shape);
    ValueId flat = ops::reshape(b_, x, {num_elements(b_.type(x).shape)});
    while (b_.type(flat).shape[0] < size) flat = ops::concatenate(b_, {flat, flat}, 0);
    return ops::reshape(b_, ops::slice_dim(b_, flat, 0, 0, size), type.shape);
  }

  Builder& b_;
  Random& random_;
  std::vector<ValueId> values_;
  const Kinds& kinds_;
};

Type random_type(Random& random, const Kinds& kinds) {
  return {random.choose(kinds.dtypes), random.choose(kinds.shapes)};
}

/// Reads and writes parts of an array, in place where possible.
class RandomArray {
 public:
  RandomArray(Builder& b, Random& random, RandomBody& values, ValueId array)
      : b_(b), random_(random), values_(values), array_(array), old_(array) {}

  ValueId array() const { return array_; }
  bool has_read_old() const { return has_read_old_; }

  void step() {
    const Type type = b_.type(array_);
    const auto dim = random_.between(0, type.rank() - 1);
    const std::int64_t count = random_.chance(60) ? 1 : 3;
    const ValueId indices = values_.of_type({DType::i32, {count}});
    std::vector<ValueId> starts;
    Shape part;
    for (const std::int64_t size : type.shape) {
      starts.push_back(values_.of_type({DType::i32, {}}));
      part.push_back(size <= 70 && random_.chance(20)
                         ? size
                         : random_.between(1, std::min<std::int64_t>(size, 4)));
    }
    Shape rows = type.shape;
    rows[static_cast<std::size_t>(dim)] = count;
    switch (random_.pick(5)) {
      case 0:
        return read([&](ValueId from) { return ops::dynamic_slice(b_, from, starts, part); });
      case 1:
        return read([&](ValueId from) { return ops::gather(b_, from, indices, dim); });
      case 2:
        return write(ops::dynamic_update_slice(b_, array_, of_type(part), starts));
      case 3:
        return write(ops::scatter(b_, array_, indices, of_type(rows), dim));
      default:
        return write(loop(starts));
    }
  }

 private:
  ValueId of_type(Shape shape) {
    return values_.of_type({b_.type(array_).dtype, std::move(shape)});
  }

  template <typename Read>
  void read(const Read& read_from) {
    const bool is_old = old_ != array_ && random_.chance(10);
    has_read_old_ = has_read_old_ || is_old;
    values_.append(read_from(is_old ? old_ : array_));
  }

  void write(ValueId next) {
    old_ = array_;
    array_ = next;
  }

  /// A loop whose rounds add the part at each place to the part at the next place.
  ValueId loop(const std::vector<ValueId>& starts) {
    auto body = std::make_shared<Function>();
    Builder b(*body);
    const ValueId array = b.add_input(b_.type(array_));
    std::vector<ValueId> places;
    std::vector<ValueId> next;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      places.push_back(b.add_input({DType::i32, {}}));
      next.push_back(ops::add(b, places[i], ops::scalar(b, 1.0, DType::i32)));
    }
    const Ints sizes(starts.size(), 1);
    const ValueId sum = ops::add(b, ops::dynamic_slice(b, array, places, sizes),
                                 ops::dynamic_slice(b, array, next, sizes));
    std::vector<ValueId> outputs = {ops::dynamic_update_slice(b, array, sum, next)};
    outputs.insert(outputs.end(), next.begin(), next.end());
    b.set_outputs(outputs);
    std::vector<ValueId> operands = {array_};
    operands.insert(operands.end(), starts.begin(), starts.end());
    return ops::scan(b_, {.length = 3, .num_carry = operands.size()}, body, operands)[0];
  }

  Builder& b_;
  Random& random_;
  RandomBody& values_;
  ValueId array_;
  ValueId old_;  // the previous version
  bool has_read_old_ = false;
};

/// The same loop in two forms, as a loop and unrolled.
struct Loops {
  Function loop;
  Function rounds;
};

struct RandomLoop {
  explicit RandomLoop(std::uint64_t seed, const Kinds& of = kAll, int depth = 0)
      : random(seed), kinds(of) {
    num_consts = random.pick(3);
    num_carry = 1 + random.pick(4);
    is_while = random.chance(30);
    num_scanned = is_while ? 0 : random.pick(3);
    is_reverse = random.chance(30);
    length = random.between(depth, 4);
    if (is_while) num_carry += 1;
    for (std::size_t i = 0; i < num_consts + num_carry + num_scanned; ++i) {
      types.push_back(random_type(random, kinds));
    }
    if (is_while) types[num_consts] = {DType::i32, {}};
    const bool has_large = depth == 0 && num_consts > 0 && random.chance(50);
    if (has_large) {
      types[0] = {random.choose(std::vector{DType::f32, DType::f64, DType::i32}), {90, 40}};
    }
    const bool has_array = depth == 0 && random.chance(50);
    if (has_array) {
      const Shape shape = random.choose(std::vector<Shape>{{90, 40}, {3000}, {120}, {70, 2}});
      types.insert(types.begin() + static_cast<std::ptrdiff_t>(num_consts + num_carry++),
                   {random.choose(std::vector{DType::f32, DType::u8, DType::i64}), shape});
    }
    auto made = std::make_shared<Function>();
    Builder b(*made);
    std::vector<ValueId> inputs;
    for (const Type& type : types) inputs.push_back(b.add_input(type));
    std::vector<ValueId> known(inputs.begin() + (has_large ? 1 : 0), inputs.end());
    const ValueId last = inputs[num_consts + num_carry - 1];
    if (has_array) std::erase(known, last);
    RandomBody values(b, random, known, kinds);
    if (has_large) read_large(b, values, inputs[0]);
    values.grow(random.between(0, 25));
    RandomArray array(b, random, values, last);
    if (has_large && random.chance(10)) {  // a copy of a constant, too large for a loop program
      const ValueId i = values.of_type({DType::i32, {}});
      const ValueId part = values.of_type({types[0].dtype, {2, 2}});
      const ValueId copy = ops::dynamic_update_slice(b, inputs[0], part, {i, i});
      values.append(ops::reshape(b, ops::dynamic_slice(b, copy, {i, i}, {1, 2}), {2}));
      may_be_kernel = false;
    }
    for (std::int64_t i = has_array ? random.between(0, 5) : 0; i > 0; --i) {
      array.step();
      values.grow(random.between(0, 3));
    }
    may_be_kernel = may_be_kernel && !array.has_read_old();
    if (depth == 0 && kinds.has_calls && random.chance(40)) nest(b, values, seed);
    std::vector<ValueId> outputs;
    for (std::size_t i = 0; i < num_carry; ++i) {
      outputs.push_back(values.of_type(types[num_consts + i]));
    }
    if (has_array) outputs.back() = array.array();
    if (is_while) {
      outputs[0] = ops::add(b, inputs[num_consts], ops::scalar(b, 1.0, DType::i32));
    } else {
      for (std::size_t i = random.pick(4); i > 0; --i) outputs.push_back(values.any());
    }
    b.set_outputs(outputs);
    body = made;
  }

  /// Lets the body read parts of a constant that has too many elements for a register.
  static void read_large(Builder& b, RandomBody& values, ValueId constant) {
    const ValueId i = values.of_type({DType::i32, {}});
    const ValueId row = ops::dynamic_slice(b, constant, {i, i}, {1, 3});
    values.append(ops::reshape(b, ops::convert(b, row, DType::f32), {3}));
  }

  void nest(Builder& b, RandomBody& values, std::uint64_t seed) {
    const RandomLoop inner(seed + 1'000'000, kinds, 1);
    for (std::size_t i = 0; i < inner.types.size(); ++i) {
      if (num_elements(inner.type_outside(i).shape) > kMostElements) return;
    }
    std::vector<ValueId> operands;
    for (std::size_t i = 0; i < inner.types.size(); ++i) {
      operands.push_back(values.of_type(inner.type_outside(i)));
    }
    if (inner.is_while) operands[inner.num_consts] = ops::scalar(b, 0.0, DType::i32);
    for (const ValueId id : inner.add_loop(b, operands)) {
      const std::int64_t size = num_elements(b.type(id).shape);
      if (size <= kMostElements) values.append(id);
    }
  }

  Loops build() const {
    Loops loops;
    build_loop(loops.loop);
    build_rounds(loops.rounds);
    return loops;
  }

  std::vector<ValueId> add_inputs(Builder& b) const {
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < types.size(); ++i) {
      // Loop counters start at 0.
      inputs.push_back(is_while && i == num_consts ? ops::scalar(b, 0.0, DType::i32)
                                                   : b.add_input(type_outside(i)));
    }
    return inputs;
  }

  Type type_outside(std::size_t i) const {
    Type type = types[i];
    if (i >= num_consts + num_carry) type.shape.insert(type.shape.begin(), length);
    return type;
  }

  void build_loop(Function& function) const {
    Builder b(function);
    b.set_outputs(add_loop(b, add_inputs(b)));
  }

  std::vector<ValueId> add_loop(Builder& b, const std::vector<ValueId>& inputs) const {
    if (!is_while) {
      return ops::scan(b,
                       {.length = length,
                        .num_consts = num_consts,
                        .num_carry = num_carry,
                        .is_reverse = is_reverse},
                       body, inputs);
    }
    auto condition = std::make_shared<Function>();
    Builder c(*condition);
    std::vector<ValueId> tested;
    for (const Type& type : types) tested.push_back(c.add_input(type));
    const ValueId end = ops::scalar(c, static_cast<double>(length), DType::i32);
    c.set_outputs({ops::compare(c, "lt", tested[num_consts], end)});
    return ops::while_loop(b, num_consts, condition, body, inputs);
  }

  void build_rounds(Function& function) const {
    Builder b(function);
    const std::vector<ValueId> inputs = add_inputs(b);
    const auto first_carry = inputs.begin() + static_cast<std::ptrdiff_t>(num_consts);
    std::vector<ValueId> carries(first_carry, first_carry + static_cast<std::ptrdiff_t>(num_carry));
    std::vector<std::vector<ValueId>> stacked(body->outputs.size() - num_carry);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t round = is_reverse ? length - 1 - i : i;
      std::vector<ValueId> arguments(inputs.begin(), first_carry);
      arguments.insert(arguments.end(), carries.begin(), carries.end());
      for (std::size_t k = num_consts + num_carry; k < types.size(); ++k) {
        arguments.push_back(
            ops::reshape(b, ops::slice_dim(b, inputs[k], 0, round, round + 1), types[k].shape));
      }
      const std::vector<ValueId> outputs = b.inline_function(*body, arguments);
      std::copy_n(outputs.begin(), num_carry, carries.begin());
      for (std::size_t k = 0; k < stacked.size(); ++k) {
        const ValueId slice = outputs[num_carry + k];
        Shape shape = b.type(slice).shape;
        shape.insert(shape.begin(), 1);
        const ValueId row = ops::reshape(b, slice, shape);
        stacked[k].insert(is_reverse ? stacked[k].begin() : stacked[k].end(), row);
      }
    }
    for (std::size_t k = 0; k < stacked.size(); ++k) {
      Type type = body->type(body->outputs[num_carry + k]);
      type.shape.insert(type.shape.begin(), 0);
      carries.push_back(length == 0 ? ops::full(b, 0.0, type) : ops::concatenate(b, stacked[k], 0));
    }
    b.set_outputs(carries);
  }

  Random random;
  const Kinds& kinds;
  std::size_t num_consts;
  std::size_t num_carry;
  std::size_t num_scanned;
  bool is_while;
  bool is_reverse;
  bool may_be_kernel = true;
  std::int64_t length;
  std::vector<Type> types;
  std::shared_ptr<const Function> body;
};

/// Whether no loop is left that runs its body as an executable.
bool are_loops_kernels(const Function& function) {
  const auto executable =
      compile(function, {.is_donated = std::vector<bool>(function.inputs.size()),
                         .output_alias = std::vector<int>(function.outputs.size(), -1)});
  return std::ranges::none_of(executable->tasks,
                              [](const run::Task& task) { return task.control != nullptr; });
}

/// A loop with unsplit operands and results is not a small loop if devices share the work of its
/// body.
TEST(SmallLoop, DevicesShareTheWorkOfABody) {
  const Function f = parsed("data=2", R"((%0: f32[4]<{}>, %1: f32[3,6]<{},{}>) {
  %2: f32[4]<{}>, %3: f32[3,4]<{},{}> = scan[body={(%0: f32[4]<{}>, %1: f32[6]<{}>) {
    %2: f32[6]<{data}> = all_slice %1
    %3: f32[6]<{data}> = mul %2, %2
    %4: f32[]<+{data}> = reduce_sum[dims=[0]] %3
    %5: f32[]<> = all_reduce[reduction="sum"] %4
    %6: f32[4]<{}> = broadcast_in_dim[dims=[], shape=[4]] %5
    %7: f32[4]<{}> = add %0, %6
    return %7, %6
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0, %1
  return %2, %3
})");
  EXPECT_FALSE(are_loops_kernels(f));
  EXPECT_TRUE(are_loops_kernels(on_one_device(f)));
  check(f, inputs_of(f), {0, -1});
}

/// A loop within a loop reads one array and writes another of the same type.
TEST(SmallLoop, AnInnerLoopWritesTheArrayThatItCarries) {
  const Function f = parsed("none", R"((%0: f32[3000]<{}>, %1: f32[3000]<{}>, %2: i32[]<>) {
  %3: f32[3000]<{}>, %4: f32[3000]<{}>, %5: i32[]<> = scan[body={
      (%0: f32[3000]<{}>, %1: f32[3000]<{}>, %2: i32[]<>) {
    %3: f32[3000]<{}>, %4: i32[]<> = scan[body={
        (%0: f32[3000]<{}>, %1: f32[3000]<{}>, %2: i32[]<>) {
      %3: f32[2]<{}> = dynamic_slice[sizes=[2]] %0, %2
      %4: f32[2]<{}> = dynamic_slice[sizes=[2]] %1, %2
      %5: f32[2]<{}> = add %3, %4
      %6: i32[]<> = constant[dtype=i32, shape=[], value=1.0]
      %7: i32[]<> = add %2, %6
      %8: f32[3000]<{}> = dynamic_update_slice %1, %5, %7
      return %8, %7
    }}, length=4, num_carry=2, num_consts=1, reverse=false] %0, %1, %2
    return %0, %3, %4
  }}, length=3, num_carry=3, num_consts=0, reverse=false] %0, %1, %2
  return %3, %4, %5
})");
  EXPECT_TRUE(are_loops_kernels(f));
  check(f, inputs_of(f), {0, 1, 2});
}

void check_loop(std::uint64_t seed, const Kinds& kinds) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const RandomLoop random(seed, kinds);
  const Loops loops = random.build();
  const bool is_kernel = are_loops_kernels(on_one_device(loops.loop));
  EXPECT_TRUE(is_kernel || !random.may_be_kernel) << ir::print(loops.loop);
  const Arrays inputs = inputs_of(loops.loop);
  const Arrays wanted = tessera::testing::run_whole(loops.rounds, inputs);
  const Arrays found = tessera::testing::run_whole(loops.loop, inputs);
  EXPECT_EQ(first_difference(found, wanted), std::nullopt) << ir::print(loops.loop);
}

void check_loops(const Kinds& kinds) {
  const char* given = std::getenv("TESSERA_SEED");
  const std::uint64_t first = given == nullptr ? 1 : std::stoull(given);
  kernels::testing::on_every_target([&](const char*) {
    for (std::uint64_t i = 0; i < 100 && !::testing::Test::HasFailure(); ++i)
      check_loop(first + i, kinds);
  });
}

TEST(SmallLoop, RandomLoopsHaveTheBitsOfTheirRounds) { check_loops(kAll); }

TEST(SmallLoop, RandomLoopsOfNumbersHaveTheBitsOfTheirRounds) { check_loops(kNumbers); }

}  // namespace
}  // namespace tessera::compile
