// Finding mistakes: functions that run op by op, checked indices, and warnings. debug::print,
// debug::check and debug::callback are in profile.h.
//
//   const disable_jit scope;              // step through jitted functions and loops
//   set_index_checks(true);               // an index out of range throws UserError
//   set_warning_handler([&](const Warning& warning) { log << to_string(warning); });
#pragma once

#include <concepts>
#include <string>

#include <tessera/profile.h>
#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

/// While it exists, what this thread calls runs op by op: a jitted function is called directly, and
/// scan, while_loop, cond and switch_case call their functions for each iteration, so the arrays in
/// them are concrete. Functions given to grad and vmap are still traced, but to_string and
/// debuggers show the values of their arrays. With exact numerics, results have the same bits.
/// lower(), compile() and the options of a jit, such as shardings, work as usual, except that
/// nothing is donated or checked for finite numbers, and a pipeline is a loop.
class [[nodiscard]] disable_jit {
 public:
  [[nodiscard]] disable_jit();
  ~disable_jit();
  disable_jit(const disable_jit&) = delete;
  disable_jit& operator=(const disable_jit&) = delete;
};

/// Whether take, take_along_axis, scatter, scatter_add, one_hot and functions built on them throw
/// UserError for an index out of range, with its value, its position and the bound. False by
/// default; a setting of the context. Results have the same bits either way. While it is false, it
/// costs nothing. While it is true, programs run debug::callback for each of these ops, where that
/// is possible.
void set_index_checks(bool is_on);
bool index_checks();

/// Reports something that works, but probably not as intended.
struct Warning {
  std::string what;   // one sentence
  Span where = {};    // the user's source line
  std::string found;  // what led to it
  std::string cure;   // what to write instead
};
/// Formatted like the text of a UserError.
std::string to_string(const Warning& warning);

namespace detail {
void set_warning_handler(Function<void, const Warning&> handler);
}  // namespace detail

/// Calls `f` with each warning, on the thread that causes it; several threads may call f at the
/// same time. Without a handler, the first process prints warnings to standard error. There is one
/// kind of warning, given once per function: a jitted function was compiled again because a number
/// among its arguments has another value.
template <std::invocable<const Warning&> F>
void set_warning_handler(F f) {
  detail::set_warning_handler(detail::Function<void, const Warning&>(std::move(f)));
}
/// Restores the state in which no handler is set.
void reset_warning_handler();

}  // namespace tessera
