// The fourth part of abi.h: the extension with the profiler of a plugin (openxla/xla,
// xla/backends/profiler/plugin/profiler_c_api.h). Its structs begin with their size alone, and its
// errors are of another kind than those of the other functions.
#pragma once

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt::abi {

struct Profiler;
struct ProfilerError;

struct ProfilerErrorDestroy {
  std::size_t struct_size = sizeof(ProfilerErrorDestroy);
  void* more = nullptr;
  ProfilerError* error = nullptr;
};

struct ProfilerErrorMessage {
  std::size_t struct_size = sizeof(ProfilerErrorMessage);
  void* more = nullptr;
  const ProfilerError* error = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

struct ProfilerErrorCode {
  std::size_t struct_size = sizeof(ProfilerErrorCode);
  void* more = nullptr;
  const ProfilerError* error = nullptr;
  int code = 0;  // out
};

struct ProfilerCreate {
  std::size_t struct_size = sizeof(ProfilerCreate);
  const char* options = nullptr;  // a serialized tensorflow.ProfileOptions
  std::size_t options_size = 0;
  Profiler* profiler = nullptr;  // out
};

/// The argument of the functions to start, stop and destroy it.
struct ProfilerCall {
  std::size_t struct_size = sizeof(ProfilerCall);
  Profiler* profiler = nullptr;
};

/// Without a buffer, the function returns the size. It may also return a buffer of its own.
struct ProfilerData {
  std::size_t struct_size = sizeof(ProfilerData);
  Profiler* profiler = nullptr;
  std::uint8_t* data = nullptr;
  std::size_t data_size = 0;  // out
};

struct ProfilerApi {
  std::size_t struct_size = sizeof(ProfilerApi);
  void* more = nullptr;
  void (*error_destroy)(ProfilerErrorDestroy*) = nullptr;
  void (*error_message)(ProfilerErrorMessage*) = nullptr;
  ProfilerError* (*error_code)(ProfilerErrorCode*) = nullptr;
  ProfilerError* (*create)(ProfilerCreate*) = nullptr;
  ProfilerError* (*destroy)(ProfilerCall*) = nullptr;
  ProfilerError* (*start)(ProfilerCall*) = nullptr;
  ProfilerError* (*stop)(ProfilerCall*) = nullptr;
  ProfilerError* (*collect)(ProfilerData*) = nullptr;
};

struct ProfilerExtension {
  ExtensionHead head;
  ProfilerApi* api = nullptr;   // may be missing
  std::int64_t context_id = 0;  // of the call with this extension; 0 in a plugin's
};

}  // namespace tessera::run::pjrt::abi
