// Preload this library into a program to make allocations fail, counted from the start of main():
//
//   FAIL_AFTER=n     the allocation after the first n ones fails
//   FAIL_COUNT=k     and the k - 1 after it; default 1
//   FAIL_PROCESS=p   in the p-th process that the program forks; default 0, the program itself
//   COUNT_FILE=path  the number of allocations is written here at the end of the program
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

std::atomic<bool> is_counting{false};
std::atomic<long> num_allocations{0};
long first_failing = -1;
long num_failing = 1;
long failing_process = 0;
long this_process = 0;
long num_forks = 0;

long number_of(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

bool fails() {
  if (!is_counting) return false;
  const long number = num_allocations++;
  if (first_failing < 0 || this_process != failing_process) return false;
  if (number < first_failing || number >= first_failing + num_failing) return false;
  errno = ENOMEM;
  return true;
}

void start() {
  first_failing = number_of("FAIL_AFTER", -1);
  num_failing = number_of("FAIL_COUNT", 1);
  failing_process = number_of("FAIL_PROCESS", 0);
  pthread_atfork([] { ++num_forks; }, nullptr, [] { this_process = num_forks; });
  is_counting = true;
}

void end() {
  const char* path = std::getenv("COUNT_FILE");
  if (path == nullptr) return;
  is_counting = false;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  char text[32];
  const int size = std::snprintf(text, sizeof(text), "%ld", num_allocations.load());
  if (file < 0 || write(file, text, static_cast<std::size_t>(size)) != size) std::abort();
  close(file);
}

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

int counting_main(int argc, char** argv, char** environment) {
  start();
  const int code = program_main(argc, argv, environment);
  end();
  return code;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) { return fails() ? nullptr : __libc_malloc(size); }

void* calloc(std::size_t count, std::size_t size) {
  return fails() ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* memory, std::size_t size) {
  return fails() ? nullptr : __libc_realloc(memory, size);
}

void* memalign(std::size_t alignment, std::size_t size) {
  return fails() ? nullptr : __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return fails() ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (fails()) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program_main = main;
  const auto next = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(counting_main, argc, argv, init, fini, rtld_fini, stack_end);
}

}  // extern "C"
