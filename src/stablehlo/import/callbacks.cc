// Tokens, and calls of functions of the program that calls Tessera.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "ops/axis/axis.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

ValueId new_token(Context& c) { return ops::full(c.b(), 0, token_type()); }

Values create_token(Context& c) { return {new_token(c)}; }

/// Any token will do: effects stay in the order in which they are read.
Values after_all(Context& c) { return {new_token(c)}; }

std::int64_t number_of_call(const Context& c) {
  const std::string_view text = c.text("backend_config");
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  c.need(read.ec == std::errc() && read.ptr == text.data() + text.size(),
         "a call to the host program without a number");
  return number;
}

/// Whether a device makes the call, if an operand has to say it: because some devices do not make
/// it, because each device makes an effect's call even if all have the same operands, or because
/// the op needs an operand.
std::optional<ValueId> verdict_of_device(Context& c, bool is_effect, bool has_operands) {
  ir::Builder& b = c.b();
  std::optional<ValueId> result = c.frame.taken;
  if (!is_effect) return result || has_operands ? result : ops::scalar(b, 1, DType::boolean);
  for (const MeshAxis& axis : c.frame.context().manual) {
    if (axis.size == 1) continue;
    const ValueId index = ops::axis_index(b, {.name = axis.name, .size = axis.size});
    const ValueId is_device = ops::compare(b, "ge", index, ops::scalar(b, 0, DType::i32));
    result = result ? b.emit("and", {}, {*result, is_device}) : is_device;
  }
  return result;
}

/// The function to call. With `has_verdict`, the last operand says whether it is called.
std::shared_ptr<const ir::HostCallback::Call> function_of(Context& c, bool has_verdict,
                                                          const std::vector<Type>& results) {
  using Call = ir::HostCallback::Call;
  const FindHostCall& find = c.frame.context().find_host_call;
  if (!find) return nullptr;
  std::shared_ptr<const Call> call = find(number_of_call(c), c.b().span());
  c.need(call != nullptr, "a call to a function of another program");
  if (!has_verdict) return call;
  std::vector<std::size_t> bytes;
  for (const Type& type : results) bytes.push_back(static_cast<std::size_t>(size_bytes(type)));
  return std::make_shared<const Call>([call, bytes](std::span<const Type> types,
                                                    std::span<const std::byte* const> operands,
                                                    std::span<std::byte* const> places) {
    if (*operands.back() != std::byte{0}) {
      (*call)(types.first(types.size() - 1), operands.first(operands.size() - 1), places);
      return;
    }
    for (std::size_t i = 0; i < places.size(); ++i) std::memset(places[i], 0, bytes[i]);
  });
}

bool has_host_call(const ModuleContext& context, const Operation& op,
                   std::set<const Operation*>& seen) {
  if (kind_of(op) == "custom_call") return text_of(op, "call_target_name") == kHostCall;
  const auto has_it = [&](const Operation& outer) {
    return std::ranges::any_of(outer.regions, [&](const Region& region) {
      return std::ranges::any_of(region.operations, [&](const Operation& inner) {
        return has_host_call(context, inner, seen);
      });
    });
  };
  for (const char* name : {"callee", "decomposition"}) {
    const auto found = context.functions.find(text_of(op, name));
    if (found == context.functions.end() || !seen.insert(found->second).second) continue;
    if (has_it(*found->second)) return true;
  }
  return has_it(op);
}

}  // namespace

bool is_token(const Context& c, ValueNumber value) {
  return c.frame.context().module.value_types[value]->name == "token";
}

bool calls_host_by_device(const ModuleContext& context, const Operation& op) {
  std::set<const Operation*> seen;
  return !context.manual.empty() && has_host_call(context, op, seen);
}

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
  const std::optional<ValueId> is_called = verdict_of_device(c, is_effect, !operands.empty());
  if (is_called) operands.push_back(*is_called);
  callback.call = function_of(c, is_called.has_value(), callback.results);
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

namespace {

/// Per device, the numbers of its shard in all dimensions: `0,1;0,0`.
std::string shards_text(const Mesh& mesh, const Sharding& sharding) {
  const std::size_t rank = sharding.dims.size();
  const Layout layout(mesh, sharding, Shape(rank, 1));
  std::string text;
  for (std::int64_t device = 0; device < mesh.num_devices(); ++device) {
    const AtomDigits digits = device_digits(mesh, device);
    if (device > 0) text += ';';
    for (std::size_t dim = 0; dim < rank; ++dim)
      text += (dim > 0 ? "," : "") + std::to_string(layout.shard(dim, digits));
  }
  return text;
}

}  // namespace

Values inspection(Context& c) {
  ir::ShardingWatcher watcher;
  if (const FindHostCall& find = c.frame.context().find_host_call) {
    const auto call = find(number_of_call(c), c.b().span());
    c.need(call != nullptr, "a call to a function of another program");
    using Tell = std::function<void(const Mesh&, const Sharding&)>;
    watcher.tell = std::make_shared<const Tell>([call](const Mesh& mesh, const Sharding& sharding) {
      const std::string text = shards_text(mesh, sharding);
      const auto* const bytes = reinterpret_cast<const std::byte*>(text.c_str());
      (*call)({}, std::span(&bytes, 1), {});
    });
  }
  c.b().emit("inspect_sharding", {{"callback", std::move(watcher)}}, {c.operand(0)});
  return {};
}

const Handlers& token_handlers() {
  static const Handlers kHandlers = {{"after_all", after_all}, {"create_token", create_token}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
