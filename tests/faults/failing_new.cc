#include "tests/faults/failing_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;
std::atomic<std::int64_t> allocations_left{kNever};  // before the first failing one
std::atomic<std::int64_t> num_failing{0};

void* allocate(std::size_t size, std::size_t alignment) {
  const std::int64_t left = allocations_left.fetch_sub(1);
  if (left <= 0 && left > -num_failing) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace tessera::testing {

FailingAllocations::FailingAllocations(std::int64_t after, std::int64_t count) {
  num_failing = count;
  allocations_left = after;
}
FailingAllocations::~FailingAllocations() { allocations_left = kNever; }
bool FailingAllocations::has_failed() const { return allocations_left < 0; }

}  // namespace tessera::testing

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
