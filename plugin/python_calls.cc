#include "plugin/python_calls.h"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include <tessera/error.h>

#include "run/threads/within_task.h"

namespace tessera::plugin {

namespace {

/// Callers hold `mutex` shared, so Python can end only after the last call.
struct Registered {
  std::shared_mutex mutex;
  PythonCalls calls;
};

/// Never destroyed: programs may outlive all other objects.
Registered& registered() {
  static auto* const kRegistered = new Registered;
  return *kRegistered;
}

class PythonFunction {
 public:
  PythonFunction(std::int64_t number, Span where) : number_(number), where_(std::move(where)) {}
  ~PythonFunction() {
    Registered& python = registered();
    const std::shared_lock lock(python.mutex);
    if (python.calls.release != nullptr) python.calls.release(number_);
  }
  PythonFunction(const PythonFunction&) = delete;
  PythonFunction& operator=(const PythonFunction&) = delete;

  void call(std::span<const std::byte* const> arguments,
            std::span<std::byte* const> results) const {
    Registered& python = registered();
    const std::shared_lock lock(python.mutex);
    if (python.calls.call == nullptr)
      throw RuntimeFault("the Python interpreter has already shut down");
    std::string failure;
    {
      const run::WithinTask scope;  // the function may call programs
      python.calls.call(number_, arguments.data(), results.data(), &failure);
    }
    if (failure.empty()) return;
    throw UserError({.what = "tessera: a Python function that the program calls failed",
                     .where = where_,
                     .found = failure,
                     .wanted = "a function that raises no exception and returns results of the "
                               "declared shapes and dtypes",
                     .cure = "fix the function, or catch the exception inside it"});
  }

 private:
  std::int64_t number_;
  Span where_;
};

}  // namespace

WithoutPythonLock::WithoutPythonLock() {
  PythonCalls calls;
  {
    Registered& python = registered();
    const std::shared_lock lock(python.mutex);
    calls = python.calls;
  }
  if (calls.holds_lock == nullptr || calls.holds_lock() == 0) return;
  take_ = calls.take_lock;
  state_ = calls.give_lock();
}

WithoutPythonLock::~WithoutPythonLock() {
  if (take_ != nullptr) take_(state_);
}

detail::HostCall python_function(std::int64_t number, const Span& where) {
  {
    Registered& python = registered();
    const std::shared_lock lock(python.mutex);
    if (python.calls.hold == nullptr || !python.calls.hold(number)) return {};
  }
  const auto function = std::make_shared<const PythonFunction>(number, where);
  return [function](std::span<const std::byte* const> arguments,
                    std::span<std::byte* const> results) { function->call(arguments, results); };
}

}  // namespace tessera::plugin

/// nullptr means that Python is about to end. Returns when no call is running.
extern "C" __attribute__((visibility("default"))) void tessera_set_python_calls(
    const tessera::plugin::PythonCalls* calls) {
  tessera::plugin::Registered& python = tessera::plugin::registered();
  const std::unique_lock lock(python.mutex);
  python.calls = calls == nullptr ? tessera::plugin::PythonCalls() : *calls;
}

extern "C" __attribute__((visibility("default"))) void tessera_call_failed(void* failure,
                                                                           const char* text) {
  *static_cast<std::string*>(failure) = text;
}
