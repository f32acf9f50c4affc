// The kernels of a compilation. Tasks that do the same to their buffers share a kernel, so
// identical layers are compiled once.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compile/host/program.h"

namespace tessera::compile::host {

/// Everything that a kernel is made from, as numbers. The first is the kind of the kernel.
class KernelKey {
 public:
  enum class Kind : std::uint8_t { combine, contraction, copy, reduce, region };
  explicit KernelKey(Kind kind) { add(kind); }

  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T> KernelKey& add(T number) {
    words_.push_back(static_cast<std::int64_t>(number));
    return *this;
  }
  KernelKey& add(double number) { return add(std::bit_cast<std::int64_t>(number)); }
  KernelKey& add(const std::vector<std::int64_t>& numbers) {
    add(numbers.size());
    words_.insert(words_.end(), numbers.begin(), numbers.end());
    return *this;
  }
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
  std::size_t hash() const;

 private:
  std::vector<std::int64_t> words_;
};

class KernelPool {
 public:
  explicit KernelPool(const Function& function) : function_(function) {}

  /// The kernel that `make` returned for this key.
  template <typename Make>
  std::shared_ptr<const run::Kernel> get(KernelKey key, Make make) {
    std::shared_ptr<const run::Kernel>& kernel = kernels_[std::move(key)];
    if (kernel == nullptr) kernel = make();
    return kernel;
  }
  /// Equal for equations that differ only in the values that they name, if these have the same
  /// types and shardings.
  std::int64_t kind_of(const Equation& equation);

 private:
  struct Hash {
    std::size_t operator()(const KernelKey& key) const { return key.hash(); }
  };
  bool is_same_kind(const Equation& a, const Equation& b) const;

  const Function& function_;
  std::unordered_map<KernelKey, std::shared_ptr<const run::Kernel>, Hash> kernels_;
  std::unordered_multimap<std::size_t, const Equation*> kinds_;  // the first of each kind
};

}  // namespace tessera::compile::host
