// pure_callback and io_callback: functions of the program whose results a compiled program uses.
#include <algorithm>

#include <tessera/control.h>
#include <tessera/error.h>

#include "api/inspect/call_when_run.h"
#include "api/operands.h"
#include "run/transport/launched.h"

namespace tessera::detail {

namespace {

std::string types_text(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + to_string(type);
  return text.empty() ? "no arrays" : text;
}

/// A function that is called back, and what is known about it.
struct CalledFunction {
  HostFunction function;
  std::string name;
  std::vector<Type> results;
  std::size_t num_arguments;
  Span where;

  std::vector<ops::HostArray> call(const std::vector<ops::HostArray>& values) const {
    std::vector<Array> arguments;
    for (const ops::HostArray& each : values) arguments.push_back(array_with(each));
    const std::vector<Array> arrays = function(arguments);
    std::vector<Type> found;
    for (const Array& array : arrays) found.push_back(array.type());
    if (found != results) {
      throw UserError({.what = name + ": the function does not return arrays of the declared types",
                       .where = where,
                       .found = types_text(found),
                       .wanted = types_text(results),
                       .cure = "declare the types that the function returns"});
    }
    std::vector<ops::HostArray> given;
    for (const Array& array : arrays) given.push_back(values_of(array));
    return given;
  }

  /// As an equation calls it.
  void operator()(std::span<const Type> types, std::span<const std::byte* const> operands,
                  std::span<std::byte* const> places) const {
    std::vector<ops::HostArray> values;
    for (std::size_t i = 0; i < num_arguments; ++i) {
      values.push_back(copy_of(types[i], operands[i]));
    }
    const std::vector<ops::HostArray> given = call(values);
    for (std::size_t i = 0; i < given.size(); ++i) {
      std::ranges::copy(given[i].bytes(), places[i]);
    }
  }
};

}  // namespace

std::vector<Array> host_call(HostFunction f, HostCallKind kind, const std::vector<Type>& results,
                             const std::vector<Operand>& operands,
                             const std::source_location& where) {
  const CallScope scope(where);
  const bool is_pure = kind == HostCallKind::pure;
  const CalledFunction called{.function = std::move(f),
                              .name = is_pure ? "pure_callback" : "io_callback",
                              .results = results,
                              .num_arguments = operands.size(),
                              .where = call_span()};
  if (!is_pure && run::transport() != nullptr) {
    throw UserError({.what = "io_callback: several processes would call the function",
                     .where = called.where,
                     .found = "a run of several processes",
                     .wanted = "one process",
                     .cure = "run without mpirun or --isolated; or use pure_callback, if the "
                             "function returns the same values in all processes"});
  }
  std::vector<Array> arrays = arrays_of(operands);
  if (trace::innermost() == nullptr) {
    std::vector<ops::HostArray> values;
    for (const Array& array : arrays) values.push_back(values_of(array));
    std::vector<Array> given;
    for (const ops::HostArray& each : called.call(values)) given.push_back(array_with(each));
    return given;
  }
  using Call = ir::HostCallback::Call;
  const ir::HostCallback callback{.call = std::make_shared<const Call>(called), .results = results};
  const ir::Attributes attributes = {{"callback", callback}, {"num_batch", std::int64_t{0}}};
  // The op has an operand in any case.
  if (is_pure && arrays.empty()) arrays.push_back(filled(0.0, {DType::u32, {}}));
  if (is_pure) return emit_all("pure_callback", arrays, attributes);
  arrays.insert(arrays.begin(), filled(0.0, {DType::u32, {}}));
  std::vector<Array> given = emit_all("host_callback", arrays, attributes);
  given.erase(given.begin());
  return given;
}

}  // namespace tessera::detail
