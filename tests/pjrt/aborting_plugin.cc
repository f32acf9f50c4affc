// A library with the form of a plugin, which fails an assertion of its own.
#include <cstdlib>

extern "C" const void* GetPjrtApi();
extern "C" const void* GetPjrtApi() { std::abort(); }
