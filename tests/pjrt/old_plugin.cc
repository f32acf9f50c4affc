// A library with the form of a plugin for an older interface.
#include "run/pjrt/abi.h"

namespace abi = tessera::run::pjrt::abi;

extern "C" const abi::Api* GetPjrtApi();
extern "C" const abi::Api* GetPjrtApi() {
  static const abi::Api api = {.struct_size = sizeof(abi::Api),
                               .extensions = nullptr,
                               .version = {sizeof(abi::Version), nullptr, 0, 57},
                               .functions = {nullptr}};
  return &api;
}
