# cpack in the build folder: tessera-VERSION-Linux.deb and .tar.gz.
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "Tessera developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "Trains neural networks in parallel over a mesh of devices")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# The command needs the shared libraries that it is linked with. Users' programs need the headers of
# these libraries too.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "libfmt-dev, libhwy-dev, libxxhash-dev, libzstd-dev, zlib1g-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin | mpich, cmake, g++")
include(CPack)
