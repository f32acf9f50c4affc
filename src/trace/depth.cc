#include "trace/depth.h"

#include <algorithm>
#include <cstdint>
#include <string>

#ifdef __GLIBC__
#include <pthread.h>
#endif

#include "base/sanitized.h"

namespace tessera::trace {

namespace {

/// The most bytes of stack that a stage needs for one level. Loops need most, about 10 KiB.
constexpr std::size_t kBytesOfLevel = (kIsSanitized ? std::size_t{72} : std::size_t{24}) << 10;
/// The part of the stack that is kept for what a traced function calls.
constexpr std::size_t kReservedPart = 8;

struct ThreadStack {
  std::uintptr_t end;  // its lowest address
  std::size_t size;    // in bytes; 0 if unknown
};

ThreadStack find_stack() {
  ThreadStack stack{.end = 0, .size = 0};
#ifdef __GLIBC__
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return stack;
  void* end = nullptr;
  if (pthread_attr_getstack(&attributes, &end, &stack.size) != 0) stack.size = 0;
  stack.end = reinterpret_cast<std::uintptr_t>(end);
  pthread_attr_destroy(&attributes);
#endif
  return stack;
}

const ThreadStack& stack_of_thread() {
  static thread_local const ThreadStack stack = find_stack();
  return stack;
}

std::size_t bytes_left() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const ThreadStack& stack = stack_of_thread();
  return here > stack.end ? here - stack.end : 0;
}

thread_local std::size_t g_depth = 0;
thread_local std::size_t g_most = kMostDepth;  // for the functions in the outermost one

[[noreturn]] void fail_too_deep(std::size_t most, const Span& where) {
  std::string wanted = "at most " + std::to_string(most);
  std::string cure =
      "replace the recursion by a loop such as scan(), or call the inner functions directly, "
      "without jit and other transformations";
  if (most < kMostDepth) {
    wanted += " with the stack that this thread has left";
    cure += "; or call the outermost function on a thread with more stack";
  }
  throw UserError({.what = "too many functions are traced inside each other",
                   .where = where,
                   .found = std::to_string(g_depth + 1),
                   .wanted = std::move(wanted),
                   .cure = std::move(cure)});
}

}  // namespace

Depth::Depth(const Span& where) {
  const ThreadStack& stack = stack_of_thread();
  const bool is_known = stack.size != 0;
  const std::size_t left = bytes_left();
  if (g_depth == 0) {
    g_most = is_known ? std::clamp(left / kBytesOfLevel, std::size_t{1}, kMostDepth) : kMostDepth;
  }
  if (g_depth >= g_most) fail_too_deep(g_most, where);
  // The functions of the user may need more stack than the stages.
  if (is_known && g_depth > 0 && left < stack.size / kReservedPart) fail_too_deep(g_depth, where);
  ++g_depth;
}

Depth::~Depth() { --g_depth; }

}  // namespace tessera::trace
