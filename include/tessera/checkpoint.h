// Trees in files: saved while training goes on, restored onto any mesh with the same bits.
//
//   checkpoint::save("ckpt", state);
//   state = checkpoint::restore("ckpt", eval_shape(init, key), fsdp_shardings(mesh, shapes));
//
//   checkpoint::Checkpointer steps("runs/lm", {.keep_latest = 3});
//   steps.save(step, state);                       // returns at once; later steps change a copy
//   if (auto last = steps.latest()) state = steps.restore(*last, shapes, shardings);
//
// A checkpoint is a folder: safetensors files, one for each device that holds tiles, and an index
// with checksums. It is built beside its place and moved there as a whole, so a process that is
// killed leaves the old one or the new one. Reading takes only the parts that each device needs.
//
// At the end: the numbers of a run over its steps, in files that TensorBoard reads.
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

namespace tessera::checkpoint {

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

/// Writes arrays in the safetensors format. Throws RuntimeFault when the file cannot be written;
/// the old file stays whole in that case.
void write_safetensors(const std::string& path, const std::vector<NamedArray>& arrays,
                       std::source_location where = std::source_location::current());
/// All arrays of a file in the safetensors format, sorted by name. Throws UserError for a file that
/// is damaged or has types that arrays do not have.
std::vector<NamedArray> read_safetensors(
    const std::string& path, std::source_location where = std::source_location::current());

/// XXH3-128 as 32 hex digits over the arrays sorted by name: name, dtype, shape, and the elements
/// in row-major little-endian order with all NaNs as one.
std::string fingerprint(std::vector<NamedArray> arrays);

// --- checkpoints

/// Short texts that are saved with the arrays, in UTF-8.
using Metadata = std::map<std::string, std::string>;

struct SaveOptions {
  std::int64_t step = 0;
  std::optional<double> metric = std::nullopt;  // by which the best are kept
  Metadata metadata = {};
};
/// Saves arrays in the folder `path`; a checkpoint that was there is replaced in one step. Throws
/// RuntimeFault when something cannot be written, and then leaves what was there. With one process
/// per device each writes its own tiles, and all make this call.
void save_arrays(const std::string& path, const std::vector<NamedArray>& arrays,
                 const SaveOptions& options = {},
                 std::source_location where = std::source_location::current());
template <typename T>
void save(const std::string& path, const T& tree, const SaveOptions& options = {},
          std::source_location where = std::source_location::current()) {
  save_arrays(path, named_arrays(tree), options, where);
}

struct RestoreOptions {
  bool ignore_others = false;  // arrays of the checkpoint that the target does not have
};
/// An array to restore, and where to.
struct RestoreTarget {
  std::string name;
  Type type;
  NamedSharding sharding;
};
/// Throws UserError for a damaged checkpoint and for one of another model; then it names what
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

/// The tree of the target with the saved values. Its leaves may be abstract: eval_shape(init, key).
/// They come to lie as `shardings` say; where they say nothing, as the target does.
template <typename T>
T restore(const std::string& path, const T& target, const Shardings& shardings = {},
          RestoreOptions options = {},
          std::source_location where = std::source_location::current()) {
  return tree_replace(
      target, restore_arrays(path, detail::targets_of(target, shardings, where), options, where));
}

struct SavedArray {
  std::string name;
  Type type;
  std::int64_t num_tiles = 0;
};
struct CheckpointInfo {
  std::int64_t step = 0;
  std::optional<double> metric = std::nullopt;
  Metadata metadata = {};
  std::int64_t bytes = 0;  // of its files
  std::vector<std::string> files = {};
  std::vector<SavedArray> arrays = {};  // sorted by name
};
/// Reads the index alone.
CheckpointInfo read_info(const std::string& path);
/// Reads every byte. What is wrong, a line each; nothing for a checkpoint that is whole.
std::vector<std::string> verify(const std::string& path);

enum class ExportFormat : std::uint8_t {
  safetensors,  // whole arrays in model-*.safetensors with model.safetensors.index.json
  orbax,        // a folder that Orbax restores as nested dicts, whose keys are the parts of paths
};
struct ExportOptions {
  ExportFormat format = ExportFormat::safetensors;
  std::string subtree = {};                               // the path of what is taken; empty: all
  std::int64_t file_bytes = std::int64_t{4'000'000'000};  // of a file, unless one array has more
};
/// Writes the checkpoint in another format into a new folder. Throws UserError when there is
/// something at `to` already.
void export_checkpoint(const std::string& path, const std::string& to,
                       const ExportOptions& options = {},
                       std::source_location where = std::source_location::current());

// --- checkpoints of a run

struct CheckpointerOptions {
  std::int64_t keep_latest = 0;  // the others are removed; 0: keep all
  std::int64_t keep_best = 0;    // besides these, those with the least metric
  bool is_async = true;          // a thread writes; ignored with one process per device
};

/// The checkpoints of a run in one folder, named by their steps: step_00000100.
class Checkpointer {
 public:
  /// Makes the folder. Throws UserError when another process saves there.
  explicit Checkpointer(std::string folder, const CheckpointerOptions& options = {},
                        std::source_location where = std::source_location::current());
  /// Waits for the last save. Call wait() to be told when it fails.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves the arrays as they are now, and removes what is not to be kept. Waits for the save
  /// before it and throws what went wrong there.
  void save_arrays(const std::vector<NamedArray>& arrays, SaveOptions options,
                   std::source_location where = std::source_location::current());
  template <typename T>
  void save(std::int64_t step, const T& tree, SaveOptions options = {},
            std::source_location where = std::source_location::current()) {
    options.step = step;
    save_arrays(named_arrays(tree), std::move(options), where);
  }
  /// Returns when everything is on the disk; throws RuntimeFault when it could not be written.
  void wait();

  /// Steps that are saved, in order.
  std::vector<std::int64_t> steps() const;
  std::optional<std::int64_t> latest() const;
  /// The step with the least metric.
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

/// Steps that are saved in a folder, in order, and the folder of one of them.
std::vector<std::int64_t> steps_in(const std::string& folder);
std::string step_path(const std::string& folder, std::int64_t step);

}  // namespace tessera::checkpoint

namespace tessera {

/// Numbers of a run over its steps, in an event file of TensorBoard.
///
///   SummaryWriter scalars("runs/vit");
///   scalars.scalar("train/loss", loss, step);
class SummaryWriter {
 public:
  /// Begins a new file in `folder`, which is made if it is missing; files of earlier runs stay.
  /// This and writing throw RuntimeFault when the file cannot be written.
  explicit SummaryWriter(const std::string& folder);
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  ~SummaryWriter();
  /// The value, kept as f32, of the curve `tag` at a step; slashes group tags.
  void scalar(const std::string& tag, double value, std::int64_t step);
  /// Readers see everything so far; done about every second by itself, and at the
  /// end.
  void flush();
  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
