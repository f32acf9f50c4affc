# What keeps the build short: precompiled headers and a fast linker.

# What most sources include. The library's own headers are not among them: they change.
set(TESSERA_COMMON_HEADERS
  <algorithm> <array> <cmath> <cstddef> <cstdint> <cstring> <functional> <limits> <map> <memory>
  <numeric> <optional> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility>
  <variant> <vector>)

if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  # Without these, ccache does not cache what uses a precompiled header. No source asks for the time
  # or defines a macro that the precompiled headers read.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# For what runs so briefly that the time to compile it counts for more.
set(TESSERA_LIGHT_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TESSERA_LIGHT_OPTIONS -Wno-maybe-uninitialized)  # false alarms of -O1
endif()

# tessera_light(TARGET): all sources of a target.
function(tessera_light target)
  target_compile_options(${target} PRIVATE ${TESSERA_LIGHT_OPTIONS})
endfunction()

# tessera_light_folders(TARGET FOLDER...): the sources of a target that lie in these folders.
function(tessera_light_folders target)
  list(JOIN ARGN "|" folders)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/(${folders})/")
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${TESSERA_LIGHT_OPTIONS}")
endfunction()

# The developer build links a hundred programs with the same libraries.
if(TESSERA_DEVELOPER)
  foreach(linker lld gold)
    find_program(TESSERA_LD_${linker} ld.${linker})
    if(TESSERA_LD_${linker})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()
