// Cures of errors about axes that a mesh does not have.
#pragma once

#include <string>

#include <tessera/mesh.h>

namespace tessera {

/// `cure`, after a question that asks whether the mesh axis most similar to `wanted` was meant.
std::string with_axis_suggestion(const Mesh& mesh, const std::string& wanted,
                                 const std::string& cure);

}  // namespace tessera
