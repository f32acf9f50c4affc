# The libraries that Tessera's static libraries need. Programs must link them too, so both the build
# and find_package(Tessera) read this file.

# Global targets, so that projects that contain Tessera see them where they link Tessera.
find_package(fmt REQUIRED GLOBAL)
find_package(Threads REQUIRED GLOBAL)
find_package(ZLIB REQUIRED GLOBAL)

# Highway, xxHash and zstd have no CMake packages in some distributions.
function(tessera_import name header)
  string(TOUPPER ${name} prefix)
  find_path(${prefix}_INCLUDE_DIR ${header})
  find_library(${prefix}_LIBRARY ${name})
  if(NOT ${prefix}_INCLUDE_DIR OR NOT ${prefix}_LIBRARY)
    message(FATAL_ERROR "Tessera needs the library ${name} and its header ${header}")
  endif()
  if(NOT TARGET Tessera::${name})
    add_library(Tessera::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Tessera::${name} PROPERTIES
      IMPORTED_LOCATION "${${prefix}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${${prefix}_INCLUDE_DIR}")
  endif()
endfunction()
tessera_import(hwy hwy/highway.h)
tessera_import(xxhash xxhash.h)
tessera_import(zstd zstd.h)
