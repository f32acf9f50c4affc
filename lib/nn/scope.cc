#include <algorithm>

#include <tessera/error.h>
#include <tessera/nn.h>

namespace tessera::nn {

struct Scope::State {
  Key root;
  std::vector<std::string> path;
  std::vector<std::string> taken;
  std::uint32_t num_keys = 0;  // Flax counts the keys that a scope hands out, from 1
};

TESSERA_DEFINE_COPYABLE(ScopeName);
TESSERA_DEFINE_COPYABLE(Scope);
Scope::Scope(std::shared_ptr<State> state) : state_(std::move(state)) {}
Scope::Scope(const Key& key) : state_(std::make_shared<State>()) { state_->root = key; }

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
    throw UserError({.what = "nn::Scope: the name '" + joined(state_->path, name) + "' is taken",
                     .where = where,
                     .found = "'" + name + "' a second time",
                     .wanted = "different names",
                     .cure = "give each layer and parameter of a scope its own name"});
  }
  taken.push_back(name);
}

Scope Scope::operator/(ScopeName name) const {
  take(name.text, name.where);
  auto child = std::make_shared<State>();
  child->root = state_->root;
  child->path = state_->path;
  child->path.push_back(std::move(name.text));
  return Scope(std::move(child));
}

namespace {

/// Errors name the parameter and the line that asks for it.
Array initial_value(const Initializer& initializer, const Key& key, const Shape& shape,
                    const std::string& path, const std::source_location& where) {
  try {
    return initializer(key, shape);
  } catch (const UserError& error) {
    Mistake mistake = error.mistake();
    if (mistake.where.file.empty()) mistake.where = where;
    mistake.found += " for parameter " + path;
    throw UserError(std::move(mistake));
  }
}

}  // namespace

Param Scope::param(std::string name, const Initializer& initializer, const Shape& shape,
                   std::source_location where) const {
  const CallScope scope(where);
  take(name, where);
  state_->num_keys += 1;
  const Key key = random::fold_in(state_->root, state_->path, state_->num_keys);
  std::string path = joined(state_->path, std::move(name));
  Array value = initial_value(initializer, key, shape, path, where);
  return initializer.is_annotated() ? Param(std::move(value), std::move(path), initializer.spec())
                                    : Param(std::move(value), std::move(path));
}

}  // namespace tessera::nn
