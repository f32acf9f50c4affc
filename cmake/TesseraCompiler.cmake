# Both the build and find_package(Tessera) check what the public headers need.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
  message(FATAL_ERROR
    "Tessera's headers need std::source_location\n"
    "  found:  Clang ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER})\n"
    "  wanted: g++ 12, Clang 15, or newer\n"
    "  cure:   cmake -DCMAKE_CXX_COMPILER=g++, or a newer clang++")
endif()
