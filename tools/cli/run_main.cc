#include "run_main.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>

#include <tessera/error.h>

#include "ranks.h"
#include "stop.h"
#include "streams.h"

namespace tessera::cli {

namespace {

/// How a program ends. The texts point into the error, since there may be no memory for copies.
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
    return {3, "", "an exception that is not from the standard library"};
  }
}

const char* program_name = "";

/// The terminate handler: reports an exception that cannot be caught, such as one thrown by a
/// destructor that ran out of memory, and ends with its exit code.
[[noreturn]] void end_with_error() {
  const std::exception_ptr error = std::current_exception();
  if (error == nullptr) std::abort();
  report_error(program_name, error);
  std::_Exit(exit_code(error));
}

/// Throws an exception through a frame of the C library. The first such exception makes the C
/// library load what it needs to unwind its frames, and it aborts if there is no memory for that.
/// Therefore the program does this early.
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

/// Ends this process by the default action of the signal.
int end_by(int signal) {
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  raise(signal);
  return 128 + signal;  // if the signal is blocked: the exit code that a shell would show
}

}  // namespace

int run_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  // Let writing beyond the shell's limit of file sizes fail with an error, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  program_name = name;
  std::set_terminate(end_with_error);
  prepare_for_exceptions();
  try {
    open_closed_streams();
    keep_arguments(argc, argv);
    const int code = run(argc, argv);
    flush_output();
    return code;
  } catch (const EndedBySignal& end) {
    return end_by(end.signal());
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    report_as_rank(name, error);
    report_error(name, error);
    return exit_code(error);
  }
}

}  // namespace tessera::cli
