#include <algorithm>

#include <tessera/error.h>
#include <tessera/nn.h>
#include <tessera/transform.h>

namespace tessera::nn {

struct Scope::State {
  Array root;  // data of the root key: u32[2], or u32[length,2] for stacked layers
  std::vector<std::string> path;
  std::size_t num_folded = 0;  // names of the path that the root key already depends on
  std::vector<std::string> taken;
  std::shared_ptr<std::uint32_t> num_keys;  // keys made so far, in this scope or, for NNX, in all
  bool is_nnx = false;
  std::int64_t length = 0;             // of stacked layers; 0: one layer
  std::optional<SpecEntry> axis_name;  // of the dimension of layers
  std::source_location scanned_at;
  std::source_location named_at = {};
};

Buffer& Buffer::operator=(const Operand& value) & {
  Array next = value.is_number() && !is_empty() ? full(shape(), value, dtype()) : value.array;
  const bool is_new = is_empty() || next.is_empty();
  if (!is_new && next.type(value.where) != type()) {
    throw UserError({.what = "Buffer: the new value has a different type",
                     .where = value.where,
                     .found = to_string(next.type()) + " for buffer " + path(),
                     .wanted = to_string(type()),
                     .cure = "convert it with astype, or reduce it to the shape of the buffer"});
  }
  if (next.is_traced() && is_float(next.dtype())) next = stop_gradient(Operand(next, value.where));
  Param::operator=(with_value(std::move(next)));
  return *this;
}

TESSERA_DEFINE_COPYABLE(ScopeName);
TESSERA_DEFINE_COPYABLE(Scope);

Key KeyFold::operator()(const Key& root) const {
  return has_names ? random::fold_in(root, names, number) : random::fold_in(root, number);
}

std::string KeyFold::tessera_key() const {
  std::string text = has_names ? "linen " : "nnx ";
  for (const std::string& name : names) text += name + "/";
  return text + std::to_string(number);
}

Scope::Scope(std::shared_ptr<State> state) : state_(std::move(state)) {}

Scope::Scope(const Key& key) : state_(std::make_shared<State>()) {
  state_->root = key.data();
  state_->num_keys = std::make_shared<std::uint32_t>(0);
}

Scope Scope::nnx(const Key& key) {
  Scope scope(key);
  scope.state_->is_nnx = true;
  return scope;
}

namespace {

std::string joined(const std::vector<std::string>& path, std::string name) {
  std::string text;
  for (const std::string& part : path) text += part + "/";
  return text + std::move(name);
}

}  // namespace

void Scope::take(const std::string& name, const std::source_location& where) const {
  std::vector<std::string>& taken = state_->taken;
  if (name.empty() || name.find('/') != std::string::npos) {
    throw UserError({.what = "nn::Scope: '" + name + "' is not a name",
                     .where = where,
                     .found = name.empty() ? "an empty name" : "a name with '/'",
                     .wanted = "a name without '/'",
                     .cure = "open one scope per name: scope / \"blocks\" / \"Dense_0\""});
  }
  if (std::count(taken.begin(), taken.end(), name) != 0) {
    throw UserError(
        {.what = "nn::Scope: the name '" + joined(state_->path, name) + "' is already used",
         .where = where,
         .found = "'" + name + "' a second time",
         .wanted = "different names",
         .cure = "give each layer and parameter of a scope its own name"});
  }
  taken.push_back(name);
}

Scope Scope::operator/(ScopeName name) const {
  take(name.text, name.where);
  auto child = std::make_shared<State>(*state_);
  child->path.push_back(std::move(name.text));
  child->named_at = name.where;
  child->taken.clear();
  if (!child->is_nnx) child->num_keys = std::make_shared<std::uint32_t>(0);
  return Scope(std::move(child));
}

std::source_location Scope::named_at() const { return state_->named_at; }

KeyFold Scope::fold(std::uint32_t number) const {
  if (state_->is_nnx) return {.names = {}, .number = number - 1, .has_names = false};
  const auto first = state_->path.begin() + static_cast<std::ptrdiff_t>(state_->num_folded);
  return {.names = {first, state_->path.end()}, .number = number};
}

KeyFold Scope::dropout_fold() const { return fold(state_->is_nnx ? ++*state_->num_keys : 1); }

/// f of the root key or, for stacked layers, of the key of each layer.
template <typename F>
Array Scope::each_root(F f) const {
  const auto on_data = [&](const Array& data) { return f(Key::from_data(data)); };
  return state_->length > 0 ? vmap(on_data)(state_->root) : on_data(state_->root);
}

Scope Scope::folded(std::source_location where) const {
  const CallScope call(where);
  const KeyFold next = fold(++*state_->num_keys);
  auto inner = std::make_shared<State>(*state_);
  inner->root = each_root([&](const Key& root) { return next(root).data(); });
  inner->num_folded = inner->path.size();
  if (!inner->is_nnx) inner->num_keys = std::make_shared<std::uint32_t>(0);
  return Scope(std::move(inner));
}

Scope Scope::stacked(std::int64_t length, std::optional<SpecEntry> axis_name,
                     std::source_location where) const {
  const CallScope call(where);
  if (length < 1 || state_->length > 0) {
    throw UserError({.what = "nn::scan: layers cannot be stacked here",
                     .where = where,
                     .found = length < 1 ? std::to_string(length) + " layers"
                                         : "a scope that already stacks layers",
                     .wanted = "at least one layer, in a scope that is not itself scanned",
                     .cure = "pass .length = the number of layers, in the outermost nn::scan"});
  }
  auto layers = std::make_shared<State>(*state_);
  layers->root = random::split_data(Key::from_data(state_->root), length);
  layers->length = length;
  layers->axis_name = std::move(axis_name);
  layers->scanned_at = where;
  return Scope(std::move(layers));
}

Scope Scope::traced_again() const {
  auto again = std::make_shared<State>(*state_);
  again->taken.clear();
  return Scope(std::move(again));
}

namespace {

/// Adds the parameter and its line to errors of the initialiser.
template <typename F>
Array initial_value(F make, const std::string& path, const std::source_location& where) {
  try {
    return make();
  } catch (const UserError& error) {
    Mistake mistake = error.mistake();
    if (mistake.where.file.empty()) mistake.where = where;
    mistake.found += " for parameter " + path;
    throw UserError(std::move(mistake));
  }
}

void check_names(const PartitionSpec& spec, const std::string& path, const Shape& shape,
                 const std::source_location& where) {
  if (spec.entries().size() <= shape.size()) return;
  throw UserError({.what = "nn::Scope: parameter " + path + " has more names than dimensions",
                   .where = where,
                   .found = to_string(spec) + " for shape " + to_string(shape),
                   .wanted = "no more names than dimensions: " + std::to_string(shape.size()),
                   .cure = "give with_partitioning or with_logical_partitioning one name, or none, "
                           "per dimension"});
}

[[noreturn]] void fail_unnamed_layers(const PartitionSpec& spec, const std::string& path,
                                      const std::source_location& where) {
  throw UserError({.what = "nn::scan: annotated parameters need a name for the dimension of layers",
                   .where = where,
                   .found = to_string(spec) + " for parameter " + path + ", and no axis_name",
                   .wanted = "a mesh axis, a logical name, or none",
                   .cure = "write {.length = ..., .axis_name = none}, which does not split the "
                           "layers"});
}

}  // namespace

Param Scope::param(std::string name, const Initializer& initializer, const Shape& shape,
                   std::source_location where) const {
  const CallScope scope(where);
  take(name, where);
  const KeyFold next = fold(++*state_->num_keys);
  std::string path = joined(state_->path, std::move(name));
  const auto draw = [&](const Key& root) { return initializer(next(root), shape); };
  Array value = initial_value([&] { return each_root(draw); }, path, where);
  const std::optional<Initializer::Annotation>& annotation = initializer.annotation();
  if (!annotation) return {std::move(value), std::move(path)};
  check_names(annotation->spec, path, shape, where);
  if (state_->length == 0) {
    return {std::move(value), std::move(path), annotation->spec, annotation->names};
  }
  if (!state_->axis_name) fail_unnamed_layers(annotation->spec, path, state_->scanned_at);
  std::vector<SpecEntry> entries = annotation->spec.entries();
  entries.insert(entries.begin(), *state_->axis_name);
  return {std::move(value), std::move(path), PartitionSpec(std::move(entries)), annotation->names};
}

Param Scope::param(std::string name, Array value, std::source_location where) const {
  const CallScope scope(where);
  take(name, where);
  if (state_->length > 0) {
    value = each_root([&](const Key&) { return value; });
  }
  return {std::move(value), joined(state_->path, std::move(name))};
}

Buffer Scope::buffer(std::string name, Array value, std::source_location where) const {
  return Buffer(param(std::move(name), std::move(value), where));
}

namespace detail {

std::int64_t num_layers(const std::vector<Array>& leaves, const std::source_location& where) {
  if (!leaves.empty()) return leaves[0].dim(0);
  throw UserError({.what = "nn::scan: the layers have no arrays",
                   .where = where,
                   .found = "a layer without parameters and buffers",
                   .wanted = "arrays whose first dimension is the number of layers",
                   .cure = "apply the layer in a for loop: x = layer(x)"});
}

}  // namespace detail

}  // namespace tessera::nn
