// Finding mistakes: functions that run op by op, checked indices, and warnings. debug::print and
// its kin are in profile.h.
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

/// While it exists, what this thread calls runs op by op: a jitted function is called as it is, and
/// scan, while_loop, cond and switch_case call their functions for each iteration, so that arrays
/// in them are concrete. Functions given to grad and vmap are still traced; their arrays show their
/// values to to_string and debuggers. With exact numerics results have the same bits. Shardings of
/// a jit hold; its other options, and lower() and compile(), are as if this did not exist, but
/// nothing is donated or checked for finite numbers, and a pipeline is a loop.
class [[nodiscard]] disable_jit {
 public:
  [[nodiscard]] disable_jit();
  ~disable_jit();
  disable_jit(const disable_jit&) = delete;
  disable_jit& operator=(const disable_jit&) = delete;
};

/// Whether take, take_along_axis, scatter, scatter_add, one_hot and what is made of them throw
/// UserError for an index out of range, with its value, its position and the bound; false by
/// default. A setting of the context. Results have the same bits, and cost nothing while it is
/// false. While it is true, programs run debug::callback for each of these ops, where that can be.
void set_index_checks(bool is_on);
bool index_checks();

/// What works, but probably not as it is meant to.
struct Warning {
  std::string what;   // one sentence
  Span where = {};    // the user's source line
  std::string found;  // what led to it
  std::string cure;   // what to write instead
};
/// As the text of a UserError.
std::string to_string(const Warning& warning);

namespace detail {
void set_warning_handler(Function<void, const Warning&> handler);
}  // namespace detail

/// Calls `f` with each warning, on the thread that causes it; several threads may call it at the
/// same time. Without a handler, warnings are printed on standard error, by the first process only.
/// There is one: a function that is jitted was compiled again because a number among its arguments
/// has another value, once for each such function.
template <std::invocable<const Warning&> F>
void set_warning_handler(F f) {
  detail::set_warning_handler(detail::Function<void, const Warning&>(std::move(f)));
}
/// As if no handler had been set.
void reset_warning_handler();

}  // namespace tessera
