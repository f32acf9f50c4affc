# cmake --install BUILD --prefix FOLDER: libraries, public headers, the command and a CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Programs find the MPI modules by their run paths. These are set for the command and for programs
# that use the package.
set_target_properties(tessera_cli PROPERTIES
  INSTALL_RPATH "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/tessera")
target_link_options(tessera INTERFACE
  $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/tessera>)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(TARGETS tessera tessera_lib EXPORT TesseraTargets)
install(TARGETS tessera_cli)
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package_dir})
if(TARGET tessera_shared)
  # Developer builds install shared libraries only if this component is requested.
  set(option EXCLUDE_FROM_ALL)
  if(TESSERA_SHARED)
    set(option "")
  endif()
  set_target_properties(tessera_shared PROPERTIES EXPORT_NAME tessera)
  install(TARGETS tessera_shared tessera_lib_shared EXPORT TesseraSharedTargets
    LIBRARY COMPONENT shared NAMELINK_COMPONENT shared ${option})
  install(EXPORT TesseraSharedTargets NAMESPACE Tessera:: DESTINATION ${package_dir}
    COMPONENT shared ${option})
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  cmake/TesseraCompiler.cmake
  cmake/TesseraConfig.cmake
  cmake/TesseraDependencies.cmake
  ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  DESTINATION ${package_dir})

# Pretty-printers for debuggers.
foreach(debugger gdb lldb)
  install(FILES tools/${debugger}/tessera.py
          DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/${debugger})
endforeach()

# For pkg-config. Paths are relative, so that the installed folder may be moved as a whole.
file(RELATIVE_PATH tessera_prefix_from_pc
  /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
