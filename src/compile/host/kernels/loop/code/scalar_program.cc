#include "compile/host/kernels/loop/code/scalar_program.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "compile/host/kernels/boxes.h"

namespace tessera::kernels::loops {

namespace {

using Step = LoopProgram::Step;
using Element = LoopProgram::Element;

constexpr std::int64_t kMostElements = 4;  // of an elementwise step: more are faster as vectors
constexpr std::size_t kMostPartElements = 16;
constexpr std::size_t kMostInstructions = 2000;
/// A call takes some 10 ns longer than a stage of a chain, another instruction 1.5 ns less.
constexpr std::ptrdiff_t kInstructionsPerCall = 7;

/// The loop has something that is not made of single numbers.
struct NotScalar {};

void check(bool is_scalar) {
  if (!is_scalar) throw NotScalar();
}

bool is_number(DType dtype) { return is_float(dtype) || is_integer(dtype); }
bool is_full(DType dtype) { return is_number(dtype) && size_bytes(dtype) >= 4; }

struct NamedOp {
  std::string_view name;
  Op op;
  bool is_of_floats;
  bool is_of_integers;
  bool is_of_booleans;
};

constexpr NamedOp kOps[] = {
    {"neg", Op::neg, true, true, false},
    {"abs", Op::abs, true, true, false},
    {"sign", Op::sign, true, true, false},
    {"add", Op::add, true, true, false},
    {"sub", Op::sub, true, true, false},
    {"mul", Op::mul, true, true, false},
    {"div", Op::div, true, true, false},
    {"max", Op::max, true, true, false},
    {"max", Op::bit_or, false, false, true},
    {"min", Op::min, true, true, false},
    {"min", Op::bit_and, false, false, true},
    {"clamp", Op::clamp, true, true, false},
    {"select", Op::select, true, true, true},
    {"compare_eq", Op::compare_eq, true, true, true},
    {"compare_ne", Op::compare_ne, true, true, true},
    {"compare_lt", Op::compare_lt, true, true, true},
    {"compare_le", Op::compare_le, true, true, true},
    {"compare_gt", Op::compare_gt, true, true, true},
    {"compare_ge", Op::compare_ge, true, true, true},
    {"sqrt", Op::sqrt, true, false, false},
    {"rsqrt", Op::rsqrt, true, false, false},
    {"floor", Op::floor, true, false, false},
    {"ceil", Op::ceil, true, false, false},
    {"round", Op::round, true, false, false},
    {"fma", Op::fma, true, false, false},
    {"rem", Op::rem, false, true, false},
    {"and", Op::bit_and, false, true, true},
    {"or", Op::bit_or, false, true, true},
    {"xor", Op::bit_xor, false, true, true},
    {"not", Op::bit_not, false, true, true},
    {"shift_left", Op::shift_left, false, true, false},
    {"shift_right_logical", Op::shift_right_logical, false, true, false},
    {"shift_right_arithmetic", Op::shift_right_arithmetic, false, true, false},
};

/// Whether the processor converts them with the meaning that kernels give it.
bool is_converted(DType from, DType to) {
  const bool is_from_known = is_full(from) || from == DType::boolean;
  const bool is_to_known = is_full(to) || to == DType::boolean;
  if (!is_from_known || !is_to_known) return false;
  if (is_float(from)) return is_float(to) || to == DType::boolean;
  return !is_float(to) || from != DType::u64;
}

/// The op of an elementwise kernel; Op::call if it has none of its own.
Op op_of(const KernelName& kernel, DType result) {
  const auto& [name, dtype] = kernel;
  if (name.starts_with("convert_")) return is_converted(dtype, result) ? Op::convert : Op::call;
  if (!is_full(dtype) && dtype != DType::boolean) return Op::call;
  for (const NamedOp& named : kOps) {
    const bool is_meant = is_float(dtype)     ? named.is_of_floats
                          : is_integer(dtype) ? named.is_of_integers
                                              : named.is_of_booleans;
    if (named.name == name && is_meant) return named.op;
  }
  return Op::call;
}

class Builder {
 public:
  Builder(const LoopProgram& program, const Order& order)
      : program_(program), order_(order), elements_(program.registers.size()) {
    for (const auto& constant : program.constants) constants_[constant.reg] = &constant;
    for (const auto& load : program.loads) loads_[load.reg] = &load;
    for (const auto& carry : program.carries) carries_[carry.reg] = &carry;
  }

  ScalarProgram build() {
    for (const auto& carry : program_.carries) begin(carry);
    list_ = &made_.before;
    add(order_.before);
    if (program_.decision >= 0) {
      list_ = &condition_;
      add(order_.condition);
      emit({.op = Op::leave, .inputs = {value({.reg = program_.decision, .index = 0})}});
    }
    list_ = &body_;
    if (program_.decision >= 0 || program_.length > 0) {
      add(order_.body);
      for (const auto& store : program_.stores) add(store);
      for (const auto& carry : program_.carries) end(carry);
      finish_round();
    }
    list_ = &made_.after;
    for (const auto& carry : program_.carries) write_back(carry);
    made_.before.insert(made_.before.begin(), setup_.begin(), setup_.end());
    join_comparisons();
    remove_dead(made_.round);
    check(has_few_calls());
    find_masks();
    check(made_.before.size() + made_.round.size() + made_.after.size() <= kMostInstructions);
    return std::move(made_);
  }

 private:
  // --- values

  int add_value(DType dtype) {
    made_.values.push_back({.dtype = dtype});
    return static_cast<int>(made_.values.size()) - 1;
  }
  int add_constant(DType dtype, std::uint64_t bits) {
    const int made = add_value(dtype);
    made_.values[at(made)].constant = bits;
    return made;
  }
  DType dtype_of(int value) const { return made_.values[at(value)].dtype; }
  static std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_bytes(dtype)); }

  static std::uint64_t bits_at(const std::byte* from, DType dtype) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, size_bytes(dtype));
    return bits;
  }

  int emit(Instruction instruction, DType result) {
    return emit_in(*list_, std::move(instruction), result);
  }
  int emit_in(std::vector<Instruction>& list, Instruction instruction, DType result) {
    const int made = add_value(result);
    instruction.outputs = {made};
    list.push_back(std::move(instruction));
    return made;
  }
  void emit(Instruction instruction) { list_->push_back(std::move(instruction)); }

  /// The same bits as a value of a dtype that is held in the same kind of register.
  int as(int value, DType dtype) {
    const DType from = dtype_of(value);
    check(size_bytes(from) == size_bytes(dtype));
    if (is_in_vector(from) == is_in_vector(dtype)) return value;
    if (made_.values[at(value)].constant)
      return add_constant(dtype, *made_.values[at(value)].constant);
    return emit({.op = Op::cast, .inputs = {value}}, dtype);
  }

  std::vector<int>& values_of(int reg) {
    std::vector<int>& values = elements_[at(reg)];
    if (values.empty()) values.assign(static_cast<std::size_t>(size_of(reg)), -1);
    return values;
  }
  std::int64_t size_of(int reg) const { return program_.registers[at(reg)].size; }
  DType dtype_of_register(int reg) const { return program_.registers[at(reg)].dtype; }

  int value(const Element& element) {
    int& known = values_of(element.reg)[static_cast<std::size_t>(element.index)];
    if (known >= 0) return known;
    const DType dtype = dtype_of_register(element.reg);
    const std::int64_t offset = element.index * bytes_of(dtype);
    if (const auto constant = constants_.find(element.reg); constant != constants_.end()) {
      return known = add_constant(dtype, bits_at(constant->second->bytes.data() + offset, dtype));
    }
    const auto load = loads_.find(element.reg);
    check(load != loads_.end());
    const int from = place_of(*load->second);
    std::vector<Instruction>& list = load->second->stride == 0 ? setup_ : round_loads_;
    return known = emit_in(list, {.op = Op::load, .inputs = {from}, .offset = offset}, dtype);
  }
  /// Element i of a step's input, of which a single element stands for all.
  int input(int reg, std::int64_t i) {
    return value({.reg = reg, .index = size_of(reg) == 1 ? 0 : i});
  }

  // --- buffers

  int pointer(int buffer) {
    const auto [found, is_new] = pointers_.try_emplace(buffer, -1);
    if (is_new) found->second = emit_in(setup_, {.op = Op::pointer, .offset = buffer}, DType::i64);
    return found->second;
  }

  /// Where a round's part of a buffer begins. `stride` is in bytes.
  int cursor(int buffer, std::int64_t stride) {
    const int first = pointer(buffer);
    if (stride == 0) return first;
    const auto [found, is_new] = cursors_.try_emplace({buffer, stride}, -1);
    if (!is_new) return found->second;
    const std::int64_t begin =
        program_.is_reverse && program_.length > 0 ? (program_.length - 1) * stride : 0;
    return found->second =
               emit_in(setup_, {.op = Op::advance, .inputs = {first}, .offset = begin}, DType::i64);
  }

  int place_of(const LoopProgram::Load& load) {
    return cursor(load.buffer, load.stride * bytes_of(dtype_of_register(load.reg)));
  }

  int array(const LoopProgram::Part& part) {
    const int reg = part.array;
    if (const auto carry = carries_.find(reg); carry != carries_.end()) {
      check(program_.registers[at(reg)].is_in_place);
      return pointer(carry->second->to);
    }
    check(!part.is_written);
    if (const auto load = loads_.find(reg); load != loads_.end()) return place_of(*load->second);
    const auto constant = constants_.find(reg);
    check(constant != constants_.end());
    return add_constant(DType::i64,
                        reinterpret_cast<std::uintptr_t>(constant->second->bytes.data()));
  }

  // --- steps

  void add(const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      for (const std::size_t s : group.steps) add(order_.steps[s]);
    }
  }

  void add(const Step& step) {
    check(step.call == nullptr && list_->size() < kMostInstructions);
    if (step.part != nullptr) return add_part(*step.part);
    if (step.kernel != nullptr) return compute(step);
    std::vector<int> values;
    for (const Element& element : step.elements) values.push_back(value(element));
    values_of(step.output()) = std::move(values);
  }

  void compute(const Step& step) {
    const int out = step.output();
    const DType dtype = dtype_of_register(out);
    const std::int64_t size = size_of(out);
    check(size <= kMostElements);
    const KernelName name = name_of(*step.kernel);
    if (name.name == "copy") {
      for (std::int64_t i = 0; i < size; ++i) set(out, i, input(step.inputs[0], i));
      return;
    }
    const Op op = op_of(name, dtype);
    if (op == Op::call) return call(step);
    for (std::int64_t i = 0; i < size; ++i) {
      Instruction made{.op = op, .dtype = name.dtype};
      for (const int reg : step.inputs) {
        const bool is_chooser = op == Op::select && made.inputs.empty();
        made.inputs.push_back(as(input(reg, i), is_chooser ? DType::boolean : name.dtype));
      }
      set(out, i, emit(std::move(made), dtype));
    }
  }
  void set(int reg, std::int64_t i, int value) {
    values_of(reg)[static_cast<std::size_t>(i)] = value;
  }

  void call(const Step& step) {
    Instruction made{.op = Op::call, .kernel = step.kernel};
    const int out = step.output();
    for (const int reg : step.inputs) {
      for (std::int64_t i = 0; i < size_of(out); ++i) made.inputs.push_back(input(reg, i));
    }
    for (std::int64_t i = 0; i < size_of(out); ++i) {
      made.outputs.push_back(add_value(dtype_of_register(out)));
      set(out, i, made.outputs.back());
    }
    emit(std::move(made));
  }

  void add_part(const LoopProgram::Part& part) {
    const DType dtype = dtype_of_register(part.part);
    const std::size_t size = static_cast<std::size_t>(size_of(part.part));
    check(size <= kMostPartElements);
    PartPlace place;
    Instruction made{.op = part.is_written ? Op::write : Op::read, .inputs = {array(part)}};
    if (part.is_written) {
      for (std::size_t i = 0; i < size; ++i) {
        made.inputs.push_back(input(part.part, static_cast<std::int64_t>(i)));
      }
    }
    const std::vector<std::int64_t> strides = row_major_strides(part.extents);
    for (std::size_t d = 0; d < strides.size(); ++d) {
      if (part.starts[d] < 0) continue;
      made.inputs.push_back(as(value({.reg = part.starts[d], .index = 0}), DType::i32));
      place.dims.push_back(
          {.last = part.extents[d] - part.sizes[d], .stride = strides[d] * bytes_of(dtype)});
    }
    for (std::size_t i = 0; i < size; ++i) {
      place.offsets.push_back(offset_in(part.sizes, strides, i) * bytes_of(dtype));
      if (part.is_written) continue;
      made.outputs.push_back(add_value(dtype));
      set(part.part, static_cast<std::int64_t>(i), made.outputs.back());
    }
    if (!part.outside.empty()) place.outside = bits_at(part.outside.data(), dtype);
    made.place = std::make_shared<const PartPlace>(std::move(place));
    emit(std::move(made));
  }

  /// Of element i of a part.
  static std::int64_t offset_in(const std::vector<std::int64_t>& sizes,
                                const std::vector<std::int64_t>& strides, std::size_t i) {
    std::int64_t offset = 0;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
      offset += rest % sizes[d] * strides[d];
    }
    return offset;
  }

  // --- rounds

  void begin(const LoopProgram::Carry& carry) {
    if (program_.registers[at(carry.reg)].is_in_place) return;
    const DType dtype = dtype_of_register(carry.reg);
    const int from = pointer(carry.from);
    for (std::int64_t i = 0; i < size_of(carry.reg); ++i) {
      const std::int64_t offset = i * bytes_of(dtype);
      set(carry.reg, i,
          emit_in(setup_, {.op = Op::load, .inputs = {from}, .offset = offset}, dtype));
    }
  }

  void add(const LoopProgram::Store& store) {
    const DType dtype = dtype_of_register(store.elements[0].reg);
    const int to = cursor(store.buffer, store.stride * bytes_of(dtype));
    for (std::size_t i = 0; i < store.elements.size(); ++i) {
      stores_.push_back({.op = Op::store,
                         .inputs = {to, value(store.elements[i])},
                         .offset = static_cast<std::int64_t>(i) * bytes_of(dtype)});
    }
  }

  void end(const LoopProgram::Carry& carry) {
    if (program_.registers[at(carry.reg)].is_in_place) return;
    for (std::int64_t i = 0; i < size_of(carry.reg); ++i) {
      const int now = value({.reg = carry.reg, .index = i});
      const int next = value(carry.next[static_cast<std::size_t>(i)]);
      if (next != now) made_.carried.push_back({.value = now, .next = as(next, dtype_of(now))});
    }
  }

  void finish_round() {
    auto& round = made_.round;
    for (const auto* list : {&condition_, &round_loads_, &body_, &stores_}) {
      round.insert(round.end(), list->begin(), list->end());
    }
    for (const auto& [key, cursor] : cursors_) {
      advance(cursor, program_.is_reverse ? -key.second : key.second);
    }
    if (program_.decision >= 0) return;
    const int length = add_constant(DType::i64, static_cast<std::uint64_t>(program_.length));
    made_.counter = emit_in(setup_, {.op = Op::advance, .inputs = {length}}, DType::i64);
    advance(made_.counter, -1);
  }
  /// At the end of each round.
  void advance(int value, std::int64_t by) {
    const int next =
        emit_in(made_.round, {.op = Op::advance, .inputs = {value}, .offset = by}, DType::i64);
    made_.carried.push_back({.value = value, .next = next});
  }

  void write_back(const LoopProgram::Carry& carry) {
    if (program_.registers[at(carry.reg)].is_in_place) return;
    const int to = emit({.op = Op::pointer, .offset = carry.to}, DType::i64);
    const DType dtype = dtype_of_register(carry.reg);
    for (std::int64_t i = 0; i < size_of(carry.reg); ++i) {
      emit({.op = Op::store,
            .inputs = {to, value({.reg = carry.reg, .index = i})},
            .offset = i * bytes_of(dtype)});
    }
  }

  // A condition that is a comparison of integers is computed where it is needed.
  void join_comparisons() {
    std::map<int, const Instruction*> comparisons;
    for (Instruction& made : made_.round) {
      if (is_comparison(made.op) && !is_in_vector(made.dtype)) comparisons[made.outputs[0]] = &made;
      const bool is_select = made.op == Op::select && !is_in_vector(made.dtype);
      if (!is_select && made.op != Op::leave) continue;
      const auto found = comparisons.find(made.inputs[0]);
      if (found == comparisons.end()) continue;
      const Instruction& comparison = *found->second;
      made.compared = {.relation = comparison.op, .dtype = comparison.dtype};
      made.inputs.erase(made.inputs.begin());
      made.inputs.insert(made.inputs.begin(), comparison.inputs.begin(), comparison.inputs.end());
    }
  }

  bool has_few_calls() const {
    const auto calls = std::count_if(made_.round.begin(), made_.round.end(),
                                     [](const Instruction& made) { return made.op == Op::call; });
    return calls * kInstructionsPerCall <= std::ssize(made_.round);
  }

  void remove_dead(std::vector<Instruction>& list) const {
    std::vector<bool> is_read(made_.values.size(), false);
    for (const auto& carried : made_.carried) is_read[at(carried.next)] = true;
    std::vector<Instruction> kept;
    for (auto made = list.rbegin(); made != list.rend(); ++made) {
      const bool has_effect =
          made->op == Op::store || made->op == Op::write || made->op == Op::leave;
      const bool is_needed = std::any_of(made->outputs.begin(), made->outputs.end(),
                                         [&](int v) { return is_read[at(v)]; });
      if (!has_effect && !is_needed) continue;
      for (const int v : made->inputs) is_read[at(v)] = true;
      kept.push_back(std::move(*made));
    }
    list.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  // A comparison of floats is a mask if it only chooses between floats of the same size or ends
  // the loop.
  void find_masks() {
    std::vector<std::size_t> compared_bytes(made_.values.size(), 0);
    for (const auto& instruction : made_.round) {
      if (!is_in_vector(instruction.dtype) || !is_comparison(instruction.op)) continue;
      made_.values[at(instruction.outputs[0])].is_mask = true;
      compared_bytes[at(instruction.outputs[0])] = size_bytes(instruction.dtype);
    }
    for (const auto* list : {&made_.before, &made_.round, &made_.after}) {
      for (const Instruction& reader : *list) {
        for (std::size_t i = 0; i < reader.inputs.size(); ++i) {
          const int input = reader.inputs[i];
          const bool chooses = reader.op == Op::select && i == 0 && is_in_vector(reader.dtype) &&
                               compared_bytes[at(input)] == size_bytes(reader.dtype);
          if (!chooses && reader.op != Op::leave) made_.values[at(input)].is_mask = false;
        }
      }
    }
    for (const auto& carried : made_.carried) made_.values[at(carried.next)].is_mask = false;
  }

  const LoopProgram& program_;
  const Order& order_;
  std::map<int, const LoopProgram::Constant*> constants_;  // per register
  std::map<int, const LoopProgram::Load*> loads_;
  std::map<int, const LoopProgram::Carry*> carries_;
  ScalarProgram made_;
  std::vector<std::vector<int>> elements_;  // per register: the values of its elements
  std::map<int, int> pointers_;             // per buffer
  std::map<std::pair<int, std::int64_t>, int> cursors_;
  std::vector<Instruction>* list_ = nullptr;
  std::vector<Instruction> setup_;  // comes first
  std::vector<Instruction> condition_;
  std::vector<Instruction> round_loads_;
  std::vector<Instruction> body_;
  std::vector<Instruction> stores_;
};

}  // namespace

std::optional<ScalarProgram> scalar_program_of(const LoopProgram& program, const Order& order) {
  try {
    return Builder(program, order).build();
  } catch (const NotScalar&) {
    return std::nullopt;
  }
}

}  // namespace tessera::kernels::loops
