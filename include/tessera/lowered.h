// What is known of a program before it runs, and of the passes that make it.
//
//   auto step = jit(train_step, {.passes = {.observe = [](const PassReport& pass) { ... }}});
//   auto lowered = step.lower(state, batch);             // traced and split over the mesh
//   lowered.partitioned_ir(), lowered.arguments(), lowered.explain()
//   lowered.compile().memory().peak                      // bytes of one device
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/engine.h>
#include <tessera/mesh.h>
#include <tessera/types.h>

namespace tessera {

namespace ir {
struct PassEvent;
}
namespace detail {
struct Program;
}  // namespace detail

// --- passes of the compiler

/// A pass that has run; valid while it is observed.
class PassReport {
 public:
  std::string_view name() const;
  double seconds() const;
  /// The program that the pass was given, and what it made of it.
  std::string ir_before() const;
  std::string ir_after() const;

  explicit PassReport(const ir::PassEvent& event) : event_(event) {}

 private:
  const ir::PassEvent& event_;
};

/// A function that is told of every pass.
class PassObserver {
 public:
  PassObserver() = default;
  template <std::invocable<const PassReport&> F>
  PassObserver(F f)  // NOLINT(google-explicit-constructor)
      : call_([](const void* target, const PassReport& pass) {
          (*static_cast<const F*>(target))(pass);
        }),
        target_(std::make_shared<const F>(std::move(f))) {}

  explicit operator bool() const { return call_ != nullptr; }
  void operator()(const PassReport& pass) const { call_(target_.get(), pass); }

 private:
  void (*call_)(const void*, const PassReport&) = nullptr;
  std::shared_ptr<const void> target_;
};

struct PassSettings {
  std::vector<std::string> disabled = {};  // names of optional passes that are left out
  bool verify = false;                     // checks the program after each pass
  PassObserver observe = {};
};

// --- compiled programs

/// An argument or a result: `path` is that of the leaf, `local_shape` what the fullest device
/// holds.
struct LeafPlacement {
  std::string path;
  Type type;
  NamedSharding sharding;
  Shape local_shape;
};

/// Bytes that one real device would hold while the program runs.
struct MemoryPlan {
  std::int64_t arguments = 0;
  std::int64_t results = 0;      // that do not take the memory of a donated argument
  std::int64_t temporaries = 0;  // at their peak
  std::int64_t peak = 0;         // all of these
};

/// What is known of a function lowered for one kind of arguments.
class LoweredProgram {
 public:
  /// The function as traced and differentiated, and as split over the mesh.
  std::string ir() const;
  std::string partitioned_ir() const;
  /// A table of every collective: kind, bytes, user's line.
  std::string explain() const;
  /// Planned collectives of one run.
  std::vector<CollectiveUse> collectives() const;

  /// Where each leaf of the arguments and of the result lives.
  std::vector<LeafPlacement> arguments() const;
  std::vector<LeafPlacement> results() const;

  explicit LoweredProgram(std::shared_ptr<detail::Program> program);

 protected:
  std::shared_ptr<detail::Program> program_;
};

class CompiledProgram : public LoweredProgram {
 public:
  using LoweredProgram::LoweredProgram;
  /// From the call to the first instruction: trace, differentiate, partition, compile.
  double compile_seconds() const;
  /// What one real device would have to hold, arguments included.
  std::int64_t device_peak_bytes() const { return memory().peak; }
  MemoryPlan memory() const;
};

}  // namespace tessera
