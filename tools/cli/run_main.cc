#include "run_main.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>

#include <tessera/error.h>

#include "stop.h"
#include "streams.h"

namespace tessera::cli {

namespace {

/// Texts are those of the error, as there may be no memory for others.
struct Outcome {
  int code;
  const char* kind;
  const char* text;
};

Outcome outcome_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& mistake) {
    return {1, "", mistake.what()};
  } catch (const RuntimeFault& fault) {
    return {2, "fault: ", fault.what()};
  } catch (const std::bad_alloc&) {
    return {2, "fault: ", "out of memory; use a smaller batch or a smaller model"};
  } catch (const std::system_error& fault) {
    return {2, "fault: ", fault.what()};
  } catch (const std::exception& other) {
    return {3, "", other.what()};
  } catch (...) {
    return {3, "", "an exception that is none of the standard library"};
  }
}

const char* program_name = "";

/// What is thrown where nothing may be thrown, as by a destructor for which there is no memory,
/// ends the program as other errors do.
[[noreturn]] void end_with_error() {
  const std::exception_ptr error = std::current_exception();
  if (error == nullptr) std::abort();
  report_error(program_name, error);
  std::_Exit(exit_code(error));
}

/// The C library loads what it needs to let an exception pass its frames with the first one, and
/// ends the program where there is no memory for that.
void prepare_for_exceptions() {
  std::once_flag flag;
  try {
    std::call_once(flag, [] { throw std::bad_alloc(); });
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace

int exit_code(const std::exception_ptr& error) { return outcome_of(error).code; }

void report_error(const char* name, const std::exception_ptr& error) {
  const Outcome outcome = outcome_of(error);
  std::fprintf(stderr, "%s: %s%s\n", name, outcome.kind, outcome.text);
}

namespace {

/// Ends this process as the signal does where nobody handles it.
int end_by(int signal) {
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  raise(signal);
  return 128 + signal;  // what a shell makes of it, where the signal is blocked
}

}  // namespace

int run_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  // A file that becomes larger than the shell allows is told as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  program_name = name;
  std::set_terminate(end_with_error);
  prepare_for_exceptions();
  try {
    open_closed_streams();
    const int code = run(argc, argv);
    flush_output();
    return code;
  } catch (const EndedBySignal& end) {
    return end_by(end.signal());
  } catch (...) {
    report_error(name, std::current_exception());
    return exit_code(std::current_exception());
  }
}

}  // namespace tessera::cli
