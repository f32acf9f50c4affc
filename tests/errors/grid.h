// A mesh that many tests use.
#pragma once

#include <tessera/mesh.h>

namespace tessera {

/// data=2, model=4.
inline const Mesh& grid() {
  static const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  return mesh;
}

}  // namespace tessera
