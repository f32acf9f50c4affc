#include "api/inspect/warnings.h"

#include <iostream>
#include <mutex>
#include <utility>

#include <tessera/error.h>

#include "run/world.h"

namespace tessera {

namespace {

using Handler = detail::Function<void, const Warning&>;

class CurrentHandler {
 public:
  static CurrentHandler& instance() {
    static auto* const current = new CurrentHandler;  // warnings may come from late destructors
    return *current;
  }
  void set(Handler handler) {
    const std::lock_guard<std::mutex> lock(mutex_);
    handler_ = std::move(handler);
  }
  /// A copy, so that a handler may set another one.
  Handler get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return handler_;
  }

 private:
  std::mutex mutex_;
  Handler handler_;
};

}  // namespace

std::string to_string(const Warning& warning) {
  return UserError({.what = warning.what,
                    .where = warning.where,
                    .found = warning.found,
                    .wanted = {},
                    .cure = warning.cure})
      .what();
}

void detail::set_warning_handler(Handler handler) {
  CurrentHandler::instance().set(std::move(handler));
}

void reset_warning_handler() { CurrentHandler::instance().set({}); }

void detail::warn(const Warning& warning) {
  const Handler handler = CurrentHandler::instance().get();
  if (handler) return handler(warning);
  if (run::world().rank() != 0) return;
  std::cerr << "warning: " + to_string(warning) + "\n" << std::flush;
}

}  // namespace tessera
