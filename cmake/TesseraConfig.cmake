# For find_package(Tessera): Tessera::tessera is the core, Tessera::lib adds layers, optimisers,
# data and files. They are shared libraries if BUILD_SHARED_LIBS is set and these are installed.
include("${CMAKE_CURRENT_LIST_DIR}/TesseraCompiler.cmake")
if(BUILD_SHARED_LIBS AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/TesseraSharedTargets.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/TesseraSharedTargets.cmake")
else()
  include("${CMAKE_CURRENT_LIST_DIR}/TesseraDependencies.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/TesseraTargets.cmake")
endif()
