// The floating-point modes in which kernels run.
#pragma once

#include <cfenv>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace tessera::run {

/// Kernels guarantee their result bits for round-to-nearest without flush-to-zero, but the caller
/// may have set other modes.
class DefaultFloatMode {
 public:
  DefaultFloatMode() { begin(); }
  ~DefaultFloatMode() { end(); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#ifdef __x86_64__
  // Saving and setting the whole environment takes ten times as long.
  static constexpr unsigned kDefault = 0x1F80;
  void begin() {
    if (rounding_ != FE_TONEAREST) std::fesetround(FE_TONEAREST);
    _mm_setcsr(kDefault);
  }
  void end() const {
    if (rounding_ != FE_TONEAREST) std::fesetround(rounding_);
    _mm_setcsr(saved_);
  }
  int rounding_ = std::fegetround();
  unsigned saved_ = _mm_getcsr();
#else
  void begin() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  void end() const { std::fesetenv(&saved_); }
  std::fenv_t saved_;
#endif
};

}  // namespace tessera::run
