// Compares the GPT-2 of examples/gpt2 with the package transformers, for the same random weights.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include <tessera/data.h>
#include <tessera/engine.h>

#include "gpt2/config.h"
#include "gpt2/generate.h"
#include "gpt2/weights.h"
#include "tests/cases/source_dir.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<std::int32_t>;

std::string golden_folder() { return source_dir() / "tests/peers/golden/gpt2"; }

const gpt2::Config& config() {
  static const gpt2::Config read = gpt2::read_config(golden_folder());
  return read;
}

const gpt2::GPT2& model() {
  static const gpt2::GPT2 read = gpt2::read_weights(golden_folder(), config());
  return read;
}

/// An array that the peer computed.
Array recorded(const std::string& name) {
  return checkpoint::read_safetensors(golden_folder() + "/logits.safetensors", {.names = {name}})[0]
      .array;
}

Ids prompt() { return read_golden("gpt2/expected.json")["greedy"]["prompt_ids"]; }

/// The tokens of the sequences, one after the other.
std::vector<Ids> generated(const gpt2::GenerateOptions& options) {
  gpt2::Generator generator(model(), config(), {prompt()}, options);
  std::vector<Ids> sequences(static_cast<std::size_t>(options.sequences));
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const Ids next = generator.next();
    for (std::size_t k = 0; k < next.size(); ++k) sequences[k].push_back(next[k]);
  }
  return sequences;
}

TEST(Gpt2, HasTheLogitsOfThePeer) {
  const Array difference = jit([](const gpt2::GPT2& m, Array ids, Array logits) {
    return max(abs(m(ids) - logits));
  })(model(), recorded("ids"), recorded("logits"));
  EXPECT_LT(difference.item<double>(), 1e-4);
  EXPECT_GT(max(abs(recorded("logits"))).item<double>(), 1);
}

TEST(Gpt2, HasTheLossOfThePeer) {
  const double expected = read_golden("gpt2/expected.json")["loss"];
  for (const bool recomputes : {false, true}) {
    const Array loss = jit([&](const gpt2::GPT2& m, Array ids) {
      return gpt2::next_token_loss(m, ids, recomputes);
    })(model(), recorded("ids"));
    EXPECT_NEAR(loss.item<double>(), expected, 1e-4);
  }
}

TEST(Gpt2, ContinuesAsThePeer) {
  const Ids expected = read_golden("gpt2/expected.json")["greedy"]["ids"];
  const auto count = static_cast<std::int64_t>(expected.size());
  EXPECT_EQ(generated({.tokens = count, .sampling = {.temperature = 0}}),
            std::vector<Ids>{expected});
}

TEST(Gpt2, DrawsTheSameTokensOnMeshesAndThreads) {
  const nn::SamplingOptions sampling{.temperature = 1.2, .top_k = 100, .top_p = 0.95};
  const gpt2::GenerateOptions options{
      .tokens = 12, .sequences = 3, .sampling = sampling, .seed = 5};
  const std::vector<Ids> expected = generated(options);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected, generated({.tokens = 12, .sequences = 3, .sampling = sampling, .seed = 6}));
  for (const std::int64_t devices : {1, 2, 4}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    const use_mesh scope(mesh);
    gpt2::GenerateOptions split = options;
    split.mesh = mesh;
    EXPECT_EQ(generated(split), expected) << devices;
  }
  const int threads = num_threads();
  set_num_threads(threads == 1 ? 3 : 1);
  EXPECT_EQ(generated(options), expected);
  set_num_threads(threads);
}

// --- files

class Gpt2Files : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_gpt2_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string folder() const { return folder_; }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  /// The text of the error about these tensors.
  std::string error_of(const std::vector<checkpoint::NamedArray>& tensors) const {
    checkpoint::write_safetensors(folder() + "/model.safetensors", tensors);
    try {
      gpt2::read_weights(folder(), config());
      return "";
    } catch (const UserError& error) {
      return error.mistake().found;
    }
  }
  std::string config_error(const json& change) const {
    json object = json::parse(std::ifstream(golden_folder() + "/config.json"));
    object.update(change);
    write("config.json", object.dump());
    try {
      gpt2::read_config(folder());
      return "";
    } catch (const UserError& error) {
      return error.mistake().found.substr(folder().size() + 14);
    }
  }

 private:
  fs::path folder_;
};

TEST_F(Gpt2Files, AreWrittenAsTheyAreRead) {
  gpt2::Config untied = config();
  untied.is_tied = false;
  for (const gpt2::Config& c : {config(), untied}) {
    const auto drawn = gpt2::GPT2(nn::Scope(Key(3)), c);
    gpt2::write_weights(folder() + "/model.safetensors", drawn, c);
    const auto read = gpt2::read_weights(folder(), c);
    EXPECT_EQ(checkpoint::fingerprint(checkpoint::named_arrays(read)),
              checkpoint::fingerprint(checkpoint::named_arrays(drawn)));
  }
  gpt2::write_weights(folder() + "/model.safetensors", model(), config());
  const auto theirs = checkpoint::read_safetensors(golden_folder());
  const auto ours = checkpoint::read_safetensors(folder());
  EXPECT_EQ(checkpoint::fingerprint(ours), checkpoint::fingerprint(theirs));
}

TEST_F(Gpt2Files, MayHoldOldNamesAndMasks) {
  std::vector<checkpoint::NamedArray> tensors;
  for (const auto& [name, x] : checkpoint::read_safetensors(golden_folder())) {
    tensors.push_back({name.substr(std::string("transformer.").size()), astype(x, DType::bf16)});
  }
  tensors.push_back({"h.0.attn.bias", ones({1, 1, 4, 4}, DType::boolean)});
  tensors.push_back({"lm_head.weight", ones({2})});
  EXPECT_EQ(error_of(tensors), "");
}

TEST_F(Gpt2Files, AreRefusedWithAListOfWhatIsWrong) {
  std::vector<checkpoint::NamedArray> tensors = checkpoint::read_safetensors(golden_folder());
  for (checkpoint::NamedArray& item : tensors) {
    if (item.name == "transformer.h.1.attn.c_attn.weight") item.array = ones({16, 32});
    if (item.name == "transformer.ln_f.bias") item.name = "transformer.ln_f.beta";
    if (item.name == "transformer.wpe.weight") item.array = ones({48, 16}, DType::i32);
  }
  EXPECT_EQ(error_of(tensors),
            folder() +
                ": h.1.attn.c_attn.weight is [16,32], not [16,48]; ln_f.bias is missing; "
                "wpe.weight is I32, not F32, F16 or BF16; ln_f.beta is not a weight of the model");
  EXPECT_EQ(error_of({}),
            folder() +
                ": h.0.attn.c_attn.bias is missing; h.0.attn.c_attn.weight is missing; "
                "h.0.attn.c_proj.bias is missing; h.0.attn.c_proj.weight is missing; "
                "h.0.ln_1.bias is missing; h.0.ln_1.weight is missing; and 22 more");
}

TEST_F(Gpt2Files, HaveAConfigurationOfGpt2) {
  EXPECT_EQ(config_error(json::object()), "");
  EXPECT_EQ(config_error({{"activation_function", "gelu"}, {"n_inner", 40}}), "");
  EXPECT_EQ(config_error({{"model_type", "llama"}}), "model_type llama");
  EXPECT_EQ(config_error({{"n_head", 5}}), "n_head does not divide n_embd");
  EXPECT_EQ(config_error({{"n_head", 0}}), "n_head is not a size from 1 to 1000000000");
  EXPECT_EQ(config_error({{"n_head", "4"}}), "n_head is not a size from 1 to 1000000000");
  EXPECT_EQ(config_error({{"vocab_size", nullptr}}), "vocab_size is missing");
  EXPECT_EQ(config_error({{"layer_norm_epsilon", -1}}),
            "layer_norm_epsilon is not a number above 0");
  EXPECT_EQ(config_error({{"activation_function", "mish"}}).substr(0, 30),
            "activation_function mish; supp");
  EXPECT_EQ(config_error({{"scale_attn_weights", false}}), "scale_attn_weights is false");
  EXPECT_EQ(config_error({{"add_cross_attention", 1}}), "add_cross_attention is not true or false");
  EXPECT_EQ(config_error({{"eos_token_id", 513}}), "eos_token_id is not the id of a token");
  write("config.json", "[]");
  EXPECT_THROW(gpt2::read_config(folder()), UserError);
  EXPECT_THROW(gpt2::read_config(folder() + "/nowhere"), UserError);
}

}  // namespace
}  // namespace tessera
