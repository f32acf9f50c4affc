// Trains without Python, with a step that export.py has written, and saves the trained state. Then
// trains with the batch split over a mesh: same bits. Usage: example_jax_step FOLDER CHECKPOINT

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include <tessera/checkpoint.h>
#include <tessera/tessera.h>

namespace {

using namespace tessera;
using Arrays = std::vector<Array>;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Prints the losses of ten steps and returns the trained state. `start`: the leaves of the state,
/// then the batch.
Arrays train(const ImportedProgram& program, const Arrays& start) {
  // The results are the next state, then the loss.
  const auto num_leaves = static_cast<std::ptrdiff_t>(program.results().size()) - 1;
  Arrays state(start.begin(), start.begin() + num_leaves);
  const Arrays batch(start.begin() + num_leaves, start.end());
  const auto step = jit(
      [&](Arrays leaves, const Arrays& rows) {
        leaves.insert(leaves.end(), rows.begin(), rows.end());
        Arrays results = program(leaves);
        const Array loss = results.back();
        results.pop_back();
        return std::tuple(results, loss);
      },
      {.donate_argnums = {0}, .name = "jax_step"});
  for (int i = 0; i < 10; ++i) {
    Array loss;
    std::tie(state, loss) = step(std::move(state), batch);
    std::printf("step %d  loss %.6f\n", i, loss.item<double>());
  }
  return state;
}

std::string fingerprint(const Arrays& state) {
  return checkpoint::fingerprint(checkpoint::named_arrays(state));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const std::string saved = argc > 2 ? argv[2] : "trained";
  const ImportedProgram program = import_stablehlo(contents(folder + "/step.mlirbc"));
  const Mesh mesh = make_mesh({{"data", 4}});
  Arrays start;
  Arrays on_mesh;
  for (const auto& [name, array] : checkpoint::read_safetensors(folder + "/start.safetensors")) {
    const bool is_state = start.size() + 1 < program.results().size();
    start.push_back(array);
    on_mesh.push_back(device_put(array, NamedSharding(mesh, is_state ? P{} : P{"data"})));
  }
  const Arrays state = train(program, start);
  checkpoint::save(saved, state);
  const bool is_equal = fingerprint(train(program, on_mesh)) == fingerprint(state);
  const Arrays restored = checkpoint::restore(saved, state);
  std::printf("the same state on the mesh: %s, and from the checkpoint: %s\n",
              is_equal ? "yes" : "no", fingerprint(restored) == fingerprint(state) ? "yes" : "no");
}
