// Trees in files: saved while training continues, restored onto any mesh with the same bits.
//
//   checkpoint::save("ckpt", state);
//   state = checkpoint::restore("ckpt", eval_shape(init, key), fsdp_shardings(mesh, shapes));
//
//   checkpoint::Checkpointer steps("runs/lm", {.keep_latest = 3});
//   steps.save(step, state);                  // returns at once; later steps may donate `state`
//   if (auto last = steps.latest()) state = steps.restore(*last, shapes, shardings);
//
// A checkpoint is a folder with a safetensors file for each device that holds tiles, and an index
// with checksums. It is built in a temporary folder and then renamed, so a process that is killed
// leaves either the old checkpoint or the new one. Restoring reads only the parts that each device
// needs.
//
// SummaryWriter (summary.h) writes the curves of a run for TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <tessera/shardings.h>
#include <tessera/summary.h>

namespace TESSERA_EXPORT tessera {
namespace checkpoint {

/// An array with its path.
struct NamedArray {
  std::string name;
  Array array;
};

/// The leaves of a tree with their paths.
template <typename T>
std::vector<NamedArray> named_arrays(const T& tree, const std::string& prefix = "") {
  const std::vector<std::string> paths = tree_paths(tree);
  const std::vector<Array> leaves = tree_leaves(tree);
  std::vector<NamedArray> result;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    result.push_back({.name = prefix + paths[i], .array = leaves[i]});
  }
  return result;
}

// --- one file

/// Writes arrays in the safetensors format. Throws RuntimeFault if the file cannot be written; an
/// existing file then stays as it was. Follows links, and writes into pipes and devices in place.
void write_safetensors(const std::string& path, const std::vector<NamedArray>& arrays,
                       std::source_location where = std::source_location::current());
/// A tensor of a safetensors file.
struct FileTensor {
  std::string name;
  std::string dtype;  // as in the file: F32, F16, I64, ...
  Shape shape;
  std::string problem = {};  // why it cannot be read; empty if it can
};
/// What read_safetensors reads.
struct ReadOptions {
  std::vector<std::string> names = {};  // all of these must exist; empty: everything
  bool f16_as_f32 = false;              // whether f16 tensors become f32 arrays
  /// Receives the tensors that are skipped because they cannot be read, mostly because arrays do
  /// not support their dtype. If `names` lists such a tensor, it is an error instead.
  std::vector<FileTensor>* left = nullptr;
};
/// The arrays of a safetensors file, sorted by name. F8_E4M3 and F8_E5M2 become bf16, which has all
/// of their values. The path may also name the index of several files
/// (model.safetensors.index.json), or a folder that holds model.safetensors or such an index.
/// Throws UserError for a damaged file.
std::vector<NamedArray> read_safetensors(
    const std::string& path, const ReadOptions& options = {},
    std::source_location where = std::source_location::current());
/// The tensors that read_safetensors would find at the path, sorted by name. Reads headers only.
std::vector<FileTensor> list_safetensors(
    const std::string& path, std::source_location where = std::source_location::current());

/// Reads the files of other programs: np.savez, torch.save, Flax's MessagePack, checkpoints of
/// Orbax, or whatever read_safetensors reads. The content decides the format. Nested keys are
/// joined; it is an error if two arrays get the same name. No code in a file is run.
std::vector<NamedArray> import_arrays(const std::string& path, const ReadOptions& options = {},
                                      std::source_location where = std::source_location::current());

/// The XXH3-128 hash, as 32 hex digits, of the arrays sorted by name. It covers name, dtype, shape,
/// and the elements in row-major little-endian order. All NaNs count as equal.
std::string fingerprint(std::vector<NamedArray> arrays);

// --- checkpoints

/// Short UTF-8 texts to save with the arrays.
using Metadata = std::map<std::string, std::string>;

/// Options of save.
struct SaveOptions {
  std::int64_t step = 0;                        // must be N if the folder is named step_N
  std::optional<double> metric = std::nullopt;  // ranks checkpoints: the smallest is the best
  Metadata metadata = {};
};
/// Saves arrays in the folder `path`, atomically replacing a checkpoint that exists there. If
/// something cannot be written, throws RuntimeFault and leaves what was there. With one process per
/// device, all processes must make this call, and each writes its own tiles.
void save_arrays(const std::string& path, const std::vector<NamedArray>& arrays,
                 const SaveOptions& options = {},
                 std::source_location where = std::source_location::current());
template <typename T>
void save(const std::string& path, const T& tree, const SaveOptions& options = {},
          std::source_location where = std::source_location::current()) {
  save_arrays(path, named_arrays(tree), options, where);
}

/// Options of restore.
struct RestoreOptions {
  bool ignore_others = false;   // allow saved arrays that the target does not have
  bool ignore_missing = false;  // leaves that were not saved keep the values of the target
  std::string subtree = {};     // the path of what is restored, such as "params"; empty: all
};
/// An array to restore, and its sharding.
struct RestoreTarget {
  std::string name;
  Type type;
  NamedSharding sharding;
};
/// The saved arrays, in the order of `targets`; empty arrays for those that ignore_missing allows
/// to be missing. Throws UserError for a damaged checkpoint, and for a checkpoint of another model;
/// that error lists the differences.
std::vector<Array> restore_arrays(const std::string& path,
                                  const std::vector<RestoreTarget>& targets,
                                  const RestoreOptions& options = {},
                                  std::source_location where = std::source_location::current());

namespace detail {
/// The values of `leaves`, restored with these shardings.
std::vector<Array> restore_leaves(const std::string& path, const std::vector<NamedArray>& leaves,
                                  const std::vector<NamedSharding>& shardings,
                                  const RestoreOptions& options, const std::source_location& where);
}  // namespace detail

/// `target` with the saved values as leaves. The leaves of `target` may be abstract, as from
/// eval_shape(init, key). Leaves that `shardings` does not specify keep the sharding of the target.
template <typename T>
T restore(const std::string& path, const T& target, const Shardings& shardings = {},
          const RestoreOptions& options = {},
          std::source_location where = std::source_location::current()) {
  return tree_replace(
      target, detail::restore_leaves(path, named_arrays(target),
                                     leaf_shardings(target, shardings, where), options, where));
}

/// An array of a checkpoint.
struct SavedArray {
  std::string name;
  Type type;
  std::int64_t num_tiles = 0;
};
/// The contents of the index of a checkpoint.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::optional<double> metric = std::nullopt;
  Metadata metadata = {};
  std::int64_t bytes = 0;  // of all files
  std::vector<std::string> files = {};
  std::vector<SavedArray> arrays = {};  // sorted by name
};
/// Reads only the index. Throws UserError if there is no checkpoint or its index is damaged, and
/// RuntimeFault if it cannot be read.
CheckpointInfo read_info(const std::string& path);
/// Whether there is a checkpoint at this path, intact or not.
bool is_checkpoint(const std::string& path);
/// Reads every byte and returns the problems, one line each. Empty for an intact checkpoint.
std::vector<std::string> verify(const std::string& path);

enum class ExportFormat : std::uint8_t {
  safetensors,  // whole arrays in model-*.safetensors with model.safetensors.index.json
  orbax,        // a folder that Orbax restores as nested dicts, keyed by the parts of paths
  npz,          // arrays.npz for np.load
  torch,        // weights.pt for torch.load: a dict whose names have dots
  msgpack,      // arrays.msgpack for flax.serialization.msgpack_restore
};
/// Options of export_checkpoint.
struct ExportOptions {
  ExportFormat format = ExportFormat::safetensors;
  std::string subtree = {};                               // path of what to export; empty: all
  std::int64_t file_bytes = std::int64_t{4'000'000'000};  // per file, unless an array is larger
};
/// Writes the checkpoint in another format into a new folder. Throws UserError if `to` already
/// exists.
void export_checkpoint(const std::string& path, const std::string& to,
                       const ExportOptions& options = {},
                       std::source_location where = std::source_location::current());

// --- checkpoints of a run

/// Options of a Checkpointer.
struct CheckpointerOptions {
  std::int64_t keep_latest = 0;  // how many of the last steps to keep; 0: all
  std::int64_t keep_best = 0;    // how many to keep in addition: those with the smallest metric
  bool is_async = true;          // a thread of each process writes them
};

/// The checkpoints of a run, in one folder and named by their steps: step_00000100.
class Checkpointer {
 public:
  /// Creates the folder if needed. Throws UserError if another process saves there.
  explicit Checkpointer(std::string folder, const CheckpointerOptions& options = {},
                        std::source_location where = std::source_location::current());
  /// Waits for the last save. Call wait() first to learn whether it failed and, with several
  /// processes, to keep it.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves the arrays as they are now, and removes the checkpoints that the options do not keep,
  /// but never this one. First waits for the previous save, and throws its error if it failed.
  void save_arrays(const std::vector<NamedArray>& arrays, SaveOptions options,
                   std::source_location where = std::source_location::current());
  template <typename T>
  void save(std::int64_t step, const T& tree, SaveOptions options = {},
            std::source_location where = std::source_location::current()) {
    options.step = step;
    save_arrays(named_arrays(tree), std::move(options), where);
  }
  /// Protects this step from removal until keep() names another one.
  void keep(std::int64_t step);
  /// Calls wait(), then removes the checkpoints that the options do not keep, as each save does. A
  /// run that was killed right after a save may have left one too many.
  void prune();
  /// Calls wait(), then removes all checkpoints of later steps. Call it if a run goes back to an
  /// earlier step: otherwise latest() would still name a later step, and saves could be removed as
  /// the oldest ones. A collective: all processes must call it.
  void discard_after(std::int64_t step);
  /// Finishes the last save: returns when everything is on disk. Throws RuntimeFault if it could
  /// not be written. A collective: all processes must call it.
  void wait();
  /// With several processes, a save appears among the steps only when all processes finish it
  /// together: in wait(), in the next save, or in this call if all files have been written. Call it
  /// once per step. A collective: all processes must call it.
  void finish_if_written();

  /// The saved steps, ascending.
  std::vector<std::int64_t> steps() const;
  /// latest_step() of the folder.
  std::optional<std::int64_t> latest() const;
  /// The step with the smallest metric. As for latest(), all processes must find the same step.
  std::optional<std::int64_t> best() const;
  /// The folder of a step.
  std::string path(std::int64_t step) const;

  template <typename T>
  T restore(std::int64_t step, const T& target, const Shardings& shardings = {},
            const RestoreOptions& options = {},
            std::source_location where = std::source_location::current()) {
    wait();
    return checkpoint::restore(path(step), target, shardings, options, where);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The steps that are saved in a folder, ascending; empty if the folder does not exist. Throws
/// RuntimeFault if the folder cannot be read.
std::vector<std::int64_t> steps_in(const std::string& folder);
/// The last of these steps. With one process per device, all processes must make this call, and all
/// throw RuntimeFault if one of them cannot read the folder or they find different steps.
std::optional<std::int64_t> latest_step(const std::string& folder);
/// The folder of a step.
std::string step_path(const std::string& folder, std::int64_t step);

}  // namespace checkpoint

}  // namespace tessera
