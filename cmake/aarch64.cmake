# Cross-compiles for 64-bit Arm with Debian's compiler: cmake --toolchain cmake/aarch64.cmake.
# Programs run with qemu-user. tools/check_arm does all of this.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)

# The libraries for Arm are either installed beside those of this machine (dpkg --add-architecture
# arm64) or unpacked into a folder.
set(TESSERA_ARM_ROOT / CACHE PATH "where the libraries for Arm are")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TESSERA_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH ${TESSERA_ARM_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(folders ${TESSERA_ARM_ROOT}/usr/lib/aarch64-linux-gnu:${TESSERA_ARM_ROOT}/lib/aarch64-linux-gnu)
# Where the linker finds the libraries that other libraries need.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${folders})
set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${folders}:/usr/aarch64-linux-gnu/lib)
