// Pictures of shardings: a box per tile with the devices that hold it.
#pragma once

#include <string>

#include <tessera/mesh.h>

#include "mesh/sharding.h"

namespace tessera {

/// A text that shows which devices hold which tile of an array; see visualize_sharding.
std::string picture_of(const Mesh& mesh, const Layout& layout, const VisualizeOptions& options);

}  // namespace tessera
