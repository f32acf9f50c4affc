#include "run_main.h"

#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>

#include <tessera/error.h>

namespace tessera::cli {

namespace {

struct Outcome {
  int code;
  std::string text;
};

Outcome outcome_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& mistake) {
    return {1, mistake.what()};
  } catch (const RuntimeFault& fault) {
    return {2, std::string("fault: ") + fault.what()};
  } catch (const std::bad_alloc&) {
    return {2, "fault: out of memory; use a smaller batch or a smaller model"};
  } catch (const std::system_error& fault) {
    return {2, std::string("fault: ") + fault.what()};
  } catch (const std::exception& other) {
    return {3, other.what()};
  }
}

}  // namespace

int exit_code(const std::exception_ptr& error) { return outcome_of(error).code; }

void report_error(const std::string& name, const std::exception_ptr& error) {
  std::fprintf(stderr, "%s: %s\n", name.c_str(), outcome_of(error).text.c_str());
}

int run_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  // A file that becomes larger than the shell allows is told as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (...) {
    report_error(name, std::current_exception());
    return exit_code(std::current_exception());
  }
}

}  // namespace tessera::cli
