// IR -> IR: the function of one element becomes the function of a batch of elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/mesh.h>

#include "ir/builder.h"
#include "ir/ir.h"
#include "ops/axis/axis.h"

namespace tessera::batch {

struct Batched {
  ir::Function function;
  std::vector<bool> is_output_batched;
};

/// Makes a function that computes `function` for `size` elements at once. Inputs marked in
/// `is_batched_input`, and the outputs that depend on them, get a first dimension of `size`. So do
/// outputs marked in `must_be_batched` (missing marks are false): they repeat a value that is the
/// same for all elements. Row i of a batched output has the same bits as `function` gives for rows
/// i of the inputs. Ops over the named `axis` treat the rows as its elements. Throws UserError for
/// an op that cannot be batched.
Batched batch(const ir::Function& function, const std::vector<bool>& is_batched_input,
              std::int64_t size, const std::vector<bool>& must_be_batched = {},
              const ops::BatchAxis& axis = {});

/// How an array is cut into tiles: per dimension the mesh axes that split it, major first.
using TileSpec = std::vector<std::vector<std::string>>;
bool names_axis(const TileSpec& spec, const std::string& axis);

/// The function over all devices. An input has one more leading dimension for every axis that its
/// spec names, and an output has one for every axis along which it varies, in the order of the
/// axes.
struct OverDevices {
  ir::Function function;
  std::vector<std::vector<bool>> varies;  // per output and axis: whether it has that dimension
};

/// Maps functions of one device's tiles over axes of a mesh. Each array gets one leading dimension
/// per axis of its spec, which is split over that axis. So each device computes the function for
/// its own tiles, and collectives in the function move data along these dimensions.
class TileMap {
 public:
  /// `axes`: some axes of the mesh, in its order. All references must outlive the map.
  TileMap(const Mesh& mesh, const std::vector<MeshAxis>& axes, const Span& where)
      : mesh_(mesh), axes_(axes), where_(where) {}

  /// `x` with the leading dimensions of `spec`, followed by the dimensions of a tile. The spec must
  /// cut `x` into equal tiles.
  ir::ValueId stack(ir::Builder& b, ir::ValueId x, const TileSpec& spec) const;
  /// `function` has an input for each of `specs`, and then inputs that are the same on all devices.
  OverDevices over_devices(ir::Function function, const std::vector<TileSpec>& specs) const;
  /// The array whose tiles are in `x`, an output of over_devices(). Along axes that the spec does
  /// not name, the tiles of the first device are taken.
  ir::ValueId unstack(ir::Builder& b, ir::ValueId x, const std::vector<bool>& varies,
                      const TileSpec& spec) const;

 private:
  ir::ValueId with_axis(ir::Builder& b, ir::ValueId x, std::size_t at, bool varies, bool is_named,
                        const MeshAxis& axis) const;
  ir::ValueId placed(ir::Builder& b, ir::ValueId x, TileSpec dims, std::size_t first_open) const;
  ops::BatchAxis batch_axis(const MeshAxis& axis) const;

  const Mesh& mesh_;
  const std::vector<MeshAxis>& axes_;
  const Span& where_;
};

}  // namespace tessera::batch
