// Checkpoints of Orbax: a tree of names, and a store with an array in Zarr's format for each leaf.
#include "checkpoint/disk.h"
#include "checkpoint/json.h"
#include "data/file.h"
#include "foreign/foreign.h"
#include "foreign/orbax/key_values.h"
#include "foreign/orbax/zarr.h"

namespace tessera::foreign {

namespace {

using checkpoint::BadText;
using checkpoint::Json;
using checkpoint::member;
using checkpoint::text_at;

constexpr const char* kTree = "/_METADATA";

/// Leaves that stand for what has no elements, such as an empty dict.
bool is_empty_value(const std::string& type) {
  return type == "None" || type == "Dict" || type == "List" || type == "Tuple" ||
         type == "NamedTuple";
}

/// The keys from the root to a leaf, with a separator between them.
std::string joined_keys(const Json& leaf, char separator) {
  std::string text;
  for (const Json& step : member(leaf, "key_metadata")) {
    if (!text.empty()) text += separator;
    text += text_at(step, "key");
  }
  return text;
}

}  // namespace

bool is_orbax_item(const std::string& folder) {
  return checkpoint::kind_of(folder + kTree) == checkpoint::PathKind::file;
}

std::vector<Tensor> read_orbax(const std::string& folder) {
  const std::optional<Bytes> bytes = data::read_bytes(folder + kTree);
  if (!bytes) throw BadText("the file _METADATA cannot be read");
  const Json json = checkpoint::parse_json(
      std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  const Json& tree = member(json, "tree_metadata");
  if (!tree.is_object()) throw BadText("tree_metadata is not an object");
  const auto store = std::make_shared<const KeyValues>(folder);
  std::vector<Tensor> tensors;
  for (const Json& leaf : tree) {
    const Json& value = member(leaf, "value_metadata");
    if (is_empty_value(text_at(value, "value_type"))) continue;
    Tensor tensor = read_zarr(store, joined_keys(leaf, '.'));
    tensor.name = joined_keys(leaf, '/');
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace tessera::foreign
