# For find_package(Tessera): Tessera::tessera is the core, Tessera::lib adds layers, optimisers,
# data and files.
include("${CMAKE_CURRENT_LIST_DIR}/TesseraDependencies.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/TesseraTargets.cmake")
