// Loops as instructions on single numbers, from which machine code is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compile/host/kernels/loop/loop_order.h"

namespace tessera::kernels::loops {

/// Whether processors compute with the dtype in vector registers.
inline bool is_in_vector(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

/// What an instruction does. The ops of elementwise kernels have the names of the kernels, with
/// `bit_` before words of C++.
enum class Op : std::uint8_t {
  // Of floats and of integers.
  neg,
  abs,
  sign,
  add,
  sub,
  mul,
  div,
  max,
  min,
  clamp,
  select,
  compare_eq,
  compare_ne,
  compare_lt,
  compare_le,
  compare_gt,
  compare_ge,
  // Of floats.
  sqrt,
  rsqrt,
  floor,
  ceil,
  round,
  fma,
  // Of integers and booleans.
  rem,
  bit_and,
  bit_or,
  bit_xor,
  bit_not,
  shift_left,
  shift_right_logical,
  shift_right_arithmetic,
  // These have the dtypes of their values.
  convert,
  cast,  // keeps the bits

  call,     // of a kernel, for numbers that are adjacent in memory
  pointer,  // a buffer
  load,     // `offset` bytes after the first input, which is a pointer
  store,    // the second input to the place `offset` bytes after the first
  advance,  // the input, plus `offset`
  read,     // a part: the array, then the starts
  write,    // a part: the array, the elements, then the starts
  leave,    // ends the loop if the input is false
};

inline bool is_comparison(Op op) { return op >= Op::compare_eq && op <= Op::compare_ge; }

/// The place of a part in an array.
struct PartPlace {
  struct Dim {
    std::int64_t last;    // the greatest start
    std::int64_t stride;  // in bytes
  };
  std::vector<Dim> dims;                 // one per start
  std::vector<std::int64_t> offsets;     // of the elements, in bytes
  std::optional<std::uint64_t> outside;  // see LoopProgram::Part
};

struct Instruction {
  /// A comparison of integers that is made where its result is needed.
  struct Comparison {
    Op relation;
    DType dtype;
  };

  Op op;
  DType dtype = DType::i64;      // of an elementwise op: of the operands, or of what is selected
  std::vector<int> inputs = {};  // values
  std::vector<int> outputs = {};
  std::int64_t offset = 0;  // see Op; of a pointer: the number of the buffer
  const TileKernel* kernel = nullptr;
  /// Of a select and of `leave`: the first two inputs are compared to get the condition.
  std::optional<Comparison> compared = std::nullopt;
  std::shared_ptr<const PartPlace> place = nullptr;
};

/// Every value is a single number, and is set by one instruction.
struct ScalarProgram {
  struct Value {
    DType dtype;
    std::optional<std::uint64_t> constant = std::nullopt;  // its bits
    /// A boolean that is kept as a number of bytes of ones or zeros in a vector register.
    bool is_mask = false;

    bool is_in_vector() const { return loops::is_in_vector(dtype) || is_mask; }
  };
  /// A value that changes from round to round.
  struct Carried {
    int value;  // set before the first round
    int next;   // its value in the next round
  };

  std::vector<Value> values;
  std::vector<Instruction> before;
  std::vector<Instruction> round;
  std::vector<Instruction> after;  // the last round
  std::vector<Carried> carried;
  int counter = -1;  // a carried value: rounds are run until it is 0; -1: until `leave`
};

/// nullopt if the loop has values of many numbers, or calls what is no elementwise kernel.
std::optional<ScalarProgram> scalar_program_of(const LoopProgram& program, const Order& order);

}  // namespace tessera::kernels::loops
