#include "stablehlo/narrow/integer_maker.h"

#include <string>

#include "stablehlo/narrow/float_maker.h"

namespace tessera::stablehlo {

namespace {

using bytecode::ScalarFormat;
using bytecode::ScalarKind;
using BytecodeType = bytecode::Type;

constexpr unsigned kByteBits = 8;

}  // namespace

ScalarFormat narrow_integer_format(const BytecodeType& type) {
  const std::string_view name = element_name(type);
  // All values of all modules are asked, and few are such integers.
  if (!name.ends_with("i2") && !name.ends_with("i4")) return {};
  return bytecode::format_of(name);
}

IntegerMaker::Value IntegerMaker::shifted(const char* operation, Value x, unsigned by) {
  if (by == 0) return x;
  const BytecodeType& type = make_.type(x);
  std::string number(bytecode::format_of(type.types[0]->name).bytes(), '\0');
  number[0] = static_cast<char>(by);
  return make_.binary(operation, x, make_.filled(std::move(number), type));
}

IntegerMaker::Value IntegerMaker::as_signed(Value x) {
  const unsigned unused = kByteBits - format_.bits;
  return shifted("vhlo.shift_right_arithmetic_v1", shifted("vhlo.shift_left_v1", x, unused),
                 unused);
}

IntegerMaker::Value IntegerMaker::as_unsigned(Value x) {
  const std::string mask(1, static_cast<char>((1U << format_.bits) - 1));
  return make_.binary("vhlo.and_v1", x, make_.filled(mask, make_.type(x)));
}

IntegerMaker::Value IntegerMaker::wrapped(Value x) {
  return format_.kind == ScalarKind::integer ? as_signed(x) : as_unsigned(x);
}

IntegerMaker::Value IntegerMaker::leading_zeros(Value of_bytes) {
  const std::string more(1, static_cast<char>(kByteBits - format_.bits));
  return make_.sub(of_bytes, make_.filled(more, make_.type(of_bytes)));
}

IntegerMaker::Value IntegerMaker::joined(Value x, const BytecodeType& word) {
  std::vector<std::int64_t> shape = make_.type(x).shape;
  const std::int64_t count = shape.back();
  shape.pop_back();
  Value result = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Value bits = as_unsigned(make_.reshape(make_.slice(x, shape.size(), i, i + 1), shape));
    const Value part = shifted("vhlo.shift_left_v1",
                               make_.emit("vhlo.convert_v1", {bits}, make_.tensor(shape, word)),
                               static_cast<unsigned>(i) * format_.bits);
    result = i == 0 ? part : make_.binary("vhlo.or_v1", result, part);
  }
  return result;
}

IntegerMaker::Value IntegerMaker::parts(Value words, unsigned count, const BytecodeType& element) {
  const std::vector<std::int64_t>& shape = make_.type(words).shape;
  std::vector<std::int64_t> column = shape;
  column.push_back(1);
  Value result = 0;
  for (unsigned i = 0; i < count; ++i) {
    const Value low = shifted("vhlo.shift_right_logical_v1", words, i * format_.bits);
    const Value byte = make_.emit("vhlo.convert_v1", {low}, make_.tensor(shape, element));
    const Value part = make_.reshape(wrapped(byte), column);
    result = i == 0 ? part : make_.concatenate(result, part, shape.size());
  }
  return result;
}

}  // namespace tessera::stablehlo
