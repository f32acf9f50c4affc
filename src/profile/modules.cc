#include <algorithm>
#include <optional>

#include "profile/program.h"

namespace tessera::profile {

std::string common_parent(const std::string& a, const std::string& b) {
  if (a == b) return a;
  std::size_t end = 0;
  for (std::size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool ends_a = i == a.size() || a[i] == '/';
    const bool ends_b = i == b.size() || b[i] == '/';
    if (ends_a && ends_b) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, end);
}

namespace {

/// The common module of several values, and whether all of them have the same one.
class Joined {
 public:
  void add(const std::string& module) {
    is_one_ = !module_ || (is_one_ && *module_ == module);
    module_ = module_ ? common_parent(*module_, module) : module;
  }
  bool is_one() const { return module_ && is_one_ && !module_->empty(); }
  std::string module() const { return module_.value_or(""); }

 private:
  std::optional<std::string> module_;
  bool is_one_ = false;
};

class Finder {
 public:
  Finder(const ir::Function& function, const std::vector<std::string>& inputs,
         const std::vector<std::string>& outputs)
      : f_(function), is_derived_(function.values.size(), false), newest_(function.values.size()) {
    modules_.derived.resize(f_.values.size());
    modules_.reaches.resize(f_.values.size());
    modules_.equations.resize(f_.equations.size());
    for (std::size_t i = 0; i < f_.inputs.size() && i < inputs.size(); ++i) {
      modules_.derived[f_.inputs[i]] = inputs[i];
      is_derived_[f_.inputs[i]] = !inputs[i].empty();
    }
    find_derived();
    find_reached(outputs);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) find_equation(i);
  }

  Modules take() { return std::move(modules_); }

 private:
  /// Constants depend on no parameters, so they are ignored.
  bool is_constant(ir::ValueId id) const { return is_constant_[id]; }

  void find_derived() {
    is_constant_.assign(f_.values.size(), false);
    for (const ir::Equation& equation : f_.equations) {
      Joined joined;
      bool is_pure = true;
      bool is_constant = true;
      for (const ir::ValueId id : equation.operands) {
        if (is_constant_[id]) continue;
        is_constant = false;
        is_pure = is_pure && is_derived_[id];
        if (is_derived_[id]) joined.add(modules_.derived[id]);
      }
      for (const ir::ValueId id : equation.results) {
        is_constant_[id] = is_constant;
        is_derived_[id] = is_pure && joined.is_one();
        if (is_derived_[id]) modules_.derived[id] = joined.module();
      }
    }
  }

  void find_reached(const std::vector<std::string>& outputs) {
    std::vector<Joined> readers(f_.values.size());
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      readers[f_.outputs[i]].add(i < outputs.size() ? outputs[i] : "");
    }
    for (auto equation = f_.equations.rbegin(); equation != f_.equations.rend(); ++equation) {
      for (const ir::ValueId id : equation->results) {
        if (readers[id].is_one()) modules_.reaches[id] = readers[id].module();
      }
      for (const ir::ValueId id : equation->operands) {
        for (const ir::ValueId result : equation->results) {
          readers[id].add(readers[result].is_one() ? readers[result].module() : "");
        }
      }
    }
  }

  void find_equation(std::size_t index) {
    const ir::Equation& equation = f_.equations[index];
    Joined read;
    Joined made;
    std::string newest;
    for (const ir::ValueId id : equation.operands) {
      if (is_derived_[id]) read.add(modules_.derived[id]);
    }
    for (const ir::ValueId id : equation.results) made.add(modules_.reaches[id]);
    const auto last = std::max_element(
        equation.operands.begin(), equation.operands.end(), [&](ir::ValueId a, ir::ValueId b) {
          return std::pair(!newest_[a].empty(), a) < std::pair(!newest_[b].empty(), b);
        });
    if (last != equation.operands.end()) newest = newest_[*last];
    std::string& module = modules_.equations[index];
    module = read.module();
    if (module.empty() && made.is_one()) module = made.module();
    if (module.empty()) module = newest;
    for (const ir::ValueId id : equation.results) newest_[id] = module;
  }

  const ir::Function& f_;
  Modules modules_;
  std::vector<bool> is_constant_;
  std::vector<bool> is_derived_;
  std::vector<std::string> newest_;  // per value: the module of its equation
};

}  // namespace

Modules find_modules(const ir::Function& function, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs) {
  return Finder(function, inputs, outputs).take();
}

}  // namespace tessera::profile
