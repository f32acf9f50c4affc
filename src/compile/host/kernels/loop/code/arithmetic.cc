#include "compile/host/kernels/loop/code/arithmetic.h"

namespace tessera::kernels::loops {

void Arithmetic::set_operands(DType dtype) {
  is_wide_ = size_bytes(dtype) == 8;
  is_signed_ = dtype == DType::i32 || dtype == DType::i64;
}

void Arithmetic::compute(const Instruction& made) {
  set_operands(made.dtype);
  if (made.op == Op::convert) return convert(made.inputs[0], made.outputs[0]);
  if (made.op == Op::cast) return cast(made.inputs[0], made.outputs[0]);
  const bool is_float = is_in_vector(made.dtype);
  if (made.op == Op::select) return is_float ? select_float(made) : select_integer(made);
  return is_float ? compute_float(made) : compute_integer(made);
}

// --- floats

void Arithmetic::compute_float(const Instruction& made) {
  if (made.op == Op::fma) return multiply_add(made);
  if (made.op == Op::clamp) return clamp_float(made);
  const int out = made.outputs[0];
  const Xmm to = target(out, scratch(0));
  const Xmm x = vector(made.inputs[0], scratch(1));
  const Xmm y = made.inputs.size() > 1 ? vector(made.inputs[1], scratch(2)) : x;
  switch (made.op) {
    case Op::neg:
      load_constant(scratch(2), sign_bit());
      vxorps(to, x, scratch(2));
      break;
    case Op::abs:
      load_constant(scratch(2), sign_bit() - 1);
      vandps(to, x, scratch(2));
      break;
    case Op::add:
      is_wide_ ? vaddsd(to, x, y) : vaddss(to, x, y);
      break;
    case Op::sub:
      is_wide_ ? vsubsd(to, x, y) : vsubss(to, x, y);
      break;
    case Op::mul:
      is_wide_ ? vmulsd(to, x, y) : vmulss(to, x, y);
      break;
    case Op::div:
      is_wide_ ? vdivsd(to, x, y) : vdivss(to, x, y);
      break;
    case Op::sqrt:
      is_wide_ ? vsqrtsd(to, x, x) : vsqrtss(to, x, x);
      break;
    case Op::rsqrt:
      is_wide_ ? vsqrtsd(scratch(2), x, x) : vsqrtss(scratch(2), x, x);
      load_constant(scratch(3), one());
      is_wide_ ? vdivsd(to, scratch(3), scratch(2)) : vdivss(to, scratch(3), scratch(2));
      break;
    case Op::floor:
    case Op::ceil:
    case Op::round:
      round(made.op, to, x);
      break;
    case Op::sign:
      return put(out, sign_of(x));
    case Op::max:
    case Op::min:
      return put(out, extreme(made.op, x, y));
    default:
      return compare_floats(made, x, y);
  }
  put(out, to);
}

std::uint64_t Arithmetic::sign_bit() const { return std::uint64_t{1} << (is_wide_ ? 63 : 31); }

std::uint64_t Arithmetic::one() const { return is_wide_ ? 0x3FF0'0000'0000'0000U : 0x3F80'0000U; }

// Half way between two integers, `round` gives the even one.
void Arithmetic::round(Op op, const Xmm& to, const Xmm& x) {
  constexpr std::uint8_t kQuiet = 8;
  const std::uint8_t direction = op == Op::floor ? 1 : op == Op::ceil ? 2 : 0;
  is_wide_ ? vroundsd(to, x, x, direction | kQuiet) : vroundss(to, x, x, direction | kQuiet);
}

// 1 or -1 in scratch(0); zeros and NaN stay.
Arithmetic::Xmm Arithmetic::sign_of(const Xmm& x) {
  const Xmm result = scratch(0);
  const Xmm mask = scratch(3);
  const Xmm number = scratch(2);
  const auto choose = [&](const Xmm& otherwise, std::uint64_t bits) {
    load_constant(number, bits);
    is_wide_ ? vblendvpd(result, otherwise, number, mask)
             : vblendvps(result, otherwise, number, mask);
  };
  vxorps(number, number, number);
  compare(mask, number, x, kLess);
  choose(x, one());
  vxorps(number, number, number);
  compare(mask, x, number, kLess);
  choose(result, one() | sign_bit());
  return result;
}

void Arithmetic::multiply_add(const Instruction& made) {
  const Xmm x = vector(made.inputs[0], scratch(1));
  const Xmm y = vector(made.inputs[1], scratch(2));
  const Xmm z = vector(made.inputs[2], scratch(3));
  vmovaps(scratch(0), x);
  is_wide_ ? vfmadd213sd(scratch(0), y, z) : vfmadd213ss(scratch(0), y, z);
  put(made.outputs[0], scratch(0));
}

/// The greater or the less of two numbers, in scratch(0), as the kernels define it: NaN wins and
/// -0 < +0. `x` and `y` are neither scratch(0) nor scratch(3).
Arithmetic::Xmm Arithmetic::extreme(Op op, const Xmm& x, const Xmm& y) {
  const Xmm result = scratch(0);
  const Xmm mask = scratch(3);
  // The processor gives y if the operands are equal or if one of them is NaN. Equal operands have
  // the same bits, unless they are zeros.
  if (op == Op::max) {
    is_wide_ ? vmaxsd(result, x, y) : vmaxss(result, x, y);
    compare(mask, x, y, kNotEqual);
    vorps(mask, mask, x);
    vandps(result, result, mask);
  } else {
    is_wide_ ? vminsd(result, x, y) : vminss(result, x, y);
    compare(mask, x, y, kEqual);
    vandps(mask, mask, x);
    vorps(result, result, mask);
  }
  compare(mask, x, x, kUnordered);
  is_wide_ ? vblendvpd(result, result, x, mask) : vblendvps(result, result, x, mask);
  return result;
}

void Arithmetic::clamp_float(const Instruction& made) {
  const Xmm low = vector(made.inputs[0], scratch(2));
  const Xmm x = vector(made.inputs[1], scratch(1));
  const Xmm raised = extreme(Op::max, x, low);
  vmovaps(scratch(1), raised);
  const Xmm high = vector(made.inputs[2], scratch(2));
  put(made.outputs[0], extreme(Op::min, scratch(1), high));
}

void Arithmetic::compare(const Xmm& to, const Xmm& x, const Xmm& y, Predicate predicate) {
  is_wide_ ? vcmpsd(to, x, y, predicate) : vcmpss(to, x, y, predicate);
}

void Arithmetic::compare_floats(const Instruction& made, const Xmm& x, const Xmm& y) {
  const int out = made.outputs[0];
  const bool is_mask = value(out).is_mask;
  const Xmm to = is_mask ? target(out, scratch(0)) : scratch(0);
  switch (made.op) {
    case Op::compare_eq:
      compare(to, x, y, kEqual);
      break;
    case Op::compare_ne:
      compare(to, x, y, kNotEqual);
      break;
    case Op::compare_lt:
      compare(to, x, y, kLess);
      break;
    case Op::compare_le:
      compare(to, x, y, kLessOrEqual);
      break;
    case Op::compare_gt:
      compare(to, y, x, kLess);
      break;
    default:
      compare(to, y, x, kLessOrEqual);
  }
  if (is_mask) return put(out, to);
  vmovd(eax, to);
  and_(eax, 1);
  put(out, rax);
}

void Arithmetic::select_float(const Instruction& made) {
  const int chooser = made.inputs[0];
  const int out = made.outputs[0];
  if (!value(chooser).is_mask) {
    get(rax, chooser);
    neg(rax);
    vmovq(scratch(3), rax);
  }
  const Xmm mask = value(chooser).is_mask ? vector(chooser, scratch(3)) : scratch(3);
  const Xmm to = target(out, scratch(0));
  const Xmm yes = vector(made.inputs[1], scratch(1));
  const Xmm no = vector(made.inputs[2], scratch(2));
  is_wide_ ? vblendvpd(to, no, yes, mask) : vblendvps(to, no, yes, mask);
  put(out, to);
}

// --- integers and booleans

Xbyak::Reg Arithmetic::sized(const Reg& reg) const {
  return is_wide_ ? Xbyak::Reg(reg) : reg.cvt32();
}

void Arithmetic::compute_integer(const Instruction& made) {
  const auto& inputs = made.inputs;
  const int out = made.outputs[0];
  if (made.op == Op::div || made.op == Op::rem) return divide(made);
  if (made.op >= Op::shift_left && made.op <= Op::shift_right_arithmetic) return shift(made);
  if (is_comparison(made.op)) {
    compare_integers(inputs[0], inputs[1]);
    (this->*condition(made.op).set)(al);
    movzx(eax, al);
    return put(out, rax);
  }
  if (made.op == Op::clamp) {
    get(rax, inputs[1]);
    choose_extreme(Op::max, rax, inputs[0]);
    choose_extreme(Op::min, rax, inputs[2]);
    return put(out, rax);
  }
  const Reg to = inputs.size() == 2 ? target_besides(out, inputs[1], rax) : target(out, rax);
  get(to, inputs[0]);
  inputs.size() == 2 ? compute_binary(made.op, to, inputs[1]) : compute_unary(made, to);
  put(out, to);
}

/// The register that gets a value, or `other` if that register has the value `besides`.
Arithmetic::Reg Arithmetic::target_besides(int v, int besides, const Reg& other) {
  const Reg to = target(v, other);
  return holds(besides, to) ? other : to;
}

void Arithmetic::compute_unary(const Instruction& made, const Reg& to) {
  const Xbyak::Reg result = sized(to);
  const Xbyak::Reg negative = sized(rcx);
  switch (made.op) {
    case Op::neg:
      return neg(result);
    case Op::bit_not:
      return made.dtype == DType::boolean ? xor_(result, 1) : not_(result);
    case Op::sign:
      return sign_of(result);
    default:  // abs
      if (!is_signed_) return;
      mov(negative, result);
      neg(negative);
      cmovns(result, negative);
  }
}

// For signed numbers: all ones if x is negative, or else the sign bit of -x.
void Arithmetic::sign_of(const Xbyak::Reg& x) {
  const Xbyak::Reg negative = sized(rcx);
  const int last_bit = is_wide_ ? 63 : 31;
  mov(negative, x);
  neg(negative);
  if (is_signed_) {
    sar(x, last_bit);
    shr(negative, last_bit);
    return or_(x, negative);
  }
  // The negation of 0 alone sets no carry flag.
  setb(al);
  movzx(eax, al);
  mov(x, sized(rax));
}

void Arithmetic::compute_binary(Op op, const Reg& to, int y) {
  if (op == Op::max || op == Op::min) return choose_extreme(op, to, y);
  const Xbyak::Reg result = sized(to);
  const auto number = immediate(y);
  if (op == Op::mul) {
    return number ? imul(result, result, static_cast<int>(*number))
                  : imul(result, sized(general(y, rcx)));
  }
  const auto apply = [&](const auto& operand) {
    switch (op) {
      case Op::add:
        return add(result, operand);
      case Op::sub:
        return sub(result, operand);
      case Op::bit_and:
        return and_(result, operand);
      case Op::bit_or:
        return or_(result, operand);
      default:
        return xor_(result, operand);
    }
  };
  number ? apply(*number) : apply(sized(general(y, rcx)));
}

/// A constant that an instruction can contain.
std::optional<std::uint32_t> Arithmetic::immediate(int v) const {
  const std::uint64_t* bits = constant(v);
  if (bits == nullptr) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(*bits);
  const bool is_extended = *bits == static_cast<std::uint64_t>(static_cast<std::int32_t>(number));
  return is_wide_ && !is_extended ? std::nullopt : std::optional(number);
}

// `to` becomes the greater or the less of itself and y.
void Arithmetic::choose_extreme(Op op, const Reg& to, int y) {
  const Xbyak::Reg result = sized(to);
  const Xbyak::Reg other = sized(general(y, rcx));
  cmp(result, other);
  if (op == Op::max) {
    is_signed_ ? cmovl(result, other) : cmovb(result, other);
  } else {
    is_signed_ ? cmovg(result, other) : cmova(result, other);
  }
}

// Sets the flags, from which the instructions of a condition see whether it holds.
void Arithmetic::compare_integers(int x, int y) {
  const Xbyak::Reg first = sized(general(x, rax));
  const auto number = immediate(y);
  number ? cmp(first, *number) : cmp(first, sized(general(y, rcx)));
}

Arithmetic::Condition Arithmetic::condition(Op relation) const {
  using Code = Xbyak::CodeGenerator;
  switch (relation) {
    case Op::compare_eq:
      return {&Code::sete, &Code::cmove, &Code::jne};
    case Op::compare_ne:
      return {&Code::setne, &Code::cmovne, &Code::je};
    case Op::compare_lt:
      return is_signed_ ? Condition{&Code::setl, &Code::cmovl, &Code::jge}
                        : Condition{&Code::setb, &Code::cmovb, &Code::jae};
    case Op::compare_le:
      return is_signed_ ? Condition{&Code::setle, &Code::cmovle, &Code::jg}
                        : Condition{&Code::setbe, &Code::cmovbe, &Code::ja};
    case Op::compare_gt:
      return is_signed_ ? Condition{&Code::setg, &Code::cmovg, &Code::jle}
                        : Condition{&Code::seta, &Code::cmova, &Code::jbe};
    default:
      return is_signed_ ? Condition{&Code::setge, &Code::cmovge, &Code::jl}
                        : Condition{&Code::setae, &Code::cmovae, &Code::jb};
  }
}

// If a shift is by as many bits as there are or more, no bit of the operand is left.
void Arithmetic::shift(const Instruction& made) {
  const std::uint32_t bits = is_wide_ ? 64 : 32;
  const Xbyak::Reg x = sized(rax);
  const Xbyak::Reg other = sized(rdx);
  get(rax, made.inputs[0]);
  get(rcx, made.inputs[1]);
  if (made.op == Op::shift_right_arithmetic) {
    mov(other, bits - 1);
    cmp(sized(rcx), bits - 1);
    cmova(sized(rcx), other);
    sar(x, cl);
  } else {
    made.op == Op::shift_left ? shl(x, cl) : shr(x, cl);
    xor_(other, other);
    cmp(sized(rcx), bits);
    cmovae(x, other);
  }
  put(made.outputs[0], rax);
}

// Rounds toward zero. x / 0 is -1, and the lowest number divided by -1 is itself; the processor
// would stop at both.
void Arithmetic::divide(const Instruction& made) {
  const bool is_rem = made.op == Op::rem;
  const Xbyak::Reg x = sized(rax);
  const Xbyak::Reg y = sized(rcx);
  Xbyak::Label by_zero;
  Xbyak::Label by_minus_one;
  Xbyak::Label done;
  get(rax, made.inputs[0]);
  get(rcx, made.inputs[1]);
  const std::uint64_t* known = constant(made.inputs[1]);
  const std::uint64_t minus_one = is_wide_ ? ~std::uint64_t{0} : 0xFFFF'FFFFU;
  const bool is_safe = known != nullptr && *known != 0 && *known != minus_one;
  if (!is_safe) {
    test(y, y);
    jz(by_zero);
    cmp(y, ~std::uint32_t{0});
    if (is_signed_) je(by_minus_one);
  }
  if (!is_signed_) {
    xor_(edx, edx);
    div(y);
  } else {
    is_wide_ ? cqo() : cdq();
    idiv(y);
  }
  if (is_rem) mov(x, sized(rdx));
  if (!is_safe) {
    jmp(done);
    L(by_zero);
    if (!is_rem) mov(rax, ~std::uint64_t{0});
    jmp(done);
    L(by_minus_one);
    is_rem ? xor_(eax, eax) : neg(x);
    L(done);
  }
  put(made.outputs[0], rax);
}

// The flags show whether the result holds.
Arithmetic::Condition Arithmetic::test_condition(const Instruction& made) {
  if (made.compared) {
    set_operands(made.compared->dtype);
    compare_integers(made.inputs[0], made.inputs[1]);
    return condition(made.compared->relation);
  }
  const int flag = made.inputs[0];
  if (value(flag).is_mask) {
    vmovd(eax, vector(flag, scratch(0)));
    test(eax, eax);
  } else {
    const Xbyak::Reg32 bits = general(flag, rax).cvt32();
    test(bits, bits);
  }
  return condition(Op::compare_ne);
}

void Arithmetic::select_integer(const Instruction& made) {
  const Condition chooses = test_condition(made);
  const int yes = made.inputs[made.inputs.size() - 2];
  const Reg to = target_besides(made.outputs[0], yes, rdx);
  get(to, made.inputs.back());
  (this->*chooses.move)(to, general(yes, rax));
  put(made.outputs[0], to);
}

void Arithmetic::leave_unless(const Instruction& made, const Xbyak::Label& to) {
  (this->*test_condition(made).jump_unless)(to, T_NEAR);
}

// --- conversions

void Arithmetic::cast(int from, int to) {
  if (value(from).is_in_vector()) {
    put(to, vector(from, scratch(0)));
  } else {
    put(to, general(from, rax));
  }
}

void Arithmetic::convert(int from, int to) {
  const DType given = value(from).dtype;
  const DType wanted = value(to).dtype;
  if (is_in_vector(given)) return convert_float(from, to);
  // An integer of 64 bits; u64 is never converted to a float.
  const Reg x = general(from, rcx);
  given == DType::i32      ? movsxd(rax, x.cvt32())
  : size_bytes(given) == 8 ? mov(rax, x)
                           : mov(eax, x.cvt32());
  if (is_in_vector(wanted)) {
    const Xmm result = scratch(0);
    vxorps(result, result, result);
    wanted == DType::f64 ? vcvtsi2sd(result, result, rax) : vcvtsi2ss(result, result, rax);
    return put(to, result);
  }
  if (wanted == DType::boolean) {
    test(rax, rax);
    setne(al);
    movzx(eax, al);
  }
  put(to, rax);
}

void Arithmetic::convert_float(int from, int to) {
  const DType given = value(from).dtype;
  const DType wanted = value(to).dtype;
  const Xmm x = vector(from, scratch(1));
  const Xmm result = scratch(0);
  is_wide_ = given == DType::f64;
  if (wanted == DType::boolean) {
    vxorps(scratch(2), scratch(2), scratch(2));
    compare(result, x, scratch(2), kNotEqual);
    vmovd(eax, result);
    and_(eax, 1);
    return put(to, rax);
  }
  if (given == wanted) return put(to, x);
  is_wide_ ? vcvtsd2ss(result, x, x) : vcvtss2sd(result, x, x);
  put(to, result);
}

}  // namespace tessera::kernels::loops
