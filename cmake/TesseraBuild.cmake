# Keeps the build short: precompiled headers and a fast linker.

# Headers that most sources include. The library's own headers are left out, because they change.
set(TESSERA_COMMON_HEADERS
  <algorithm> <array> <cmath> <cstddef> <cstdint> <cstring> <functional> <limits> <map> <memory>
  <numeric> <optional> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility>
  <variant> <vector>)

if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  # Without these options, ccache does not cache files that use a precompiled header. They are safe,
  # since no source uses __TIME__ or defines a macro that the precompiled headers read.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# Precompiled headers fill the compiler's heap, so that it would collect garbage all the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")  # KiB
endif()

# For code that runs so briefly that the time to compile it matters more. It uses the headers that
# the layer TESSERA_LIGHT_HEADERS precompiles, because those for optimized code do not fit it.
set(TESSERA_LIGHT_OPTIONS $<$<CONFIG:Release>:-O1>)
set(TESSERA_LIGHT_HEADERS kernels)
if(TESSERA_SANITIZE)
  set(TESSERA_LIGHT_OPTIONS -O0)
  set(TESSERA_LIGHT_HEADERS api)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TESSERA_LIGHT_OPTIONS -Wno-maybe-uninitialized)  # false alarms at -O1
endif()

# For sources with structs of Highway's vectors. On Arm these need the option, and g++ leaves it out
# of constructors that it writes itself.
set(TESSERA_VECTOR_FIELDS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_VECTOR_FIELDS -march=armv8-a+crypto)
endif()

# For kernels that fill the vector registers. When g++ runs out of integer registers, it keeps
# addresses in vector registers, and moving them back waits for the products that are in flight.
set(TESSERA_OWN_REGISTERS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_OWN_REGISTERS
    "-mtune-ctrl=^inter_unit_moves_from_vec,^inter_unit_moves_to_vec")
endif()

# tessera_light(TARGET): compiles all sources of a target with these options.
function(tessera_light target)
  target_compile_options(${target} PRIVATE ${TESSERA_LIGHT_OPTIONS})
endfunction()

# tessera_for_shared(TARGET): its objects may become parts of shared libraries, of which programs
# see what TESSERA_EXPORT marks. Nothing replaces functions of the library at run time.
function(tessera_for_shared target)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON VISIBILITY_INLINES_HIDDEN ON)
  # For clang, the mark of a namespace in a header does not hold for definitions in source files, so
  # that it would hide all functions.
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  endif()
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
endfunction()

# tessera_layer(NAME HEADERS): the objects of a folder of src/, which are joined in libtessera. They
# use the precompiled headers of layer HEADERS. The folder adds its sources.
function(tessera_layer name headers)
  set(target tessera_${name})
  add_library(${target} OBJECT)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${PROTOZERO_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE fmt::fmt Tessera::hwy ZLIB::ZLIB Threads::Threads)
  tessera_for_shared(${target})
  if(name STREQUAL headers)
    target_precompile_headers(${target} PRIVATE ${TESSERA_COMMON_HEADERS} <fmt/format.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM tessera_${headers})
  endif()
  set(TESSERA_LAYER_OBJECTS ${TESSERA_LAYER_OBJECTS} $<TARGET_OBJECTS:${target}> PARENT_SCOPE)
endfunction()

# The developer build links about a hundred programs, so it needs a fast linker. Cross-compilers
# look for one of their own.
if(TESSERA_DEVELOPER AND NOT CMAKE_CROSSCOMPILING)
  foreach(linker lld gold)
    find_program(TESSERA_LD_${linker} ld.${linker})
    if(TESSERA_LD_${linker})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()
