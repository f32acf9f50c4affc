# Builds a loadable module for each implementation of MPI that is installed. Nothing else uses MPI,
# and only processes that a launcher such as mpirun has started load these modules.
include(GNUInstallDirs)
set(TESSERA_MPI_BUILD_DIR ${PROJECT_BINARY_DIR}/lib/tessera)

# tessera_mpi_module(NAME MACRO SOURCE): adds a module for the MPI whose mpi.h defines MACRO, if
# that MPI is installed.
function(tessera_mpi_module name macro source)
  find_program(TESSERA_MPICC_${name} NAMES mpicc.${name} mpicc)
  if(NOT TESSERA_MPICC_${name})
    return()
  endif()
  # Prints the command line with which the wrapper would run the compiler.
  execute_process(COMMAND ${TESSERA_MPICC_${name}} -show
    OUTPUT_VARIABLE command OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    return()
  endif()
  separate_arguments(words UNIX_COMMAND "${command}")
  set(folders "")
  set(libraries "")
  foreach(word IN LISTS words)
    if(word MATCHES "^-I(.+)")
      list(APPEND folders ${CMAKE_MATCH_1})
    elseif(word MATCHES "^-(L|l|Wl,-rpath)")
      list(APPEND libraries ${word})
    endif()
  endforeach()
  # A plain `mpicc` may belong to another implementation.
  find_file(TESSERA_MPI_H_${name} mpi.h PATHS ${folders} NO_DEFAULT_PATH)
  if(NOT TESSERA_MPI_H_${name})
    return()
  endif()
  file(STRINGS ${TESSERA_MPI_H_${name}} lines REGEX "define +${macro}[ \t]")
  if(NOT lines)
    return()
  endif()
  set(target tessera_mpi_${name})
  add_library(${target} MODULE ${source})
  target_compile_features(${target} PRIVATE cxx_std_20)
  # Leaves out the old C++ bindings of MPI.
  target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${folders})
  target_link_options(${target} PRIVATE ${libraries})
  target_link_libraries(${target} PRIVATE ${libraries})
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${TESSERA_MPI_BUILD_DIR} UNITY_BUILD OFF CXX_VISIBILITY_PRESET hidden)
  install(TARGETS ${target} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
  message(STATUS "MPI module: ${name}")
endfunction()

# The program finds the modules by its run path.
list(APPEND CMAKE_BUILD_RPATH ${TESSERA_MPI_BUILD_DIR})
