#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <tessera/error.h>

#include "run/lent_memory.h"
#include "run/machine/memory.h"
#include "run/recorder.h"

namespace tessera::run {

namespace {

constexpr std::int64_t kAlignment = 64;  // a cache line, and the widest vector
constexpr std::int64_t kHugePage = 2 << 20;

std::atomic<std::int64_t> bytes_held{0};
std::atomic<std::int64_t> most_bytes_held{0};

void raise_most(std::int64_t held) {
  std::int64_t most = most_bytes_held.load(std::memory_order_relaxed);
  while (held > most &&
         !most_bytes_held.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
  }
}

std::atomic<bool> is_recorded{false};

/// The mutex is needed because a trace may start and stop while any thread creates or frees
/// buffers.
struct Allocations {
  std::mutex mutex;
  std::vector<Allocation> list;
  std::int64_t num_lost = 0;  // not recorded, for lack of memory
};
Allocations& allocations() {
  static auto* const all = new Allocations;  // buffers may outlive every other static object
  return *all;
}

/// Must not throw, because buffers are also freed during stack unwinding.
void record(const void* address, std::int64_t bytes, std::int64_t held, bool is_freed,
            Buffer::Use use) noexcept {
  Allocations& all = allocations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    all.list.push_back({.time_ns = ns_of(Clock::now()),
                        .address = address,
                        .bytes = bytes,
                        .held_bytes = held,
                        .peak_bytes = most_bytes_held.load(std::memory_order_relaxed),
                        .is_freed = is_freed,
                        .use = use});
  } catch (const std::bad_alloc&) {
    all.num_lost += 1;
  }
}

std::int64_t lines_of(std::int64_t bytes) {
  return (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment;
}

/// The large blocks that were freed last, for the next buffers of the same size. The system clears
/// fresh pages when they are first written, which takes about as long as writing them. A program
/// that is called again and again would pay this for each of its results.
class KeptMemory {
 public:
  static KeptMemory& instance() {
    static auto* const kept = new KeptMemory;  // buffers may outlive every other static object
    return *kept;
  }

  /// nullptr if there is none of this size.
  void* take(std::int64_t lines) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Block& block : blocks_) {
      if (block.data == nullptr || block.lines != lines) continue;
      lines_ -= lines;
      return std::exchange(block.data, nullptr);
    }
    return nullptr;
  }

  /// Keeps the block in place of the oldest one, or frees it.
  void give(void* data, std::int64_t lines) noexcept {
    if (!kKeeps || lines < kFewestLines || lines > kMostLines) return std::free(data);
    const std::lock_guard<std::mutex> lock(mutex_);
    while (lines_ + lines > kMostLines || blocks_[next_].data != nullptr) {
      drop(blocks_[next_]);
      if (lines_ + lines > kMostLines) next_ = (next_ + 1) % blocks_.size();
    }
    blocks_[next_] = {data, lines};
    lines_ += lines;
    next_ = (next_ + 1) % blocks_.size();
  }

  void drop_all() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Block& block : blocks_) drop(block);
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr bool kKeeps = false;  // so that late reads of freed memory are found
#else
  static constexpr bool kKeeps = true;
#endif
  static constexpr std::int64_t kFewestLines = (1 << 20) / kAlignment;
  static constexpr std::int64_t kMostLines = (64 << 20) / kAlignment;  // of all blocks

  struct Block {
    void* data = nullptr;
    std::int64_t lines = 0;
  };

  void drop(Block& block) noexcept {
    if (block.data == nullptr) return;
    lines_ -= block.lines;
    std::free(std::exchange(block.data, nullptr));
  }

  std::mutex mutex_;
  std::array<Block, 8> blocks_ = {};
  std::size_t next_ = 0;    // the next block to replace
  std::int64_t lines_ = 0;  // of all blocks
};

#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kMostSmallLines = 0;  // so that reads before the start are found
#else
constexpr std::int64_t kMostSmallLines = (64 << 10) / kAlignment;
#endif

/// malloc caches small blocks; posix_memalign does not and takes ten times as long. The address of
/// the block is stored in front of the aligned memory.
void* allocate_small(std::int64_t lines) {
  void* const block = std::malloc(static_cast<std::size_t>((lines + 1) * kAlignment));
  if (block == nullptr) return nullptr;
  const auto offset =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(block)) % kAlignment;
  auto* const data = static_cast<std::byte*>(block) + kAlignment - offset;
  std::memcpy(data - sizeof(block), static_cast<const void*>(&block), sizeof(block));
  return data;
}

void free_small(std::byte* data) noexcept {
  void* block = nullptr;
  std::memcpy(static_cast<void*>(&block), data - sizeof(block), sizeof(block));
  std::free(block);
}

// Kernels read many rows at the same time: with small pages, most of their first reads would miss
// the TLB. Only whole huge pages are requested, so that a buffer takes no more memory than its
// size.
std::byte* allocate(std::int64_t bytes) {
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const std::int64_t lines = lines_of(bytes);
  if (lines <= kMostSmallLines) return static_cast<std::byte*>(allocate_small(lines));
  KeptMemory& kept = KeptMemory::instance();
  if (void* data = kept.take(lines)) return static_cast<std::byte*>(data);
  const auto reserve = [&] {
    void* data = nullptr;
    const int error = posix_memalign(&data, static_cast<std::size_t>(alignment),
                                     static_cast<std::size_t>(lines * kAlignment));
    return error == 0 ? data : nullptr;
  };
  void* data = reserve();
  if (data == nullptr) {
    kept.drop_all();
    data = reserve();
  }
  if (data == nullptr) return nullptr;
#ifdef MADV_HUGEPAGE
  const std::int64_t whole = bytes / kHugePage * kHugePage;
  if (whole != 0) (void)madvise(data, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(data);
}

/// Linux may grant more memory than it has, and kills processes when they use it. Reading how much
/// is free costs little compared with writing a large buffer.
void check_free(std::int64_t bytes) {
  constexpr std::int64_t kUncheckedBytes = std::int64_t{64} << 20;
  if (bytes < kUncheckedBytes || overcommit()) return;
  if (bytes <= machine_memory().free) return;
  KeptMemory::instance().drop_all();
  const std::int64_t free = machine_memory().free;
  if (bytes <= free) return;
  throw RuntimeFault("out of memory: " + std::to_string(bytes) + " bytes needed for a buffer, " +
                     std::to_string(free) +
                     " bytes free; use a smaller batch or a smaller model, or allow overcommit");
}

const LentMemory* lent_by(const std::shared_ptr<const DeviceCopies>& copies) {
  return dynamic_cast<const LentMemory*>(copies.get());
}

}  // namespace

Buffer::Buffer(std::int64_t bytes, Use use) : size_(bytes), use_(use) { data_ = make_memory(); }

Buffer::Buffer(std::int64_t bytes, std::shared_ptr<const DeviceCopies> copies)
    : size_(bytes), use_(Use::array), copies_(std::move(copies)) {}

Buffer::~Buffer() {
  std::byte* const data = data_;
  if (data == nullptr || lent_by(copies_) != nullptr) return;
  const std::int64_t held = bytes_held.fetch_sub(size_, std::memory_order_relaxed) - size_;
  if (is_recorded.load(std::memory_order_relaxed)) record(data, size_, held, true, use_);
  const std::int64_t lines = lines_of(size_);
  if (lines <= kMostSmallLines) {
    free_small(data);
  } else {
    KeptMemory::instance().give(data, lines);
  }
}

std::byte* Buffer::make_memory() {
  check_free(size_);
  std::byte* const data = allocate(size_);
  if (data == nullptr) {
    throw RuntimeFault("out of memory: " + std::to_string(size_) +
                       " bytes needed for a buffer; use a smaller batch or a smaller model");
  }
  const std::int64_t held = bytes_held.fetch_add(size_, std::memory_order_relaxed) + size_;
  raise_most(held);
  if (is_recorded.load(std::memory_order_relaxed)) record(data, size_, held, false, use_);
  return data;
}

std::byte* Buffer::fetch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::byte* const data = data_.load(std::memory_order_relaxed)) return data;
  if (const LentMemory* lent = lent_by(copies_)) {
    data_.store(lent->data(), std::memory_order_release);
    return lent->data();
  }
  Buffer read(size_, use_);
  copies_->read(std::span(read.data(), static_cast<std::size_t>(size_)));
  data_.store(read.data_.exchange(nullptr), std::memory_order_release);
  return data_;
}

void Buffer::wait() const {
  if (data_.load(std::memory_order_acquire) == nullptr) copies()->wait();
}

std::shared_ptr<const DeviceCopies> Buffer::copies() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return copies_;
}

void Buffer::set_copies(std::shared_ptr<const DeviceCopies> copies) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Lent memory stays with its buffer: devices get copies that are not kept.
  if (lent_by(copies_) == nullptr) copies_ = std::move(copies);
}

std::int64_t Buffer::peak_bytes() { return most_bytes_held.load(std::memory_order_relaxed); }

void Buffer::reset_peak_bytes() {
  most_bytes_held.store(bytes_held.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::int64_t buffer_bytes() { return bytes_held.load(std::memory_order_relaxed); }

void record_allocations(bool on) {
  allocations();  // constructed now, where it may throw
  is_recorded.store(on, std::memory_order_relaxed);
}

RecordedAllocations take_allocations() {
  Allocations& all = allocations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return {.list = std::exchange(all.list, {}), .num_lost = std::exchange(all.num_lost, 0)};
}

}  // namespace tessera::run
