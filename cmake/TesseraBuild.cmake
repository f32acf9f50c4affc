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

# For code that runs so briefly that the time to compile it matters more.
set(TESSERA_LIGHT_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TESSERA_LIGHT_OPTIONS -Wno-maybe-uninitialized)  # false alarms at -O1
endif()

# tessera_light(TARGET): compiles all sources of a target with these options.
function(tessera_light target)
  target_compile_options(${target} PRIVATE ${TESSERA_LIGHT_OPTIONS})
endfunction()

# tessera_light_folders(TARGET FOLDER...): the same for a target's sources in these folders.
function(tessera_light_folders target)
  list(JOIN ARGN "|" folders)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/(${folders})/")
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${TESSERA_LIGHT_OPTIONS}")
endfunction()

# The developer build links about a hundred programs, so it needs a fast linker.
if(TESSERA_DEVELOPER)
  foreach(linker lld gold)
    find_program(TESSERA_LD_${linker} ld.${linker})
    if(TESSERA_LD_${linker})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()
