// make_cifar_folder FOLDER binary|python [IMAGES]: writes generated images in CIFAR-10's layout,
// IMAGES per file. Default: as many as CIFAR-10 has.
#include <cstdio>
#include <cstdlib>

#include "tests/data/cifar_folder.h"

int main(int argc, char** argv) {
  using tessera::testing::CifarLayout;
  const std::string layout = argc > 2 ? argv[2] : "";
  const long count = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 10000;
  if (argc > 4 || (layout != "binary" && layout != "python") || count < 1) {
    std::fprintf(stderr, "usage: make_cifar_folder FOLDER binary|python [IMAGES]\n");
    return 1;
  }
  tessera::testing::write_cifar_folder(
      argv[1], layout == "binary" ? CifarLayout::binary : CifarLayout::python,
      static_cast<std::size_t>(count));
  return 0;
}
