// Reads config.json from a GPT-2 folder in Hugging Face's layout.
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include <tessera/error.h>

#include "model.h"

namespace gpt2 {

namespace detail {

/// Reads members of the object in config.json. All errors name the file.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& folder) : path_(folder + "/config.json") {
    std::ifstream file(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file.good() && text.empty()) {
      throw UserError({.what = "gpt2: the configuration cannot be read",
                       .found = path_ + ": " + std::strerror(errno == 0 ? ENOENT : errno),
                       .wanted = "a folder with config.json, as Hugging Face lays it out",
                       .cure = "check the path of the folder"});
    }
    object_ = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object_.is_object()) fail("it is not a JSON object");
  }

  std::string text(const char* name, const std::string& otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_string()) fail(std::string(name) + " is not a string");
    return object_[name];
  }
  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_boolean()) fail(std::string(name) + " is not true or false");
    return object_[name];
  }
  double number(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    const bool is_right = object_[name].is_number() && object_[name].get<double>() > 0;
    if (!is_right) fail(std::string(name) + " is not a number above 0");
    return object_[name];
  }
  std::int64_t size(const char* name, std::optional<std::int64_t> otherwise = {}) const {
    if (!has(name) && otherwise) return *otherwise;
    if (!has(name)) fail(std::string(name) + " is missing");
    const bool is_right =
        object_[name].is_number_unsigned() && object_[name] >= 1 && object_[name] <= 1'000'000'000;
    if (!is_right) fail(std::string(name) + " is not a size from 1 to 1000000000");
    return object_[name];
  }
  std::optional<int> id(const char* name, std::int64_t end) const {
    if (!has(name)) return std::nullopt;
    const bool is_right = object_[name].is_number_unsigned() && object_[name] < end;
    if (!is_right) fail(std::string(name) + " is not the id of a token");
    return object_[name].get<int>();
  }
  /// Throws the error for a configuration that is not supported.
  [[noreturn]] void fail(const std::string& found) const {
    throw UserError({.what = "gpt2: the configuration is not for GPT-2",
                     .found = path_ + ": " + found,
                     .wanted = "the config.json of a model of type gpt2",
                     .cure = "use the folder of a model such as gpt2, gpt2-medium or distilgpt2"});
  }

 private:
  bool has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }

  std::string path_;
  nlohmann::json object_;
};

inline Activation activation_of(const ConfigReader& reader) {
  const std::string name = reader.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  reader.fail("activation_function " + name +
              "; supported are gelu_new, gelu_pytorch_tanh, gelu, relu, silu");
}

}  // namespace detail

/// The sizes of the model in a folder. Throws UserError if it is not a GPT-2.
inline Config read_config(const std::string& folder) {
  const detail::ConfigReader reader(folder);
  const std::string type = reader.text("model_type", "gpt2");
  if (type != "gpt2") reader.fail("model_type " + type);
  for (const auto& [name, usual] :
       {std::pair("scale_attn_weights", true), std::pair("scale_attn_by_inverse_layer_idx", false),
        std::pair("add_cross_attention", false)}) {
    if (reader.flag(name, usual) != usual)
      reader.fail(std::string(name) + (usual ? " is false" : " is true"));
  }
  Config c;
  c.vocab = reader.size("vocab_size");
  c.positions = reader.size("n_positions");
  c.features = reader.size("n_embd");
  c.layers = reader.size("n_layer");
  c.heads = reader.size("n_head");
  c.hidden = reader.size("n_inner", 4 * c.features);
  c.epsilon = reader.number("layer_norm_epsilon", c.epsilon);
  c.deviation = reader.number("initializer_range", c.deviation);
  c.activation = detail::activation_of(reader);
  c.is_tied = reader.flag("tie_word_embeddings", true);
  c.end = reader.id("eos_token_id", c.vocab);
  if (c.features % c.heads != 0) reader.fail("n_head does not divide n_embd");
  return c;
}

}  // namespace gpt2
