# cmake --install BUILD --prefix FOLDER: libraries, public headers, the command and a CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Modules for MPI are found by the run path of the program: of the command, and of programs that use
# the package.
set_target_properties(tessera_cli PROPERTIES
  INSTALL_RPATH "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/tessera")
target_link_options(tessera INTERFACE
  $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/tessera>)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(TARGETS tessera tessera_lib EXPORT TesseraTargets)
install(TARGETS tessera_cli)
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  cmake/TesseraConfig.cmake
  cmake/TesseraDependencies.cmake
  ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  DESTINATION ${package_dir})

# Printers for gdb.
install(FILES tools/gdb/tessera.py DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/gdb)

# For pkg-config. Its folder may be moved with the rest.
file(RELATIVE_PATH tessera_prefix_from_pc
  /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
