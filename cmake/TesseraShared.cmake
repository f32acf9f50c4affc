# Shared libraries with the objects of the static ones. Programs see what public headers declare
# (TESSERA_EXPORT); all other symbols are compiled as hidden. The version script also hides symbols
# from the headers of other libraries, and gives the exported symbols a version.
include(GNUInstallDirs)

# Programs that were built with another minor version have to be compiled again.
set(TESSERA_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(TESSERA_VERSION_SCRIPT ${PROJECT_BINARY_DIR}/exports.map)
configure_file(cmake/exports.map.in ${TESSERA_VERSION_SCRIPT} @ONLY)

# tessera_shared(NAME OBJECTS...): adds the shared library NAME_shared with these objects.
function(tessera_shared name)
  set(target ${name}_shared)
  add_library(${target} SHARED ${ARGN})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_options(${target} PRIVATE LINKER:--version-script=${TESSERA_VERSION_SCRIPT})
  if(NOT TESSERA_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  # The MPI modules are in the subfolder `tessera`.
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    OUTPUT_NAME ${name}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${TESSERA_ABI}
    LINK_DEPENDS ${TESSERA_VERSION_SCRIPT}
    INSTALL_RPATH "\$ORIGIN;\$ORIGIN/tessera")
endfunction()
