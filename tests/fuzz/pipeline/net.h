// Networks of layers that are cut into pipeline stages: their layers, parameters and loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/array.h>
#include <tessera/mesh.h>

namespace tessera::fuzz {

struct Layer {
  enum class Kind : std::uint8_t {
    dense,   // tanh(x w + b)
    tied,    // x times the matrix of an earlier layer
    twice,   // x w w
    norm,    // scaled to a mean square of 1
    skip,    // the sum with the output of an earlier layer
    center,  // minus the mean over the rows of the microbatch
    mix,     // a matrix over sequence positions
    table,   // the sum with rows of a table, one per position
    loop,    // a scan over matrices
    branch,  // a cond
    remat,   // two matrices, recomputed in the backward pass
    block,   // a block of the transformer of examples/pipeline
  };
  Kind kind = Kind::dense;
  std::size_t from = 0;  // index of the earlier layer, for `tied` and `skip`
};
/// All kinds, with their names.
const std::vector<std::pair<Layer::Kind, std::string>>& layer_kinds();

struct Net {
  std::vector<Layer> layers;
  std::vector<std::size_t> ends;  // per stage: the number of layers up to its end, ascending
  bool has_marks = true;  // stages end at marks in the program; else the compiler chooses the cuts
  std::int64_t rows = 1;  // of a microbatch
  std::int64_t seq = 0;   // positions per row; 0: rows have no sequence dimension
  std::int64_t width = 4;
  DType dtype = DType::f32;  // of activations

  Shape activation() const;  // of a microbatch: [rows,seq,width] or [rows,width]
};

/// For example "dense 0, tied 1 to 0 | skip 2 from 1 |", in which a bar ends a stage.
std::string to_string(const Net& net);

struct Parameter {
  std::string name;
  Shape shape;
};
std::vector<Parameter> parameters_of(const Net& net);

/// Mean square of (the network's output for `x` - `targets`). `batch` shards the activations before
/// the first layer.
Array loss_of(const Net& net, const std::vector<Array>& params, Array x, const Array& targets,
              const PartitionSpec& batch);

}  // namespace tessera::fuzz
