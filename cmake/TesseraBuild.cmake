# Keeps build times short, with precompiled headers and a fast linker.

# Headers that most sources include. The library's own headers are left out, because they change.
set(TESSERA_COMMON_HEADERS
  <algorithm> <array> <cmath> <cstddef> <cstdint> <cstring> <functional> <limits> <map> <memory>
  <numeric> <optional> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility>
  <variant> <vector>)

if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  # Without this sloppiness, ccache does not cache files that use a precompiled header. It is safe,
  # since no source uses __TIME__ or defines a macro that the precompiled headers read.
  # ccache must compare whole headers, not what remains of them after preprocessing: g++ recognizes
  # a header of `#pragma once` in a precompiled header by its text, comments included. Besides, an
  # old precompiled header would stand for all headers after preprocessing.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Precompiled headers fill the compiler's heap. Without this option it would collect garbage all the
# time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")  # KiB
endif()

# For code that runs so briefly that its compile time matters more than its speed. It uses the
# headers that the layer TESSERA_LIGHT_HEADERS precompiles, because headers that were precompiled
# for optimized code do not fit its options.
set(TESSERA_LIGHT_OPTIONS $<$<CONFIG:Release>:-O1>)
set(TESSERA_LIGHT_HEADERS kernels)
if(TESSERA_SANITIZE)
  set(TESSERA_LIGHT_OPTIONS -O0)
  set(TESSERA_LIGHT_HEADERS api)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TESSERA_LIGHT_OPTIONS -Wno-maybe-uninitialized)  # false alarms at -O1
endif()

# For sources with structs that have Highway's vectors as members. On Arm these need the option,
# because g++ does not apply the target of the code to constructors that it generates.
set(TESSERA_VECTOR_FIELDS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_VECTOR_FIELDS -march=armv8-a+crypto)
endif()

# For kernels that fill the vector registers. When g++ runs out of integer registers, it would keep
# addresses in vector registers, and moving these back would wait for the products in flight.
set(TESSERA_OWN_REGISTERS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_OWN_REGISTERS
    "-mtune-ctrl=^inter_unit_moves_from_vec,^inter_unit_moves_to_vec")
endif()

# tessera_light(TARGET): compiles all sources of a target with these options.
function(tessera_light target)
  target_compile_options(${target} PRIVATE ${TESSERA_LIGHT_OPTIONS})
endfunction()

# tessera_for_shared(TARGET): allows the objects of TARGET to become parts of shared libraries.
# Programs see only the symbols that TESSERA_EXPORT marks. Nothing replaces functions of the library
# at run time.
function(tessera_for_shared target)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON VISIBILITY_INLINES_HIDDEN ON)
  # With clang, the mark on a namespace in a header does not apply to definitions in source files,
  # so this option would hide all functions.
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  endif()
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
endfunction()

# tessera_layer(NAME HEADERS): a target for the objects of a folder of src/, which become part of
# libtessera. They use the precompiled headers of layer HEADERS. The folder adds its own sources.
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
# look for a linker of their own.
if(TESSERA_DEVELOPER AND NOT CMAKE_CROSSCOMPILING)
  foreach(linker lld gold)
    find_program(TESSERA_LD_${linker} ld.${linker})
    if(TESSERA_LD_${linker})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()
