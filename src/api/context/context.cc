#include "api/context/context.h"

#include <utility>

#include "api/program.h"
#include "compile/compile.h"
#include "trace/trace.h"

namespace tessera {

namespace detail {

namespace {

thread_local std::shared_ptr<ContextState> t_current;  // nullptr: the default context

ContextState& default_context() {
  static auto* const context = new ContextState;  // arrays may outlive every other static object
  return *context;
}

}  // namespace

std::shared_ptr<Program> EagerPrograms::find(std::string_view key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const EagerProgram* known = programs_.find(key);
  return known == nullptr ? nullptr : known->program;
}

void EagerPrograms::insert(const std::string& key, const EagerProgram& program) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (programs_.find(key) == nullptr) programs_.insert(key, program);
}

std::size_t EagerPrograms::size() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return programs_.size();
}

ContextState::ContextState(const ContextState& settings_of) {
  const std::lock_guard<std::mutex> lock(settings_of.mutex_);
  settings_ = settings_of.settings_;
  has_best_dot_unit_ = settings_of.has_best_dot_unit_;
  own_world_ = settings_of.own_world_;
}

Settings ContextState::settings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Settings settings = settings_;
  if (has_best_dot_unit_) settings.dot_unit = compile::best_dot_unit();
  settings.world = run::world();
  return settings;
}

void ContextState::set_alone() {
  const std::lock_guard<std::mutex> lock(mutex_);
  own_world_ = run::World();
}

void ContextState::set_dot_unit(std::optional<DotUnit> unit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_best_dot_unit_ = !unit.has_value();
  if (unit) settings_.dot_unit = *unit;
}

ContextState& current_context() { return t_current != nullptr ? *t_current : default_context(); }

Settings current_settings() { return current_context().settings(); }

}  // namespace detail

using detail::ContextState;

Context::Context() : state_(std::make_shared<ContextState>(detail::current_context())) {}
Context::Context(const ContextOptions& options, std::source_location where) : Context() {
  if (options.num_threads != 0) {
    detail::check_num_threads(options.num_threads, "Context", trace::call_span(where));
    state_->set(&detail::Settings::num_threads, options.num_threads);
  }
  if (options.is_alone) state_->set_alone();
}
Context::~Context() = default;

use_context::use_context(const Context& context)
    : previous_(std::exchange(detail::t_current, context.state_)) {
  run::set_world_of_thread(detail::current_context().own_world());
}
use_context::~use_context() {
  detail::t_current = std::move(previous_);
  run::set_world_of_thread(detail::current_context().own_world());
}

}  // namespace tessera
