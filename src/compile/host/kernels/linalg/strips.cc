#include "compile/host/kernels/linalg/strips.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/linalg/strips.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/linalg/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::strips::HWY_NAMESPACE {

void subtract_f32(const StripProduct<float>& p) { subtract_product_of(p); }
void subtract_f64(const StripProduct<double>& p) { subtract_product_of(p); }
void solve_f32(const StripSystem<float>& s) { solve_lower_of(s); }
void solve_f64(const StripSystem<double>& s) { solve_lower_of(s); }
void multiply_f32(const StripRows<float>& r) { multiply_rows_of(r); }
void multiply_f64(const StripRows<double>& r) { multiply_rows_of(r); }
void turn_f32(const StripTurns<float>& t) { turn_rows_of(t); }
void turn_f64(const StripTurns<double>& t) { turn_rows_of(t); }

}  // namespace tessera::kernels::strips::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace strips {
HWY_EXPORT(subtract_f32);
HWY_EXPORT(subtract_f64);
HWY_EXPORT(solve_f32);
HWY_EXPORT(solve_f64);
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(turn_f32);
HWY_EXPORT(turn_f64);
}  // namespace strips

// With kernels for one instruction set, HWY_DYNAMIC_DISPATCH takes no name of another namespace.
using namespace strips;

void subtract_product(const StripProduct<float>& p) {
  if (p.rows > 0 && p.strips > 0) HWY_DYNAMIC_DISPATCH(subtract_f32)(p);
}
void subtract_product(const StripProduct<double>& p) {
  if (p.rows > 0 && p.strips > 0) HWY_DYNAMIC_DISPATCH(subtract_f64)(p);
}
void solve_lower(const StripSystem<float>& s) {
  if (s.strips > 0) HWY_DYNAMIC_DISPATCH(solve_f32)(s);
}
void solve_lower(const StripSystem<double>& s) {
  if (s.strips > 0) HWY_DYNAMIC_DISPATCH(solve_f64)(s);
}

void multiply_rows(const StripRows<float>& r) { HWY_DYNAMIC_DISPATCH(multiply_f32)(r); }
void multiply_rows(const StripRows<double>& r) { HWY_DYNAMIC_DISPATCH(multiply_f64)(r); }
void turn_rows(const StripTurns<float>& t) { HWY_DYNAMIC_DISPATCH(turn_f32)(t); }
void turn_rows(const StripTurns<double>& t) { HWY_DYNAMIC_DISPATCH(turn_f64)(t); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
