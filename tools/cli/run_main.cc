#include "run_main.h"

#include <cstdio>
#include <new>
#include <string>
#include <system_error>

#include <tessera/error.h>

namespace tessera::cli {

namespace {

int fail(const char* name, int code, const char* kind, const std::string& text) {
  std::fprintf(stderr, "%s: %s%s\n", name, kind, text.c_str());
  return code;
}

}  // namespace

int run_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    return fail(name, 1, "", error.what());
  } catch (const RuntimeFault& fault) {
    return fail(name, 2, "fault: ", fault.what());
  } catch (const std::bad_alloc&) {
    return fail(name, 2, "fault: ", "out of memory; use a smaller batch or a smaller model");
  } catch (const std::system_error& fault) {
    return fail(name, 2, "fault: ", fault.what());
  } catch (const std::exception& error) {
    return fail(name, 3, "", error.what());
  }
}

}  // namespace tessera::cli
