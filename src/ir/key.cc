#include <bit>

#include "ir/hash.h"

namespace tessera::ir {

namespace {

/// Appends values as bytes. Lists begin with their length, so that no two sequences are alike.
class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) {}

  void add(const Function& function) {
    add(function.mesh);
    add(function.grains);
    add(static_cast<std::int64_t>(function.numerics));
    add(function.inputs.size());
    for (const ValueId id : function.inputs) {
      add(static_cast<std::int64_t>(id));
      add(static_cast<std::int64_t>(function.type(id).dtype));
      add(function.type(id).shape);
    }
    add(function.equations.size());
    for (const Equation& equation : function.equations) add(equation);
    add(function.outputs);
  }

 private:
  /// The types of results follow from the operands.
  void add(const Equation& equation) {
    add(std::bit_cast<std::size_t>(equation.op));
    add(equation.attributes.items().size());
    for (const auto& [name, value] : equation.attributes.items()) {
      add(name);
      add(value.index());
      std::visit([&](const auto& item) { add(item); }, value);
    }
    add(equation.operands);
    add(equation.results);
  }

  void add(const Mesh& mesh) {
    add(mesh.axes().size());
    if (!mesh.axes().empty()) add(to_string(mesh));
  }
  void add(const Sharding& sharding) {
    add(sharding.dims.size());
    for (const AtomList& dim : sharding.dims) add(dim);
    add(sharding.partial);
    add(sharding.open.size());
    for (const std::size_t dim : sharding.open) add(dim);
    add(sharding.windows.size());
    for (const Window& window : sharding.windows) add(window);
  }
  void add(const Window& window) {
    add(window.dim);
    add(window.offset);
    add(window.divisor);
    add(window.terms.size());
    for (const Window::Term& term : window.terms) {
      add(term.size);
      add(term.step);
      add(term.num_atoms);
    }
  }
  void add(const AtomList& atoms) {
    add(atoms.size());
    key_.append(reinterpret_cast<const char*>(atoms.data()), atoms.size());
  }
  void add(const Bodies& bodies) {
    add(bodies.functions.size());
    for (const auto& body : bodies.functions) add(*body);
  }
  void add(const ShardingWatcher& watcher) { add(std::bit_cast<std::size_t>(watcher.tell.get())); }
  void add(const HostCallback& callback) {
    add(std::bit_cast<std::size_t>(callback.call.get()));
    add(callback.results.size());
    for (const Type& type : callback.results) {
      add(type.dtype);
      add(type.shape);
    }
  }
  void add(const std::string& text) {
    add(text.size());
    key_ += text;
  }
  void add(const Ints& ints) { add_list(ints); }
  void add(const std::vector<ValueId>& ids) { add_list(ids); }
  void add(bool value) { key_ += static_cast<char>(value); }
  void add(DType value) { key_ += static_cast<char>(value); }
  void add(double value) { add(std::bit_cast<std::size_t>(value)); }
  void add(std::int64_t value) { add(static_cast<std::size_t>(value)); }
  void add(std::size_t value) { add_bytes(&value, sizeof(value)); }

  template <typename T>
  void add_list(const std::vector<T>& list) {
    add(list.size());
    add_bytes(list.data(), list.size() * sizeof(T));
  }
  void add_bytes(const void* data, std::size_t size) {
    if (size > 0) key_.append(static_cast<const char*>(data), size);
  }

  std::string& key_;
};

}  // namespace

void append_key(std::string& key, const Function& function) { KeyWriter(key).add(function); }

}  // namespace tessera::ir
