// Networks of layers that a pipeline is cut from: what they are made of, and their loss.
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
    tied,    // x with the matrix of an earlier layer
    twice,   // x w w
    norm,    // scaled to a mean square of 1
    skip,    // the sum with what an earlier layer gave
    center,  // minus the mean over the rows of the batch
    mix,     // a matrix over positions
    table,   // the sum with rows of a table, by position
    loop,    // a scan over matrices
    branch,  // a cond
    remat,   // two matrices, computed again in the backward pass
    block,   // of the transformer of examples/pipeline
  };
  Kind kind = Kind::dense;
  std::size_t from = 0;  // an earlier layer
};
/// All of them, with names.
const std::vector<std::pair<Layer::Kind, std::string>>& layer_kinds();

struct Net {
  std::vector<Layer> layers;
  std::vector<std::size_t> ends;  // per stage: the number of layers in front of its end, ascending
  bool has_marks = true;          // at the ends of stages; else they are cut
  std::int64_t rows = 1;          // of a microbatch
  std::int64_t seq = 0;           // positions of a row; 0: rows have no positions
  std::int64_t width = 4;
  DType dtype = DType::f32;  // of activations

  Shape activation() const;  // of a microbatch: [rows,seq,width] or [rows,width]
};

/// dense 0, tied 1 to 0 | skip 2 from 1 |: stages end at the bars.
std::string to_string(const Net& net);

struct Parameter {
  std::string name;
  Shape shape;
};
std::vector<Parameter> parameters_of(const Net& net);

/// The mean square of what the network makes of `x` minus `targets`. `batch` splits the activations
/// in front of the first layer.
Array loss_of(const Net& net, const std::vector<Array>& params, Array x, const Array& targets,
              const PartitionSpec& batch);

}  // namespace tessera::fuzz
