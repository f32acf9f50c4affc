// Tokens, and calls of the program that calls Tessera.
#include <algorithm>
#include <charconv>

#include "ops/axis/axis.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

ValueId new_token(Context& c) { return ops::full(c.b(), 0, token_type()); }

Values create_token(Context& c) { return {new_token(c)}; }

/// Any token will do: effects stay in the order in which they are read.
Values after_all(Context& c) { return {new_token(c)}; }

bool is_token(const Context& c, ValueNumber value) {
  return c.frame.context().module.value_types[value]->name == "token";
}

std::int64_t number_of_call(const Context& c) {
  const std::string_view text = c.text("backend_config");
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  c.need(read.ec == std::errc() && read.ptr == text.data() + text.size(),
         "a call of the host without a number");
  return number;
}

/// A number that depends on the device, in functions of tiles.
std::optional<ValueId> device(Context& c) {
  std::optional<ValueId> result;
  for (const MeshAxis& axis : c.frame.context().manual) {
    if (axis.size == 1) continue;
    const ValueId index = ops::axis_index(c.b(), {.name = axis.name, .size = axis.size});
    result = result ? ops::add(c.b(), *result, index) : index;
  }
  return result;
}

/// The function; with `has_more`, it is called without the last operand.
std::shared_ptr<const ir::HostCallback::Call> function_of(Context& c, bool has_more) {
  using Call = ir::HostCallback::Call;
  const FindHostCall& find = c.frame.context().find_host_call;
  if (!find) return nullptr;
  std::shared_ptr<const Call> call = find(number_of_call(c), c.b().span());
  c.need(call != nullptr, "a call of a function of another program");
  if (!has_more) return call;
  return std::make_shared<const Call>([call](std::span<const Type> types,
                                             std::span<const std::byte* const> operands,
                                             std::span<std::byte* const> results) {
    (*call)(types.first(types.size() - 1), operands.first(operands.size() - 1), results);
  });
}

}  // namespace

Type token_type() { return {.dtype = DType::boolean, .shape = {0}}; }

Values host_call(Context& c) {
  ir::Builder& b = c.b();
  Values operands;
  ir::HostCallback callback;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    if (!is_token(c, c.op.operands[i])) operands.push_back(c.operands[i]);
  }
  for (std::size_t i = 0; i < c.op.results.size(); ++i) {
    if (!is_token(c, c.op.results[i])) callback.results.push_back(c.result(i));
  }
  const bool is_effect = c.boolean("has_side_effect");
  // In a function of tiles each device calls, also with operands that all devices have.
  std::optional<ValueId> more = is_effect ? device(c) : std::nullopt;
  if (!is_effect && operands.empty()) more = ops::scalar(b, 0, DType::u32);
  if (more) operands.push_back(*more);
  callback.call = function_of(c, more.has_value());
  const ir::Attributes attributes = {{"callback", callback}, {"num_batch", std::int64_t{0}}};
  Values arrays;
  if (is_effect) {
    operands.insert(operands.begin(), ops::full(b, 0, {DType::u32, {}}));
    arrays = b.emit_all("host_callback", attributes, operands);
    arrays.erase(arrays.begin());
  } else if (!callback.results.empty()) {
    arrays = b.emit_all("pure_callback", attributes, operands);
  }
  Values results;
  auto next = arrays.begin();
  for (const ValueNumber result : c.op.results) {
    results.push_back(is_token(c, result) ? new_token(c) : *next++);
  }
  return results;
}

const Handlers& token_handlers() {
  static const Handlers kHandlers = {{"after_all", after_all}, {"create_token", create_token}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
