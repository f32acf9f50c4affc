// jit: compiles a function of trees once for each kind of arguments, and runs it on a mesh.
//
//   auto step = jit([](State old, Array batch) { ...; return std::tuple(next, loss); },
//                   {.donate_argnums = {0}});
//   std::tie(state, loss) = step(std::move(state), batch);
//   std::puts(step.lower(state, batch).explain().c_str());
//   if (step.num_traces() > 1) std::puts(step.why_recompiled().c_str());
//
// The function is traced once for each combination of structure, types, shardings, mesh and engine
// settings. Captured arrays are read when it is traced; later assignments have no effect. Inside
// another traced function, a jitted function becomes a call and its options are ignored; at most
// 256 functions may be traced inside each other. Several threads may call jitted functions.
#pragma once

#include <optional>
#include <span>
#include <typeinfo>

#include <tessera/engine.h>
#include <tessera/shardings.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

/// Cuts a microbatch function without marks into the stages of its schedule. Uses the estimated
/// costs of equations, so that the step ends early and few bytes pass between stages.
struct AutoStages {
  /// The bytes that a device may hold for a stage: parameters, their gradients, and what backward
  /// passes need from the microbatches in flight.
  double memory_limit = 1e300;
};

/// Options of jit.
struct JitOptions {
  std::vector<Shardings> in_shardings = {};  // one per argument, or none: those of the arguments
  Shardings out_shardings = {};              // of the result; default: inferred
  // Arguments whose memory the call may reuse. Shardings and collectives do not depend on it.
  std::vector<int> donate_argnums = {};
  std::string name = {};
  PassSettings passes = {};
  // UserError if an argument, an out_sharding or a constraint splits a dimension into shards of
  // different sizes.
  bool strict = false;
  bool check_finite = false;  // UserError that names the op that makes a NaN or an infinity
  std::optional<Numerics> numerics = {};  // of this program; default: that of set_numerics()
  std::string dot_unit = {};              // for bf16 products in this program; see set_dot_unit()
  // The function has one treduce, which runs as a pipeline over the groups of this mesh.
  std::optional<MpmdMesh> mpmd_mesh = {};
  std::optional<AutoStages> auto_stages = {};  // cuts that treduce; leave empty if it has marks
  // The most traces that are allowed; another one is a UserError that says why. 0: no limit.
  int max_traces = 0;
};

// --- implementation

namespace detail {

/// A user's function with its arguments, as a function of leaves.
class Body {
 public:
  virtual ~Body() = default;
  /// Calls the function on copies of the arguments that hold `leaves` and returns its result.
  virtual std::shared_ptr<void> call(const std::vector<Array>& leaves) = 0;
  virtual Walk walk_arguments(Walk::Want want) const = 0;
  /// Trees of different types may have equal structures.
  virtual std::span<const std::type_info* const> argument_types() const = 0;
  virtual Walk walk_result(void* result, Walk::Want want) const = 0;
};

template <typename F, typename R, typename... Args>
class BodyOf final : public Body {
 public:
  BodyOf(F& f, const Args&... args) : f_(f), args_(args...) {}
  std::shared_ptr<void> call(const std::vector<Array>& leaves) override {
    std::tuple<Args...> copies(args_);
    replace_leaves(walked(copies, Walk::Want::leaves), leaves);
    return std::make_shared<R>(std::apply(f_, std::move(copies)));
  }
  Walk walk_arguments(Walk::Want want) const override { return walked(args_, want); }
  std::span<const std::type_info* const> argument_types() const override {
    static const std::type_info* const types[] = {&typeid(Args)..., nullptr};
    return {types, sizeof...(Args)};
  }
  Walk walk_result(void* result, Walk::Want want) const override {
    return walked(*static_cast<R*>(result), want);
  }

 private:
  F& f_;
  std::tuple<const Args&...> args_;
};

struct Outcome {
  std::shared_ptr<const void> result;  // as traced; its type is what Body returns
  std::vector<Array> leaves;
};

class JitCore {
 public:
  JitCore(JitOptions options, const std::source_location& where);
  ~JitCore();
  JitCore(const JitCore&) = delete;
  JitCore& operator=(const JitCore&) = delete;

  /// Traces and compiles if needed, then runs. Gives donated arguments away.
  Outcome call(const Walk& arguments, Body& body, const std::source_location& where);
  std::shared_ptr<Program> lower(const Walk& arguments, Body& body,
                                 const std::source_location& where);
  /// A call within another traced function becomes one equation; options are ignored.
  Outcome call_traced(Body& body, const std::source_location& where);
  std::shared_ptr<Program> last(const std::source_location& where) const;
  int num_traces() const;
  std::string why_recompiled() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void compile(Program& program);
Outcome run(const std::shared_ptr<Program>& program, const Walk& arguments,
            const std::source_location& where);
/// Places the arguments; returns them as the leaves of the outcome.
Outcome place(const std::shared_ptr<Program>& program, const Walk& arguments,
              const std::source_location& where);
bool is_tracing();

template <typename R>
[[gnu::cold]] R result_of(const Outcome& outcome) {
  R result(*static_cast<const R*>(outcome.result.get()));
  replace_leaves(walked(result, Walk::Want::leaves), outcome.leaves);
  return result;
}

template <typename... Args>
Walk walked_arguments(const Args&... args) {
  return walked(std::tuple<const Args&...>(args...), Walk::Want::structure);
}

template <typename R, typename F, typename... Args>
[[gnu::cold]] R call_jitted(JitCore& core, F& f, const std::source_location& where,
                            Args&&... args) {
  BodyOf<F, R, std::remove_cvref_t<Args>...> body(f, args...);
  if (is_tracing()) return result_of<R>(core.call_traced(body, where));
  return result_of<R>(core.call(walked_arguments(args...), body, where));
}

/// What a generic function returns for arguments of these types.
template <typename F, typename... Args>
constexpr auto generic_result() {
  constexpr bool kTakes = std::is_invocable_v<F&, Args...>;
  static_assert(kTakes,
                "jit: the function does not take these arguments; its parameters are values or "
                "const references, not auto&");
  if constexpr (kTakes) {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
    static_assert(!std::is_void_v<R>, "jit: the generic function returns void; return its arrays");
    return std::type_identity<std::conditional_t<std::is_void_v<R>, NotJitted, R>>();
  } else {
    return std::type_identity<NotJitted>();
  }
}

}  // namespace detail

/// A function compiled for one kind of arguments.
template <typename R, typename... Args>
class Compiled : public CompiledProgram {
 public:
  using CompiledProgram::CompiledProgram;
  /// Throws UserError for arguments of another structure, type or sharding.
  R operator()(Args... args, std::source_location where = std::source_location::current()) const {
    return detail::result_of<R>(detail::run(program_, detail::walked_arguments(args...), where));
  }
  /// The arguments with the shardings of the program. With one process per device, only the groups
  /// that need an argument hold it. Throws the same errors as a call.
  std::tuple<Args...> place(Args... args,
                            std::source_location where = std::source_location::current()) const {
    const detail::Outcome placed =
        detail::place(program_, detail::walked_arguments(args...), where);
    std::tuple<Args...> result(std::move(args)...);
    detail::replace_leaves(detail::walked(result, detail::Walk::Want::leaves), placed.leaves);
    return result;
  }
};

/// A function traced and partitioned for one kind of arguments.
template <typename R, typename... Args>
class Lowered : public LoweredProgram {
 public:
  using LoweredProgram::LoweredProgram;
  Compiled<R, Args...> compile() const {
    detail::compile(*program_);
    return Compiled<R, Args...>(program_);
  }
};

/// What jit returns for a function whose parameter types are known.
template <typename F, typename R, typename... Args>
class Jitted {
 public:
  Jitted(F f, JitOptions options, const std::source_location& where)
      : f_(std::move(f)), core_(std::make_shared<detail::JitCore>(std::move(options), where)) {}

  R operator()(Args... args, std::source_location where = std::source_location::current()) const {
    return detail::call_jitted<R>(*core_, f_, where, std::move(args)...);
  }
  /// Traces and partitions without running. Abstract arguments are enough.
  Lowered<R, Args...> lower(const Args&... args,
                            std::source_location where = std::source_location::current()) const {
    detail::BodyOf<F, R, Args...> body(f_, args...);
    return Lowered<R, Args...>(core_->lower(detail::walked_arguments(args...), body, where));
  }
  /// Traces and compiles without running.
  Compiled<R, Args...> compile(const Args&... args,
                               std::source_location where = std::source_location::current()) const {
    return lower(args..., where).compile();
  }
  /// The program of the last call.
  CompiledProgram compiled(std::source_location where = std::source_location::current()) const {
    return CompiledProgram(core_->last(where));
  }
  /// How often the function was traced.
  int num_traces() const { return core_->num_traces(); }
  /// Why the function was last traced again: what differed from the most similar earlier call, one
  /// argument or setting per line. Empty if it was traced at most once.
  std::string why_recompiled() const { return core_->why_recompiled(); }

 private:
  mutable F f_;
  std::shared_ptr<detail::JitCore> core_;
};

/// What jit returns for a generic lambda, whose parameter types are those of each call.
template <typename F>
class JittedGeneric {
 public:
  JittedGeneric(F f, JitOptions options, const std::source_location& where)
      : f_(std::move(f)), core_(std::make_shared<detail::JitCore>(std::move(options), where)) {}

  template <typename... Args>
  auto operator()(Args&&... args) const {
    using R = typename decltype(detail::generic_result<F, std::remove_cvref_t<Args>...>())::type;
    if constexpr (std::same_as<R, detail::NotJitted>) {
      return R();
    } else {
      return detail::call_jitted<R>(*core_, f_, {}, std::forward<Args>(args)...);
    }
  }
  template <typename... Args>
  auto lower(const Args&... args) const {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
    detail::BodyOf<F, R, Args...> body(f_, args...);
    return Lowered<R, Args...>(
        core_->lower(detail::walked_arguments(args...), body, std::source_location()));
  }
  CompiledProgram compiled() const { return CompiledProgram(core_->last({})); }
  int num_traces() const { return core_->num_traces(); }
  std::string why_recompiled() const { return core_->why_recompiled(); }

 private:
  mutable F f_;
  std::shared_ptr<detail::JitCore> core_;
};

namespace detail {

template <typename F, typename R, typename... Args>
auto make_jitted(F f, JitOptions options, const std::source_location& where,
                 Signature<R, Args...>*) {
  return Jitted<F, std::remove_cvref_t<R>, std::remove_cvref_t<Args>...>(std::move(f),
                                                                         std::move(options), where);
}

}  // namespace detail

/// Compiles `f`, a function of trees that returns a tree. Its parameters must be values or const
/// references.
template <typename F>
auto jit(F f, JitOptions options = {},
         std::source_location where = std::source_location::current()) {
  if constexpr (detail::HasSignature<F>) {
    using S = typename detail::SignatureOf<F>::Type;
    static_assert(!S::kReturnsNothing,
                  "jit: the function returns void; return the arrays that it computes, since what "
                  "it assigns to other variables is lost after it has been traced");
    static_assert(!S::kChangesArguments,
                  "jit: a parameter is a reference that is not const; take it by value or by "
                  "const&, and return the new value");
    if constexpr (S::kReturnsNothing || S::kChangesArguments) {
      return detail::NotJitted();
    } else {
      return detail::make_jitted(std::move(f), std::move(options), where, static_cast<S*>(nullptr));
    }
  } else {
    return JittedGeneric<F>(std::move(f), std::move(options), where);
  }
}

}  // namespace tessera
