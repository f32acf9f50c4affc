# Builds kernels for one instruction set only. Builds that are meant only for this machine then
# compile in half the time.
include(CheckCXXSourceRuns)
set(CMAKE_REQUIRED_LIBRARIES Tessera::hwy)
check_cxx_source_runs("#include <hwy/targets.h>
int main() { return (hwy::SupportedTargets() & HWY_AVX3) != 0 ? 0 : 1; }" TESSERA_RUNS_AVX3)
unset(CMAKE_REQUIRED_LIBRARIES)
# A definition for all targets, because tests look for the same kernels.
if(TESSERA_RUNS_AVX3)
  add_compile_definitions(TESSERA_UNUSED_KERNELS=HWY_AVX2)
else()
  add_compile_definitions(TESSERA_UNUSED_KERNELS=HWY_AVX3)
endif()
