// Moves values of a scalar program between registers and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>
#include <xbyak/xbyak.h>

#include "compile/host/kernels/loop/code/allocation.h"
#include "compile/host/kernels/loop/code/scalar_program.h"

namespace tessera::kernels::loops {

/// Registers that no value has: rax, rcx, rdx, and four of the vector registers.
class Assembler : public Xbyak::CodeGenerator {
 protected:
  using Reg = Xbyak::Reg64;
  using Xmm = Xbyak::Xmm;

  static RegisterFile register_file();
  static Xmm scratch(int i) { return Xmm(12 + i); }

  /// The first `fixed_bytes` of the stack frame are not used for slots.
  Assembler(ScalarProgram program, std::size_t code_bytes, std::size_t fixed_bytes);

  void begin_function();
  void end_function();

  const ScalarProgram::Value& value(int v) const {
    return program_.values[static_cast<std::size_t>(v)];
  }
  std::size_t bytes_of(int v) const { return size_bytes(value(v).dtype); }
  const std::uint64_t* constant(int v) const;

  bool holds(int v, const Reg& reg) const {
    return location(v) == Location{Location::Kind::general, reg.getIdx()};
  }
  /// The register of a value, or `other`, into which it is loaded.
  Reg general(int v, const Reg& other);
  Xmm vector(int v, const Xmm& other);
  /// Copies a value of either kind.
  void get(const Reg& to, int v);
  /// The register that gets a value, or `other`, which put() then stores.
  Reg target(int v, const Reg& other) const;
  Xmm target(int v, const Xmm& other) const;
  void put(int v, const Reg& from);
  void put(int v, const Xmm& from);

  /// Numbers in memory.
  void load(int v, const Xbyak::RegExp& from);
  void store(int v, const Xbyak::RegExp& to);

  /// A number in the code, for vector registers.
  void load_constant(const Xmm& to, std::uint64_t bits);
  void add_number(const Reg& to, std::int64_t number, const Reg& other);
  /// Gives all carried values their next values.
  void move_carried();
  void add_constants();

  const ScalarProgram program_;

 private:
  struct Move {
    Location from;
    std::uint64_t bits;  // of a constant
    Location to;
  };

  const Location& location(int v) const {
    return allocation_.locations[static_cast<std::size_t>(v)];
  }
  Xbyak::RegExp slot(int index) const {
    return rsp + (fixed_bytes_ + 8 * static_cast<std::size_t>(index));
  }
  std::uint64_t bits_of(int v) const;  // of a constant; otherwise 0
  void get(const Reg& to, const Location& from, std::uint64_t bits);
  void get(const Xmm& to, const Location& from, std::uint64_t bits);
  void move(const Move& move);

  Allocation allocation_;
  std::size_t fixed_bytes_;
  std::uint32_t frame_bytes_;
  Xbyak::Label constants_label_;
  std::vector<std::uint64_t> constants_;
};

}  // namespace tessera::kernels::loops
