// Trees in files: saved while training continues, restored onto any mesh with the same bits.
//
//   checkpoint::save("ckpt", state);
//   state = checkpoint::restore("ckpt", eval_shape(init, key), fsdp_shardings(mesh, shapes));
//
//   checkpoint::Checkpointer steps("runs/lm", {.keep_latest = 3});
//   steps.save(step, state);                       // returns immediately; later steps change a
//   copy
//   if (auto last = steps.latest()) state = steps.restore(*last, shapes, shardings);
//
// A checkpoint is a folder: a safetensors file for each device that holds tiles, and an index with
// checksums. It is built in a temporary folder and renamed, so a process that is killed leaves
// either the old checkpoint or the new one. Only the parts that a device needs are read.
//
// At the end of this header: curves of a run, in files that TensorBoard reads.
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
/// existing file then stays as it was.
void write_safetensors(const std::string& path, const std::vector<NamedArray>& arrays,
                       std::source_location where = std::source_location::current());
/// A tensor of a safetensors file.
struct FileTensor {
  std::string name;
  std::string dtype;  // as in the file: F32, F16, I64, ...
  Shape shape;
};
/// What read_safetensors reads.
struct ReadOptions {
  std::vector<std::string> names = {};  // all of these must be there; empty: everything
  bool f16_as_f32 = false;              // whether tensors of f16 become arrays of f32
  /// Gets the tensors that are left out because arrays do not have their dtype. One that `names`
  /// asks for is an error instead.
  std::vector<FileTensor>* left = nullptr;
};
/// Arrays of a safetensors file, sorted by name. The path may also be that of an index of several
/// files (model.safetensors.index.json), or of a folder with model.safetensors or such an index.
/// Throws UserError for a damaged file.
std::vector<NamedArray> read_safetensors(
    const std::string& path, const ReadOptions& options = {},
    std::source_location where = std::source_location::current());
/// What read_safetensors can read at the path, sorted by name; reads headers only.
std::vector<FileTensor> list_safetensors(
    const std::string& path, std::source_location where = std::source_location::current());

/// The same for files of other programs, by their content: np.savez, torch.save and Flax's
/// MessagePack, or what read_safetensors reads. Nested keys are joined. No code in a file is run.
std::vector<NamedArray> import_arrays(const std::string& path, const ReadOptions& options = {},
                                      std::source_location where = std::source_location::current());

/// XXH3-128, as 32 hex digits, of the arrays sorted by name: name, dtype, shape, and the elements
/// in row-major little-endian order. All NaNs count as equal.
std::string fingerprint(std::vector<NamedArray> arrays);

// --- checkpoints

/// Short UTF-8 texts that are saved with the arrays.
using Metadata = std::map<std::string, std::string>;

/// Options of save.
struct SaveOptions {
  std::int64_t step = 0;                        // must be N if the folder is named step_N
  std::optional<double> metric = std::nullopt;  // decides which are the best
  Metadata metadata = {};
};
/// Saves arrays in the folder `path`, atomically replacing a checkpoint that exists there. Throws
/// RuntimeFault if something cannot be written, and then leaves what was there. With one process
/// per device all make this call, and each writes its own tiles.
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
  bool ignore_others = false;  // allow arrays that the target does not have
};
/// An array to restore, and its sharding.
struct RestoreTarget {
  std::string name;
  Type type;
  NamedSharding sharding;
};
/// Throws UserError for a damaged checkpoint, and for one of another model with a list of what
/// differs.
std::vector<Array> restore_arrays(const std::string& path,
                                  const std::vector<RestoreTarget>& targets,
                                  RestoreOptions options = {},
                                  std::source_location where = std::source_location::current());

namespace detail {
template <typename T>
std::vector<RestoreTarget> targets_of(const T& tree, const Shardings& shardings,
                                      const std::source_location& where) {
  std::vector<NamedSharding> places = leaf_shardings(tree, shardings, where);
  std::vector<RestoreTarget> targets;
  for (const NamedArray& item : named_arrays(tree)) {
    targets.push_back({.name = item.name,
                       .type = item.array.type(where),
                       .sharding = std::move(places[targets.size()])});
  }
  return targets;
}
}  // namespace detail

/// The tree of the target with the saved values. Its leaves may be abstract, as from
/// eval_shape(init, key). Leaves that `shardings` do not specify have the sharding of the target.
template <typename T>
T restore(const std::string& path, const T& target, const Shardings& shardings = {},
          RestoreOptions options = {},
          std::source_location where = std::source_location::current()) {
  return tree_replace(
      target, restore_arrays(path, detail::targets_of(target, shardings, where), options, where));
}

/// An array of a checkpoint.
struct SavedArray {
  std::string name;
  Type type;
  std::int64_t num_tiles = 0;
};
/// What the index of a checkpoint says.
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
/// Reads every byte and returns what is wrong, one line each. Empty for an intact checkpoint.
std::vector<std::string> verify(const std::string& path);

enum class ExportFormat : std::uint8_t {
  safetensors,  // whole arrays in model-*.safetensors with model.safetensors.index.json
  orbax,        // a folder that Orbax restores as nested dicts, keyed by parts of paths
  npz,          // arrays.npz for np.load
  torch,        // weights.pt for torch.load, a dict whose names have dots
  msgpack,      // arrays.msgpack for flax.serialization.msgpack_restore
};
/// Options of export_checkpoint.
struct ExportOptions {
  ExportFormat format = ExportFormat::safetensors;
  std::string subtree = {};                               // what to export, a path; empty: all
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
  std::int64_t keep_latest = 0;  // older ones are removed; 0: keep all
  std::int64_t keep_best = 0;    // in addition, those with the smallest metric
  bool is_async = true;          // a thread of each process writes them
};

/// The checkpoints of a run, in one folder and named by their steps: step_00000100.
class Checkpointer {
 public:
  /// Creates the folder if needed. Throws UserError if another process saves there.
  explicit Checkpointer(std::string folder, const CheckpointerOptions& options = {},
                        std::source_location where = std::source_location::current());
  /// Waits for the last save. Call wait() first to learn whether it failed; with several processes,
  /// also to keep it.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves the arrays as they are now, and removes checkpoints that are not to be kept. First waits
  /// for the previous save, and throws its error if it failed.
  void save_arrays(const std::vector<NamedArray>& arrays, SaveOptions options,
                   std::source_location where = std::source_location::current());
  template <typename T>
  void save(std::int64_t step, const T& tree, SaveOptions options = {},
            std::source_location where = std::source_location::current()) {
    options.step = step;
    save_arrays(named_arrays(tree), std::move(options), where);
  }
  /// This step is not removed with the others, until keep() names another one.
  void keep(std::int64_t step);
  /// Removes checkpoints that are not to be kept, as each save does, after a wait(). A run that was
  /// killed right after a save may have left one too many.
  void prune();
  /// Finishes the last save: returns when everything is on disk. Throws RuntimeFault if it could
  /// not be written. A collective of all processes.
  void wait();
  /// With several processes, a save takes its place among the steps only when all processes finish
  /// it together: in wait(), in the next save, or in this call, if all files have been written.
  /// Call it once per step. A collective of all processes.
  void finish_if_written();

  /// The saved steps, ascending.
  std::vector<std::int64_t> steps() const;
  /// latest_step() of the folder.
  std::optional<std::int64_t> latest() const;
  /// The step with the smallest metric. All processes must find the same, as for latest().
  std::optional<std::int64_t> best() const;
  /// The folder of a step.
  std::string path(std::int64_t step) const;

  template <typename T>
  T restore(std::int64_t step, const T& target, const Shardings& shardings = {},
            RestoreOptions options = {},
            std::source_location where = std::source_location::current()) {
    wait();
    return checkpoint::restore(path(step), target, shardings, options, where);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The steps that are saved in a folder, ascending; none if there is no folder. Throws RuntimeFault
/// if the folder cannot be read.
std::vector<std::int64_t> steps_in(const std::string& folder);
/// The last of these steps. With one process per device all make this call, and all throw
/// RuntimeFault if one cannot read the folder or they find different steps.
std::optional<std::int64_t> latest_step(const std::string& folder);
/// The folder of a step.
std::string step_path(const std::string& folder, std::int64_t step);

}  // namespace checkpoint

/// Writes curves of a run into an event file of TensorBoard.
///
///   SummaryWriter scalars("runs/vit");
///   scalars.scalar("train/loss", loss, step);
class SummaryWriter {
 public:
  /// Begins a new file in `folder`, which is created if needed; files of earlier runs stay. This
  /// and all writing throw RuntimeFault if the file cannot be written.
  explicit SummaryWriter(const std::string& folder);
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  ~SummaryWriter();
  /// Adds the value, as f32, of the curve `tag` at a step. Slashes group tags.
  void scalar(const std::string& tag, double value, std::int64_t step);
  /// Makes everything so far visible to readers. Happens by itself about every second, and at the
  /// end.
  void flush();
  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
