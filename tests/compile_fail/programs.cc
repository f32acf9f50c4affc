// Programs that users write by mistake, one for each macro PROGRAM_... The comment behind each
// #ifdef is what the compiler must report. check_programs.sh compiles the programs one by one. If
// no macro is defined, the file compiles.
#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

namespace tessera {

Array lvalues_are_assigned(Array x, const Array& y) {
  x = y;
  x = y + 1;
  std::vector<Array> list(2, x);
  list[0] = y;
  std::tie(x, list[1]) = std::pair(y, y);
  return x + sum(list[0], 0, keepdims);
}

void results_are_used(const Mesh& mesh) {
  const use_mesh scope(mesh);
  const optim::Rate rate = [peak = 0.1](const Array& done) { return peak / (1.0 + done); };
  const auto mask = optim::Mask::when([least = 2](const Param& x) { return x.rank() >= least; });
  const auto step = jit([](const Array& x, Array y) { return x + y; });
  const auto generic = jit([](const auto& x) { return x + 1; });
  generic(step(rate(zeros({})), zeros({})));
  optim::sgd({.learning_rate = rate});
  optim::add_decayed_weights(0.1, mask);
}

#ifdef PROGRAM_assigns_an_element  // deleted
void program(const Array& x, const Array& y) { x[0] = y; }
#endif

#ifdef PROGRAM_assigns_a_slice  // deleted
void program(const Array& x, const Array& y) { x.slice(0, 1, 2) = y + 1; }
#endif

#ifdef PROGRAM_adds_to_an_element  // cannot bind|no viable overloaded|no match
void program(const Array& x, const Array& y) { x[0] += y; }
#endif

#ifdef PROGRAM_takes_an_axis_for_keepdims  // KeepDims
Array program(const Array& x) { return sum(x, 0, 1); }
#endif

#ifdef PROGRAM_takes_a_bool_for_keepdims  // KeepDims
Array program(const Array& x) { return max(x, {0, 1}, true); }
#endif

#ifdef PROGRAM_drops_a_mesh_scope  // nodiscard
void program(const Mesh& mesh) { use_mesh{mesh}; }
#endif

#ifdef PROGRAM_drops_a_context_scope  // nodiscard
void program(const Context& context) { use_context{context}; }
#endif

#ifdef PROGRAM_drops_rules  // nodiscard
void program(const LogicalRules& rules) { logical_axis_rules{rules}; }
#endif

#ifdef PROGRAM_jits_a_void_function  // jit: the function returns void
void program(const Array& x) {
  jit([](const Array&) {})(x);
}
#endif

#ifdef PROGRAM_jits_a_void_generic_function  // jit: the generic function returns void
void program(const Array& x) {
  jit([](const auto&) {})(x);
}
#endif

#ifdef PROGRAM_changes_an_argument  // jit: a parameter is a reference that is not const
Array program(const Array& x) {
  return jit([](Array& y) {
    y = y + 1;
    return y;
  })(x);
}
#endif

#ifdef PROGRAM_changes_a_generic_argument  // jit: the function does not take these arguments
Array program(const Array& x) {
  return jit([](auto& y) { return y + 1; })(x);
}
#endif

#ifdef PROGRAM_makes_a_layer_of_two_arrays  // a layer is called as layer\(x\) or layer\(x, mode\)
Array program(const Array& x) {
  return nn::Sequential(relu, [](const Array& a, const Array& b) { return a + b; })(x);
}
#endif

}  // namespace tessera
