// Errors on their way to JAX. No exception crosses the interface.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "run/pjrt/abi.h"

namespace tessera::plugin {

namespace abi = run::pjrt::abi;

struct Failure {
  int code = abi::kInternal;
  std::string text;
};
using FailurePtr = std::shared_ptr<const Failure>;  // nullptr: none

/// The exception that is being handled, as a Failure. `user_code` is the code for UserError.
FailurePtr current_failure(int user_code = abi::kInvalidArgument);

/// Thrown by functions of the plugin to pass on a failure that already exists.
class Failed : public std::exception {
 public:
  explicit Failed(FailurePtr failure) : failure_(std::move(failure)) {}
  const FailurePtr& failure() const { return failure_; }
  const char* what() const noexcept override { return failure_->text.c_str(); }

 private:
  FailurePtr failure_;
};

/// nullptr for no failure.
abi::Error* error_of(const FailurePtr& failure);

}  // namespace tessera::plugin

namespace tessera::run::pjrt::abi {

struct Error {
  tessera::plugin::FailurePtr failure;
};

}  // namespace tessera::run::pjrt::abi
