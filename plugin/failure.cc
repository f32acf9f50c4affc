#include "plugin/failure.h"

#include <new>

#include <tessera/error.h>

namespace tessera::plugin {

FailurePtr current_failure(int user_code) {
  const auto make = [](int code, std::string text) {
    return std::make_shared<const Failure>(Failure{code, std::move(text)});
  };
  try {
    throw;
  } catch (const Failed& failed) {
    return failed.failure();
  } catch (const UserError& error) {
    return make(user_code, error.what());
  } catch (const std::bad_alloc&) {
    return make(abi::kOutOfMemory, "out of memory; use a smaller batch or a smaller model");
  } catch (const RuntimeFault& fault) {
    const std::string text = fault.what();
    return make(text.starts_with("out of memory") ? abi::kOutOfMemory : abi::kInternal, text);
  } catch (const std::exception& error) {
    return make(abi::kInternal, error.what());
  } catch (...) {
    return make(abi::kInternal, "an unknown exception");
  }
}

abi::Error* error_of(const FailurePtr& failure) {
  return failure == nullptr ? nullptr : new abi::Error{failure};
}

}  // namespace tessera::plugin
