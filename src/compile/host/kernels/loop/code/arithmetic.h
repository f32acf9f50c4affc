// Machine code for ops on single numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compile/host/kernels/loop/code/assembler.h"

namespace tessera::kernels::loops {

class Arithmetic : public Assembler {
 protected:
  using Assembler::Assembler;

  /// Code for an op of kernels, a conversion or a cast. Results have the bits of the kernels.
  void compute(const Instruction& made);
  /// Jumps if the condition of a `leave` is false.
  void leave_unless(const Instruction& made, const Xbyak::Label& to);

 private:
  enum Predicate : std::uint8_t {
    kEqual = 0,
    kLess = 1,
    kLessOrEqual = 2,
    kUnordered = 3,
    kNotEqual = 4
  };

  /// The instructions that read the flags after a comparison.
  struct Condition {
    void (Xbyak::CodeGenerator::*set)(const Xbyak::Operand& to);
    void (Xbyak::CodeGenerator::*move)(const Xbyak::Reg& to, const Xbyak::Operand& from);
    void (Xbyak::CodeGenerator::*jump_unless)(const Xbyak::Label& to, LabelType type);
  };

  void set_operands(DType dtype);
  void compute_float(const Instruction& made);
  std::uint64_t sign_bit() const;
  std::uint64_t one() const;
  void round(Op op, const Xmm& to, const Xmm& x);
  Xmm sign_of(const Xmm& x);
  void multiply_add(const Instruction& made);
  Xmm extreme(Op op, const Xmm& x, const Xmm& y);
  void clamp_float(const Instruction& made);
  void compare(const Xmm& to, const Xmm& x, const Xmm& y, Predicate predicate);
  void compare_floats(const Instruction& made, const Xmm& x, const Xmm& y);
  void select_float(const Instruction& made);
  Xbyak::Reg sized(const Reg& reg) const;
  void compute_integer(const Instruction& made);
  Reg target_besides(int v, int besides, const Reg& other);
  void compute_unary(const Instruction& made, const Reg& to);
  void sign_of(const Xbyak::Reg& x);
  void compute_binary(Op op, const Reg& to, int y);
  std::optional<std::uint32_t> immediate(int v) const;
  void choose_extreme(Op op, const Reg& to, int y);
  void compare_integers(int x, int y);
  Condition condition(Op relation) const;
  void shift(const Instruction& made);
  void divide(const Instruction& made);
  Condition test_condition(const Instruction& made);
  void select_integer(const Instruction& made);
  void cast(int from, int to);
  void convert(int from, int to);
  void convert_float(int from, int to);

  bool is_wide_ = false;  // numbers of 8 bytes
  bool is_signed_ = false;
};

}  // namespace tessera::kernels::loops
