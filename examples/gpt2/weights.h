// GPT-2 weights in Hugging Face's files: their names, and how they map to our parameters.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "model.h"

namespace gpt2 {

/// Maps our parameter to a part of their tensor. Equal parts lie along the last dimension.
struct Mapped {
  std::string path;  // of the parameter
  std::string name;  // of the tensor
  Shape shape;       // of the tensor
  std::int64_t part = 0;
  std::int64_t parts = 1;
  bool is_transposed = false;
};

/// The parameters of a model and their tensors. Names have no `transformer.` prefix.
inline std::vector<Mapped> name_map(const Config& c) {
  const std::int64_t f = c.features;
  std::vector<Mapped> map = {{"wte/embedding", "wte.weight", {c.vocab, f}},
                             {"wpe", "wpe.weight", {c.positions, f}},
                             {"ln_f/scale", "ln_f.weight", {f}},
                             {"ln_f/bias", "ln_f.bias", {f}}};
  if (!c.is_tied)
    map.push_back({"lm_head/kernel", "lm_head.weight", {c.vocab, f}, 0, 1, /*transposed*/ true});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = "h_" + std::to_string(i) + "/";
    const std::string theirs = "h." + std::to_string(i) + ".";
    const auto add = [&](const std::string& path, const std::string& name, Shape shape,
                         std::int64_t part = 0, std::int64_t parts = 1) {
      map.push_back({ours + path, theirs + name, std::move(shape), part, parts});
    };
    for (const std::string norm : {"ln_1", "ln_2"}) {
      add(norm + "/scale", norm + ".weight", {f});
      add(norm + "/bias", norm + ".bias", {f});
    }
    // The three projections of attention are one tensor.
    std::int64_t part = 0;
    for (const std::string projection : {"query", "key", "value"}) {
      add("attn/" + projection + "/kernel", "attn.c_attn.weight", {f, 3 * f}, part, 3);
      add("attn/" + projection + "/bias", "attn.c_attn.bias", {3 * f}, part++, 3);
    }
    add("attn/out/kernel", "attn.c_proj.weight", {f, f});
    add("attn/out/bias", "attn.c_proj.bias", {f});
    add("c_fc/kernel", "mlp.c_fc.weight", {f, c.hidden});
    add("c_fc/bias", "mlp.c_fc.bias", {c.hidden});
    add("c_proj/kernel", "mlp.c_proj.weight", {c.hidden, f});
    add("c_proj/bias", "mlp.c_proj.bias", {f});
  }
  return map;
}

namespace detail {

inline constexpr const char* kPrefix = "transformer.";

/// The name in the map for a tensor in a file.
inline std::string plain_name(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(std::string(kPrefix).size()) : name;
}

/// Whether a tensor is not a weight: a mask in old files, or the copy of a tied head.
inline bool is_ignored(const std::string& name, const Config& c) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         (c.is_tied && name == "lm_head.weight");
}

/// The problems with the tensors of a file, one text each.
inline std::vector<std::string> problems_of(const std::vector<checkpoint::FileTensor>& found,
                                            const std::vector<Mapped>& map, const Config& c) {
  std::map<std::string, const checkpoint::FileTensor*> by_name;
  for (const checkpoint::FileTensor& tensor : found) by_name[plain_name(tensor.name)] = &tensor;
  std::vector<std::string> problems;
  std::map<std::string, Shape> wanted;
  for (const Mapped& item : map) wanted[item.name] = item.shape;
  for (const auto& [name, shape] : wanted) {
    const auto place = by_name.find(name);
    if (place == by_name.end()) {
      problems.push_back(name + " is missing");
    } else if (place->second->shape != shape) {
      problems.push_back(name + " is " + to_string(place->second->shape) + ", not " +
                         to_string(shape));
    } else if (const std::string& dtype = place->second->dtype;
               dtype != "F32" && dtype != "F16" && dtype != "BF16") {
      problems.push_back(name + " is " + dtype + ", not F32, F16 or BF16");
    }
  }
  for (const auto& [name, tensor] : by_name) {
    if (!wanted.contains(name) && !is_ignored(name, c))
      problems.push_back(name + " is not a weight of the model");
  }
  return problems;
}

/// The parameter that corresponds to this part of a tensor.
inline Array parameter_of(const Mapped& item, const Array& tensor, const Shape& shape) {
  Array x = astype(tensor, DType::f32);
  if (item.parts > 1) x = split(x, item.parts, -1)[static_cast<std::size_t>(item.part)];
  return reshape(item.is_transposed ? transpose(x) : x, shape);
}

}  // namespace detail

/// The model with the weights in a folder: model.safetensors, or several files with an index.
/// Throws UserError with a list of tensors that are missing, extra or of the wrong shape.
inline GPT2 read_weights(const std::string& folder, const Config& c) {
  const GPT2 shapes = eval_shape([&] { return GPT2(nn::Scope(Key(0)), c); });
  const std::vector<Mapped> map = name_map(c);
  const std::vector<checkpoint::FileTensor> found = checkpoint::list_safetensors(folder);
  const std::vector<std::string> problems = detail::problems_of(found, map, c);
  if (!problems.empty()) {
    constexpr std::size_t kShown = 6;
    std::string list;
    for (std::size_t i = 0; i < std::min(kShown, problems.size()); ++i) {
      list += (i > 0 ? "; " : "") + problems[i];
    }
    if (problems.size() > kShown)
      list += "; and " + std::to_string(problems.size() - kShown) + " more";
    throw UserError({.what = "gpt2: the weights do not match the configuration",
                     .found = folder + ": " + list,
                     .wanted = "the tensors of GPT2LMHeadModel, with the sizes in config.json",
                     .cure = "use the weights and the config.json of the same model"});
  }
  checkpoint::ReadOptions options{.f16_as_f32 = true};
  for (const checkpoint::FileTensor& tensor : found) {
    if (!detail::is_ignored(detail::plain_name(tensor.name), c))
      options.names.push_back(tensor.name);
  }
  std::map<std::string, Array> tensors;
  for (const auto& [name, x] : checkpoint::read_safetensors(folder, options)) {
    tensors[detail::plain_name(name)] = x;
  }
  std::map<std::string, const Mapped*> by_path;
  for (const Mapped& item : map) by_path[item.path] = &item;
  std::vector<Array> leaves;
  for (const auto& [path, leaf] : checkpoint::named_arrays(shapes)) {
    const Mapped& item = *by_path.at(path);
    leaves.push_back(detail::parameter_of(item, tensors.at(item.name), leaf.shape()));
  }
  return tree_replace(shapes, leaves);
}

/// Writes the weights in Hugging Face's format, for read_weights() and for their library.
inline void write_weights(const std::string& path, const GPT2& model, const Config& c) {
  std::map<std::string, Array> leaves;
  for (const auto& [name, x] : checkpoint::named_arrays(model)) leaves[name] = x;
  std::map<std::string, std::vector<Array>> parts;
  for (const Mapped& item : name_map(c)) {
    const Array& leaf = leaves.at(item.path);
    Shape shape = item.shape;
    shape.back() /= item.parts;
    parts[item.name].push_back(item.is_transposed ? transpose(leaf) : reshape(leaf, shape));
  }
  std::vector<checkpoint::NamedArray> arrays;
  for (const auto& [name, list] : parts) {
    arrays.push_back({.name = (name.starts_with("lm_head") ? "" : detail::kPrefix) + name,
                      .array = list.size() == 1 ? list[0] : concatenate(list, -1)});
  }
  checkpoint::write_safetensors(path, arrays);
}

}  // namespace gpt2
