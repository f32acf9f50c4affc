#include "compile/host/kernels/loop/code/assembler.h"

#include <algorithm>
#include <utility>

namespace tessera::kernels::loops {

using Kind = Location::Kind;

RegisterFile Assembler::register_file() {
  using Xbyak::Operand;
  return {
      .general = {Operand::RSI, Operand::RDI, Operand::R8, Operand::R9, Operand::R10, Operand::R11},
      .general_kept = {Operand::RBX, Operand::RBP, Operand::R12, Operand::R13, Operand::R14,
                       Operand::R15},
      .vector = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
}

Assembler::Assembler(ScalarProgram program, std::size_t code_bytes, std::size_t fixed_bytes)
    : CodeGenerator(code_bytes, Xbyak::DontSetProtectRWE),
      program_(std::move(program)),
      allocation_(allocate(program_, register_file())),
      fixed_bytes_(fixed_bytes),
      frame_bytes_(static_cast<std::uint32_t>(fixed_bytes + 8 * allocation_.num_slots)) {
  // Six saved registers and the return address leave the stack 8 bytes off a multiple of 16.
  if (frame_bytes_ % 16 == 0) frame_bytes_ += 8;
}

void Assembler::begin_function() {
  for (const int reg : register_file().general_kept) push(Reg(reg));
  sub(rsp, frame_bytes_);
}

void Assembler::end_function() {
  add(rsp, frame_bytes_);
  std::vector<int> saved = register_file().general_kept;
  std::reverse(saved.begin(), saved.end());
  for (const int reg : saved) pop(Reg(reg));
  ret();
}

const std::uint64_t* Assembler::constant(int v) const {
  const auto& bits = value(v).constant;
  return bits ? &*bits : nullptr;
}

Assembler::Reg Assembler::general(int v, const Reg& other) {
  if (location(v).kind == Kind::general) return Reg(location(v).index);
  get(other, v);
  return other;
}

Assembler::Xmm Assembler::vector(int v, const Xmm& other) {
  if (location(v).kind == Kind::vector) return Xmm(location(v).index);
  get(other, location(v), bits_of(v));
  return other;
}

std::uint64_t Assembler::bits_of(int v) const {
  const std::uint64_t* bits = constant(v);
  return bits == nullptr ? 0 : *bits;
}

void Assembler::get(const Reg& to, int v) { get(to, location(v), bits_of(v)); }

void Assembler::get(const Reg& to, const Location& from, std::uint64_t bits) {
  if (from.kind == Kind::constant) {
    mov(to, bits);
  } else if (from.kind == Kind::slot) {
    mov(to, ptr[slot(from.index)]);
  } else if (from.kind == Kind::vector) {
    vmovq(to, Xmm(from.index));
  } else if (to != Reg(from.index)) {
    mov(to, Reg(from.index));
  }
}

void Assembler::get(const Xmm& to, const Location& from, std::uint64_t bits) {
  if (from.kind == Kind::constant) {
    load_constant(to, bits);
  } else if (from.kind == Kind::slot) {
    vmovsd(to, ptr[slot(from.index)]);
  } else if (from.kind == Kind::general) {
    vmovq(to, Reg(from.index));
  } else {
    vmovaps(to, Xmm(from.index));
  }
}

Assembler::Reg Assembler::target(int v, const Reg& other) const {
  return location(v).kind == Kind::general ? Reg(location(v).index) : other;
}

Assembler::Xmm Assembler::target(int v, const Xmm& other) const {
  return location(v).kind == Kind::vector ? Xmm(location(v).index) : other;
}

void Assembler::put(int v, const Reg& from) {
  const Location& to = location(v);
  if (to.kind == Kind::slot) {
    mov(ptr[slot(to.index)], from);
  } else if (to.kind == Kind::vector) {
    vmovq(Xmm(to.index), from);
  } else if (Reg(to.index) != from) {
    mov(Reg(to.index), from);
  }
}

void Assembler::put(int v, const Xmm& from) {
  const Location& to = location(v);
  if (to.kind == Kind::slot) {
    vmovsd(ptr[slot(to.index)], from);
  } else if (to.kind == Kind::general) {
    vmovq(Reg(to.index), from);
  } else if (Xmm(to.index) != from) {
    vmovaps(Xmm(to.index), from);
  }
}

void Assembler::load(int v, const Xbyak::RegExp& from) {
  const std::size_t bytes = bytes_of(v);
  if (value(v).is_in_vector()) {
    const Xmm to = target(v, scratch(0));
    bytes == 8 ? vmovsd(to, ptr[from]) : vmovss(to, ptr[from]);
    return put(v, to);
  }
  const Reg to = target(v, rax);
  switch (bytes) {
    case 1:
      movzx(to.cvt32(), byte[from]);
      break;
    case 2:
      movzx(to.cvt32(), word[from]);
      break;
    case 4:
      mov(to.cvt32(), ptr[from]);
      break;
    default:
      mov(to, ptr[from]);
  }
  put(v, to);
}

void Assembler::store(int v, const Xbyak::RegExp& to) {
  const std::size_t bytes = bytes_of(v);
  if (value(v).is_in_vector() && constant(v) == nullptr) {
    const Xmm from = vector(v, scratch(0));
    bytes == 8 ? vmovsd(ptr[to], from) : vmovss(ptr[to], from);
    return;
  }
  const Reg from = general(v, rdx);
  switch (bytes) {
    case 1:
      return mov(ptr[to], from.cvt8());
    case 2:
      return mov(ptr[to], from.cvt16());
    case 4:
      return mov(ptr[to], from.cvt32());
    default:
      return mov(ptr[to], from);
  }
}

void Assembler::load_constant(const Xmm& to, std::uint64_t bits) {
  auto found = std::find(constants_.begin(), constants_.end(), bits);
  if (found == constants_.end()) found = constants_.insert(found, bits);
  const auto offset = static_cast<int>(8 * (found - constants_.begin()));
  vmovsd(to, ptr[rip + constants_label_ + offset]);
}

void Assembler::add_number(const Reg& to, std::int64_t number, const Reg& other) {
  if (number == 0) return;
  if (number == static_cast<std::int32_t>(number)) {
    add(to, static_cast<std::uint32_t>(number));
  } else {
    mov(other, static_cast<std::uint64_t>(number));
    add(to, other);
  }
}

void Assembler::move_carried() {
  std::vector<Move> moves;
  for (const auto& carried : program_.carried) {
    const Move move{.from = location(carried.next),
                    .bits = bits_of(carried.next),
                    .to = location(carried.value)};
    if (move.from != move.to) moves.push_back(move);
  }
  while (!moves.empty()) {
    const auto is_free = [&](const Move& move) {
      return std::none_of(moves.begin(), moves.end(),
                          [&](const Move& other) { return other.from == move.to; });
    };
    const auto next = std::find_if(moves.begin(), moves.end(), is_free);
    if (next != moves.end()) {
      move(*next);
      moves.erase(next);
      continue;
    }
    // All of them wait for each other.
    Move& first = moves.front();
    const Location copy = first.from.kind == Kind::vector
                              ? Location{Kind::vector, scratch(3).getIdx()}
                              : Location{Kind::general, Xbyak::Operand::RDX};
    move({.from = first.from, .bits = 0, .to = copy});
    first.from = copy;
  }
}

void Assembler::move(const Move& move) {
  const auto& [from, bits, to] = move;
  if (to.kind == Kind::vector) return get(Xmm(to.index), from, bits);
  if (to.kind == Kind::general) return get(Reg(to.index), from, bits);
  if (from.kind == Kind::vector) return vmovsd(ptr[slot(to.index)], Xmm(from.index));
  const Reg through = from.kind == Kind::general ? Reg(from.index) : rax;
  get(through, from, bits);
  mov(ptr[slot(to.index)], through);
}

void Assembler::add_constants() {
  align(8);
  L(constants_label_);
  for (const std::uint64_t bits : constants_) dq(bits);
}

}  // namespace tessera::kernels::loops
