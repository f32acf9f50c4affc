// Mistakes in layers, optimisers and settings.
#include <gtest/gtest.h>

#include <tessera/data.h>
#include <tessera/engine.h>
#include <tessera/jit.h>
#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/recurrent.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(LayerErrors, ScopeIsTaken) {
  const nn::Scope blocks = nn::Scope(Key(0)) / "blocks_0";
  const nn::Dense first(blocks / "Dense_0", 4, 4);
  const Caught error = caught([&] { nn::Dense(blocks / "Dense_0", 4, 4); });
  EXPECT_EQ(error.text,
            "nn::Scope: the name 'blocks_0/Dense_0' is already used\n"
            "  where:  <this line>\n"
            "  found:  'Dense_0' a second time\n"
            "  wanted: different names\n"
            "  cure:   give each layer and parameter of a scope its own name");
}

TEST(LayerErrors, ParameterIsTaken) {
  const nn::Scope scope = nn::Scope(Key(0)) / "head";
  const Param first = scope.param("kernel", nn::init::zeros(), {4});
  const Caught error = caught([&] { scope.param("kernel", nn::init::zeros(), {4}); });
  EXPECT_EQ(error.text,
            "nn::Scope: the name 'head/kernel' is already used\n"
            "  where:  <this line>\n"
            "  found:  'kernel' a second time\n"
            "  wanted: different names\n"
            "  cure:   give each layer and parameter of a scope its own name");
}

TEST(LayerErrors, ScopeWithASlash) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope / "blocks/Dense_0"; });
  EXPECT_EQ(error.text,
            "nn::Scope: 'blocks/Dense_0' is not a name\n"
            "  where:  <this line>\n"
            "  found:  a name with '/'\n"
            "  wanted: a name without '/'\n"
            "  cure:   open one scope per name: scope / \"blocks\" / \"Dense_0\"");
}

TEST(LayerErrors, ANumberIsNoInput) {
  const auto error = [](const std::string& layer, const std::string& wanted) {
    return layer +
           ": the input is a number\n"
           "  where:  <this line>\n"
           "  found:  the number 2, a scalar of shape []\n"
           "  wanted: " +
           wanted +
           "\n"
           "  cure:   pass an array: full(shape, number) fills one with a number";
  };
  const nn::Scope scope(Key(0));
  const nn::Dense dense(scope / "dense", 3, 4);
  EXPECT_EQ(caught([&] { dense(2.0F); }).text, error("Dense", "[.., 3]"));
  const nn::Conv conv(scope / "conv", 6, 4, {.kernel_size = {3, 3}, .feature_group_count = 2});
  EXPECT_EQ(caught([&] { conv(2); }).text, error("Conv", "[n, space.., 6]"));
  const nn::ConvTranspose wider(scope / "wider", 3, 4, {.kernel_size = {3}});
  EXPECT_EQ(caught([&] { wider(2); }).text, error("ConvTranspose", "[n, space.., 3]"));
  const nn::LayerNorm norm(scope / "norm", 3);
  EXPECT_EQ(caught([&] { norm(2.0); }).text, error("LayerNorm", "[.., 3]"));
  const nn::Dropout dropout(scope / "dropout", 0.5);
  const nn::Mode mode = nn::Mode::train(Key(1));
  EXPECT_EQ(caught([&] { dropout(2, mode); }).text, error("Dropout", "an array"));
  const nn::AttentionOptions options{.num_heads = 2, .features = 4, .kv_features = 6};
  const nn::MultiHeadAttention attention(scope / "attention", options);
  EXPECT_EQ(caught([&] { attention(2); }).text, error("MultiHeadAttention", "[B, T, 4]"));
  EXPECT_EQ(caught([&] { attention.read(2); }).text, error("MultiHeadAttention", "[B, T, 6]"));
  const nn::GRUCell cell(scope / "cell", 3, 4);
  const Array start = cell.initial_carry(1);
  EXPECT_EQ(caught([&] { cell(start, 2); }).text, error("GRUCell", "[.., 3]"));
  EXPECT_EQ(caught([&] { nn::rnn(cell, start, 2); }).text, error("rnn", "[batch, time, inputs]"));
}

TEST(LayerErrors, AnEmptyArrayIsNoInput) {
  const nn::Scope scope(Key(0));
  const nn::Dense dense(scope / "dense", 3, 4);
  const nn::Embed embed(scope / "embed", 3, 4);
  const auto error = [](const std::string& layer, const std::string& wanted) {
    return layer +
           ": the input is an empty Array\n"
           "  where:  <this line>\n"
           "  found:  a default-constructed or moved-from handle\n"
           "  wanted: " +
           wanted +
           "\n"
           "  cure:   assign an array to it first; use std::move only on handles that are no "
           "longer needed";
  };
  EXPECT_EQ(caught([&] { dense(Array()); }).text, error("Dense", "[.., 3]"));
  EXPECT_EQ(caught([&] { embed(Array()); }).text, error("Embed", "an array of ids"));
}

TEST(LayerErrors, AScalarIsNoInput) {
  const nn::Dense dense(nn::Scope(Key(0)), 3, 4);
  EXPECT_EQ(caught([&] { dense(scalar(2.0F)); }).text,
            "Dense: the input has too few dimensions\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: [.., 3]\n"
            "  cure:   add the missing dimensions with expand_dims or reshape");
}

TEST(LayerErrors, NegativeSizesAreTheCallers) {
  const auto error = [](const std::string& shape) {
    return "zeros: the shape has a negative size\n"
           "  where:  <this line>\n"
           "  found:  " +
           shape +
           "\n"
           "  wanted: sizes of 0 or more\n"
           "  cure:   write every size out; only reshape takes -1";
  };
  const nn::Scope scope(Key(0));
  const nn::SimpleCell simple(scope / "simple", 3, 4);
  EXPECT_EQ(caught([&] { simple.initial_carry(-1); }).text, error("[-1,4]"));
  const nn::LSTMCell lstm(scope / "lstm", 3, 4);
  EXPECT_EQ(caught([&] { lstm.initial_carry(-1); }).text, error("[-1,4]"));
  const nn::GRUCell gru(scope / "gru", 3, 4);
  EXPECT_EQ(caught([&] { gru.initial_carry(-1); }).text, error("[-1,4]"));
  EXPECT_EQ(caught([] { metrics::Confusion(-1); }).text, error("[-1,-1]"));
  const nn::AttentionOptions options{.num_heads = 2, .features = 4};
  EXPECT_EQ(caught([&] { nn::AttentionCache(1, -1, options); }).text, error("[1,-1,2,2]"));
}

TEST(LayerErrors, ACacheOfOtherHeadsIsTheCallers) {
  const nn::AttentionOptions options{.num_heads = 5, .features = 4};
  EXPECT_EQ(caught([&] { nn::AttentionCache(1, 1, options); }).text,
            "MultiHeadAttention: the number of heads does not divide the number of features\n"
            "  where:  <this line>\n"
            "  found:  4 features, 5 heads\n"
            "  wanted: features that are a multiple of the number of heads\n"
            "  cure:   choose a number of heads that divides the features");
}

TEST(LayerErrors, ACacheOfVectors) {
  EXPECT_EQ(caught([] { nn::AttentionCache(ones({3}), ones({3})); }).text,
            "dim: axis 1 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[3]\n"
            "  wanted: an axis from -1 to 0\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(LayerErrors, HeadsDoNotDivide) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::SelfAttention(scope, {.num_heads = 3, .features = 8}); });
  EXPECT_EQ(error.text,
            "MultiHeadAttention: the number of heads does not divide the number of features\n"
            "  where:  <this line>\n"
            "  found:  8 features, 3 heads\n"
            "  wanted: features that are a multiple of the number of heads\n"
            "  cure:   choose a number of heads that divides the features");
}

TEST(LayerErrors, OddPositions) {
  const Caught error = caught([] { nn::sinusoidal_positions(8, 3); });
  EXPECT_EQ(error.text,
            "sinusoidal_positions: the width is odd\n"
            "  where:  <this line>\n"
            "  found:  3\n"
            "  wanted: an even width: sines and cosines alternate\n"
            "  cure:   use an even model width");
}

TEST(LayerErrors, ScanOfNoLayers) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::scan<nn::LayerNorm>(scope, {.length = 0}, 4); });
  EXPECT_EQ(error.text,
            "nn::scan: layers cannot be stacked here\n"
            "  where:  <this line>\n"
            "  found:  0 layers\n"
            "  wanted: at least one layer, in a scope that is not itself scanned\n"
            "  cure:   pass .length = the number of layers, in the outermost nn::scan");
}

TEST(LayerErrors, ScanOfLayersWithoutArrays) {
  const auto layers = nn::scan<nn::Dropout>(nn::Scope(Key(0)), {.length = 2}, 0.5);
  const Caught error = caught([&] { layers(ones({3}), nn::Mode::train(Key(1))); });
  EXPECT_EQ(error.text,
            "nn::scan: the layers have no arrays\n"
            "  where:  <this line>\n"
            "  found:  a layer without parameters and buffers\n"
            "  wanted: arrays whose first dimension is the number of layers\n"
            "  cure:   apply the layer in a for loop: x = layer(x)");
}

TEST(LayerErrors, DropoutOfEverything) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::Dropout(scope, 1.0); });
  EXPECT_EQ(error.text,
            "Dropout: the rate is not a probability below 1\n"
            "  where:  <this line>\n"
            "  found:  1\n"
            "  wanted: 0 <= rate < 1\n"
            "  cure:   pass the probability that an element is dropped, for example 0.1");
}

TEST(LayerErrors, InitialValueOfAnotherShape) {
  const nn::Scope scope(Key(0));
  const nn::Initializer init = nn::init::value(ones({2, 3}));
  const Caught error = caught([&] { scope.param("pos_emb", init, {3, 2}); });
  EXPECT_EQ(error.text,
            "init::value: the array and the parameter have different shapes\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] for parameter pos_emb\n"
            "  wanted: [3,2]\n"
            "  cure:   reshape the array, or give the parameter its shape");
}

TEST(LayerErrors, FansOfAVector) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope.param("bias", nn::init::lecun_normal(), {4}); });
  EXPECT_EQ(error.text,
            "variance_scaling: the shape has too few dimensions\n"
            "  where:  <this line>\n"
            "  found:  [4] for parameter bias\n"
            "  wanted: a shape with a dimension -2\n"
            "  cure:   use another initialiser: init::zeros() or init::normal() for vectors");
}

TEST(LayerErrors, AttentionOfAMatrix) {
  const Array x = ones({4, 8});
  const Caught error = caught([&] { nn::dot_product_attention(x, x, x); });
  EXPECT_EQ(error.text,
            "dot_product_attention: the shapes of q, k and v do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[4,8], f32[4,8] and f32[4,8]\n"
            "  wanted: q [B,T,H,D], k and v [B,S,H,D]\n"
            "  cure:   project to heads first: einsum(\"btf,fhd->bthd\", x, kernel)");
}

TEST(OptimizerErrors, FewerGradientsThanParameters) {
  const nn::Dense model(nn::Scope(Key(0)), 4, 2);
  const optim::Optimizer tx = optim::adam();
  optim::State state = tx.init(tree_params(model));
  const std::vector<Array> leaves = tree_leaves(model);
  const Caught error = caught([&] { tx.update(tree_params(model), {leaves[0]}, state); });
  EXPECT_EQ(error.text,
            "Optimizer: gradients and parameters have different structures\n"
            "  where:  <this line>\n"
            "  found:  parameters: 2 and gradients: 1\n"
            "  wanted: one gradient per parameter\n"
            "  cure:   pass the gradients of value_and_grad with respect to the model");
}

TEST(OptimizerErrors, GradientOfAnotherShape) {
  const nn::Dense model(nn::Scope(Key(0)) / "Dense_0", 4, 2);
  TrainState<nn::Dense> state(model, optim::adam());
  nn::Dense grads = model;
  grads.bias = grads.bias->with_value(ones({3}));
  const Caught error = caught([&] { std::ignore = state.apply_gradients(grads); });
  EXPECT_EQ(error.text,
            "Optimizer: a gradient does not match its parameter\n"
            "  where:  <this line>\n"
            "  found:  f32[3] for parameter Dense_0/bias\n"
            "  wanted: f32[2]\n"
            "  cure:   pass the gradients of value_and_grad with respect to the model");
}

TEST(OptimizerErrors, StateOfAnotherModel) {
  const nn::Dense model(nn::Scope(Key(0)), 4, 2);
  const optim::Optimizer tx = optim::adam();
  optim::State state = tx.init({});
  const std::vector<Array> leaves = tree_leaves(model);
  const Caught error = caught([&] { tx.update(tree_params(model), leaves, state); });
  EXPECT_EQ(error.text,
            "Optimizer: the state is for another model or optimiser\n"
            "  where:  <this line>\n"
            "  found:  parameters: 2 and arrays in mu: 0\n"
            "  wanted: mu of parameter kernel\n"
            "  cure:   make the state from the same model and optimiser: "
            "tx.init(tree_params(model))");
}

TEST(SettingErrors, Engine) {
  const Caught error = caught([] { set_engine("tpu"); });
  EXPECT_EQ(error.text,
            "set_engine: unknown engine\n"
            "  where:  <this line>\n"
            "  found:  tpu\n"
            "  wanted: host, reference, gpu or pjrt:PATH\n"
            "  cure:   use host, which is fast; the reference engine is simple and slow");
}

TEST(SettingErrors, Threads) {
  const Caught error = caught([] { set_num_threads(0); });
  EXPECT_EQ(error.text,
            "set_num_threads: the number of threads is out of range\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: from 1 to 1024\n"
            "  cure:   pass the number of cores to use");
}

TEST(SettingErrors, ThreadsOfAContext) {
  const Caught error = caught([] { Context({.num_threads = 1025}); });
  EXPECT_EQ(error.text,
            "Context: the number of threads is out of range\n"
            "  where:  <this line>\n"
            "  found:  1025\n"
            "  wanted: from 1 to 1024\n"
            "  cure:   pass the number of cores to use");
}

TEST(SettingErrors, Grains) {
  const Caught error = caught([] { set_grains(0); });
  EXPECT_EQ(error.text,
            "set_grains: the number of grains is out of range\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: from 1 to 4096, usually 8\n"
            "  cure:   pass a multiple of the number of devices that share a sum");
}

TEST(DataErrors, RangeIsEmpty) {
  data::RandomState random(0);
  const Caught error = caught([&] { random.randint(5, 5, {2}); });
  EXPECT_EQ(error.text,
            "randint: there is no i32 in the range\n"
            "  where:  <this line>\n"
            "  found:  [5, 5)\n"
            "  wanted: low < high <= 2147483648\n"
            "  cure:   pass a `high` above `low`; `high` itself is never drawn");
}

TEST(DataErrors, NoFile) {
  const Caught error = caught([] { data::read_text("/no/such/file.txt", 8); });
  EXPECT_EQ(error.text,
            "text: the file cannot be read\n"
            "  where:  <this line>\n"
            "  found:  /no/such/file.txt: No such file or directory\n"
            "  wanted: a readable text file\n"
            "  cure:   check the path; every Debian system has /usr/share/common-licenses/GPL-3");
}

TEST(DataErrors, RangeIsBeyondIntegers) {
  data::RandomState random(0);
  const Caught error = caught([&] { random.randint(0, std::int64_t{1} << 32, {2}); });
  EXPECT_EQ(error.text,
            "randint: there is no i32 in the range\n"
            "  where:  <this line>\n"
            "  found:  [0, 4294967296)\n"
            "  wanted: low < high <= 2147483648\n"
            "  cure:   pass a `high` above `low`; `high` itself is never drawn");
}

TEST(LayerErrors, ScopeWithoutAName) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope / ""; });
  EXPECT_EQ(error.text,
            "nn::Scope: '' is not a name\n"
            "  where:  <this line>\n"
            "  found:  an empty name\n"
            "  wanted: a name without '/'\n"
            "  cure:   open one scope per name: scope / \"blocks\" / \"Dense_0\"");
}

TEST(LayerErrors, InputOfAnotherWidth) {
  const nn::LayerNorm norm(nn::Scope(Key(0)) / "norm", 4);
  const Array x = ones({2, 3});
  const Caught error = caught([&] { norm(x); });
  EXPECT_EQ(error.text,
            "LayerNorm: the array has the wrong number of features\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] for parameter norm/scale of [4]\n"
            "  wanted: [.., 4]\n"
            "  cure:   construct the layer with the size of the last dimension");
}

TEST(OptimizerErrors, GradientOfAnotherDtype) {
  const nn::Dense model(nn::Scope(Key(0)) / "Dense_0", 4, 2);
  TrainState<nn::Dense> state(model, optim::sgd({.learning_rate = 0.1}));
  nn::Dense grads = model;
  grads.kernel = grads.kernel.with_value(zeros({4, 2}, DType::i32));
  const Caught error = caught([&] { std::ignore = state.apply_gradients(grads); });
  EXPECT_EQ(error.text,
            "Optimizer: a gradient does not match its parameter\n"
            "  where:  <this line>\n"
            "  found:  i32[4,2] for parameter Dense_0/kernel\n"
            "  wanted: f32[4,2]\n"
            "  cure:   pass the gradients of value_and_grad with respect to the model");
}

class EmptyProgram final : public IsolatedProgram {
 public:
  void run() override {}
  int report(const std::exception_ptr& /*error*/) override { return 1; }
};

TEST(SettingErrors, ProcessesWithoutTime) {
  EmptyProgram program;
  const Caught error = caught([&] { run_isolated(program, {.num_processes = 2, .timeout_s = 0}); });
  EXPECT_EQ(error.text,
            "run_isolated: the options are not valid\n"
            "  where:  <this line>\n"
            "  found:  2 processes, groups: 1, timeout 0 s\n"
            "  wanted: 1 to 256 processes, the same number in each group, and a timeout of 0.1 to "
            "1000000 s\n"
            "  cure:   set num_processes to a number that divides the devices of the mesh");
}

TEST(SettingErrors, ProcessesAfterThreads) {
  set_num_threads(2);
  (ones({4}) + 1).to_vector<float>();
  EmptyProgram program;
  const Caught error = caught([&] { run_isolated(program, {.num_processes = 2}); });
  EXPECT_EQ(error.text,
            "one process per device: this process has already started threads\n"
            "  where:  <this line>\n"
            "  found:  an array was computed before\n"
            "  wanted: a process that has computed nothing yet\n"
            "  cure:   start the processes first, and compute only inside them");
}

TEST(SettingErrors, NoPassOfThatName) {
  JitOptions options;
  options.passes.disabled = {"remove_everything"};
  const auto f = jit([](Array v) { return v + 1; }, options);
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text,
            "jit: the pass remove_everything does not exist\n"
            "  where:  <this line>\n"
            "  found:  remove_everything\n"
            "  wanted: move_transposes, add_updates_in_place, "
            "hoist_loop_invariants, move_products_out_of_loops, transpose_before_loops, "
            "remove_dead_code, "
            "merge_common_subexpressions, "
            "combine_collectives, join_attention_gradients, read_scanned_arrays, "
            "sink_into_loops, recompute_cheap_values\n"
            "  cure:   remove it from the disabled passes");
}

TEST(DataErrors, WindowsAreLongerThanTheText) {
  const std::string path = "tests/errors/inputs/short.txt";
  const std::string text = caught([&] { data::read_text(path, 8); }).text;
  EXPECT_EQ(text,
            "text: the file is too short\n"
            "  where:  <this line>\n"
            "  found:  tests/errors/inputs/short.txt with 43 bytes\n"
            "  wanted: at least 90 bytes, so that the last tenth is longer than a sequence\n"
            "  cure:   use a longer text or shorter sequences: --seq");
}

TEST(LayerErrors, StackedTwice) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope.stacked(2, none).stacked(2, none); });
  EXPECT_EQ(error.text,
            "nn::scan: layers cannot be stacked here\n"
            "  where:  <this line>\n"
            "  found:  a scope that already stacks layers\n"
            "  wanted: at least one layer, in a scope that is not itself scanned\n"
            "  cure:   pass .length = the number of layers, in the outermost nn::scan");
}

TEST(LayerErrors, BufferOfAnotherType) {
  nn::Buffer count = nn::Scope(Key(0)).buffer("count", zeros({}, DType::i32));
  const Caught error = caught([&] { count = ones({}); });
  EXPECT_EQ(error.text,
            "Buffer: the new value has a different type\n"
            "  where:  <this line>\n"
            "  found:  f32[] for buffer count\n"
            "  wanted: i32[]\n"
            "  cure:   convert it with astype, or reduce it to the shape of the buffer");
}

TEST(LayerErrors, GroupsOfUnequalSize) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::GroupNorm(scope, 48, 32); });
  EXPECT_EQ(error.text,
            "GroupNorm: the number of groups does not divide the features\n"
            "  where:  <this line>\n"
            "  found:  48 features, 32 groups\n"
            "  wanted: features that are a multiple of the number of groups\n"
            "  cure:   pass a number of groups that divides the features");
}

TEST(LayerErrors, TransposedConvolutionOfGroups) {
  const nn::Scope scope(Key(0));
  const nn::ConvOptions options{.kernel_size = {3, 3}, .strides = {2}, .feature_group_count = 2};
  const Caught error = caught([&] { nn::ConvTranspose(scope, 4, 4, options); });
  EXPECT_EQ(error.text,
            "ConvTranspose: the options are not those of a transposed convolution\n"
            "  where:  <this line>\n"
            "  found:  kernel_size [3,3], strides [2], kernel_dilation [], input_dilation [], "
            "groups: 2\n"
            "  wanted: strides and kernel_dilation with one entry per dimension of the kernel or "
            "empty, no input_dilation, one group\n"
            "  cure:   use strides to insert rows: .strides = {2, 2} doubles the size");
}

TEST(LayerErrors, PaddingOfATransposedConvolution) {
  const nn::Scope scope(Key(0));
  const nn::ConvOptions options{.kernel_size = {3}, .padding = "CIRCULAR"};
  const Caught error = caught([&] { nn::ConvTranspose(scope, 4, 4, options); });
  EXPECT_EQ(error.text,
            "ConvTranspose: the padding is not known\n"
            "  where:  <this line>\n"
            "  found:  \"CIRCULAR\"\n"
            "  wanted: \"SAME\", \"VALID\", or a pair of widths per dimension\n"
            "  cure:   choose \"SAME\" for an output that is larger by the strides");
}

TEST(LayerErrors, FeaturesOfAttention) {
  const nn::Scope scope(Key(0));
  const nn::AttentionOptions options{.num_heads = 2, .features = 8, .qkv_features = -4};
  const Caught error = caught([&] { nn::SelfAttention(scope, options); });
  EXPECT_EQ(error.text,
            "MultiHeadAttention: the numbers of features are not valid\n"
            "  where:  <this line>\n"
            "  found:  features = 8, qkv_features = -4, kv_features = 0\n"
            "  wanted: features of 1 or more; 0 or more for the others\n"
            "  cure:   leave qkv_features and kv_features out to use those of the layer");
}

TEST(SettingErrors, DeltaOfHuber) {
  const Array x = ones({2});
  EXPECT_EQ(caught([&] { huber_loss(x, 0.0, 0.0); }).text,
            "huber_loss: delta is not valid\n"
            "  where:  <this line>\n"
            "  found:  delta = 0\n"
            "  wanted: a number above 0\n"
            "  cure:   choose the error at which the loss becomes linear, such as 1");
}

TEST(ShapeErrors, LabelsOfAnotherShape) {
  metrics::Confusion confusion(3);
  const Array predictions = array({0, 1, 2}), labels = array({1});  // broadcasting would accept it
  EXPECT_EQ(caught([&] { confusion.update(predictions, labels); }).text,
            "metrics::Confusion: the labels do not match the predictions\n"
            "  where:  <this line>\n"
            "  found:  [1] for [3]\n"
            "  wanted: two arrays of the same shape\n"
            "  cure:   pass one label for each prediction");
}

TEST(OptimizerErrors, AverageOfAnotherModel) {
  const nn::Scope scope(Key(0));
  const nn::Dense with_bias(scope / "a", 2, 2), without(scope / "b", 2, 2, false);
  const Caught error = caught([&] { optim::incremental_update(with_bias, without, 0.1); });
  EXPECT_EQ(error.text,
            "incremental_update: the trees differ in structure\n"
            "  where:  <this line>\n"
            "  found:  1 leaves\n"
            "  wanted: 2 leaves\n"
            "  cure:   begin the average as a copy of the model");
}

TEST(OptimizerErrors, AverageOfAnotherShape) {
  const std::map<std::string, Array> now = {{"kernel", ones({2, 2})}},
                                     old = {{"kernel", ones({2})}};
  const Caught error = caught([&] { optim::incremental_update(now, old, 0.1); });
  EXPECT_EQ(error.text,
            "incremental_update: the average has another shape than the model\n"
            "  where:  <this line>\n"
            "  found:  f32[2] for parameter kernel\n"
            "  wanted: f32[2,2]\n"
            "  cure:   begin the average as a copy of the model");
}

TEST(OptimizerErrors, ParameterOfIntegers) {
  const std::map<std::string, Array> model = {{"count", array({1, 2})}};
  const TrainState<std::map<std::string, Array>> state(model, optim::sgd());
  const Caught error = caught([&] { std::ignore = state.apply_gradients(model); });
  EXPECT_EQ(error.text,
            "Optimizer: a parameter is not an array of floats\n"
            "  where:  <this line>\n"
            "  found:  i32[2] for parameter count\n"
            "  wanted: an array of floats\n"
            "  cure:   make it an nn::Buffer, which optimisers leave alone");
}

TEST(OptimizerErrors, GradientsOfOtherNames) {
  const std::map<std::string, Array> model = {{"bias", ones({2})}, {"kernel", ones({2})}};
  const std::map<std::string, Array> grads = {{"bias", ones({2})}, {"weight", ones({2})}};
  const TrainState<std::map<std::string, Array>> state(model, optim::sgd());
  const Caught error = caught([&] { std::ignore = state.apply_gradients(grads); });
  EXPECT_EQ(error.text,
            "apply_gradients: the maps in the trees have different keys\n"
            "  where:  <this line>\n"
            "  found:  key 'weight'\n"
            "  wanted: key 'kernel'\n"
            "  cure:   pass trees of the same structure");
}

TEST(OptimizerErrors, AverageOfOtherNames) {
  const std::map<std::string, Array> now = {{"kernel", ones({2})}}, old = {{"bias", ones({2})}};
  const Caught error = caught([&] { optim::incremental_update(now, old, 0.1); });
  EXPECT_EQ(error.text,
            "incremental_update: the maps in the trees have different keys\n"
            "  where:  <this line>\n"
            "  found:  key 'bias'\n"
            "  wanted: key 'kernel'\n"
            "  cure:   pass trees of the same structure");
}

TEST(LayerErrors, FeaturesOfAnotherNorm) {
  const nn::LayerNorm norm(nn::Scope(Key(0)) / "LayerNorm_0", 8);
  const Array x = ones({4, 1});  // broadcasting would accept it
  EXPECT_EQ(caught([&] { norm(x); }).text,
            "LayerNorm: the array has the wrong number of features\n"
            "  where:  <this line>\n"
            "  found:  f32[4,1] for parameter LayerNorm_0/scale of [8]\n"
            "  wanted: [.., 8]\n"
            "  cure:   construct the layer with the size of the last dimension");
  const nn::Scope scope(Key(0));
  const std::string what = ": the array has the wrong number of features\n";
  const auto begins = [&](const std::string& text, const char* layer) {
    EXPECT_EQ(text.substr(0, what.size() + std::string(layer).size()), layer + what);
  };
  begins(caught([&] { nn::RMSNorm(scope / "r", 8)(x); }).text, "RMSNorm");
  begins(caught([&] { nn::GroupNorm(scope / "g", 8, 4)(ones({4, 4})); }).text, "GroupNorm");
  begins(caught([&] { nn::BatchNorm(scope / "b", 8)(x); }).text, "BatchNorm");
  begins(caught([&] { nn::BatchNorm(scope / "t", 8)(x, nn::Mode::train()); }).text, "BatchNorm");
}

TEST(LayerErrors, GroupsOfChannelsDoNotDivide) {
  const nn::Scope scope(Key(0));
  const nn::ConvOptions options{.kernel_size = {3, 3}, .feature_group_count = 2};
  EXPECT_EQ(caught([&] { nn::Conv(scope / "conv", 3, 8, options); }).text,
            "Conv: the number of groups does not divide the channels\n"
            "  where:  <this line>\n"
            "  found:  3 inputs, 8 features, 2 groups\n"
            "  wanted: inputs and features that are multiples of feature_group_count\n"
            "  cure:   pass a number of groups that divides both");
  // A layer that is the whole model has no name, and so no line of its own.
  const Caught root = caught([&] { nn::Conv(nn::Scope(Key(0)), 3, 8, options); });
  EXPECT_NE(root.text.find("where:  <this line>"), std::string::npos) << root.text;
  const nn::ConvOptions none{.kernel_size = {3, 3}, .feature_group_count = 0};
  EXPECT_THROW(nn::ConvTranspose(scope / "up", 3, 8, none), UserError);
}

TEST(LayerErrors, SequencesOfNoBatch) {
  const nn::GRUCell cell(nn::Scope(Key(0)), 6, 3);
  const Array x = ones({4, 6});
  EXPECT_EQ(caught([&] { nn::rnn(cell, cell.initial_carry(4), x); }).text,
            "rnn: the array is not a batch of sequences\n"
            "  where:  <this line>\n"
            "  found:  f32[4,6]\n"
            "  wanted: [batch, time, inputs]\n"
            "  cure:   add a dimension with expand_dims, or reorder the dimensions with transpose");
}

TEST(LayerErrors, CarryOfAnotherBatch) {
  const nn::LSTMCell cell(nn::Scope(Key(0)), 6, 3);
  const Array x = ones({4, 2, 6});
  EXPECT_EQ(caught([&] { nn::rnn(cell, cell.initial_carry(3), x); }).text,
            "rnn: the carry does not match the batch\n"
            "  where:  <this line>\n"
            "  found:  f32[3,3]\n"
            "  wanted: [4, ..]\n"
            "  cure:   begin with cell.initial_carry(x.dim(0))");
}

TEST(LayerErrors, LengthsOfAnotherBatch) {
  const nn::LSTMCell cell(nn::Scope(Key(0)), 6, 3);
  const Array x = ones({4, 2, 6}), lengths = ones({4});
  EXPECT_EQ(caught([&] { nn::bidirectional(cell, cell, x, lengths); }).text,
            "rnn: the lengths do not match the batch\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: i32[4]\n"
            "  cure:   give the number of positions of each sequence");
}

TEST(LayerErrors, CacheOfALayerThatSeesAll) {
  const nn::AttentionOptions options{.num_heads = 2, .features = 4};
  const nn::SelfAttention layer(nn::Scope(Key(1)), options);
  nn::AttentionCache cache(1, 3, options);
  const Caught error = caught([&] { layer(ones({1, 1, 4}), cache); });
  EXPECT_EQ(error.text,
            "MultiHeadAttention: a cache requires causal attention\n"
            "  where:  <this line>\n"
            "  found:  is_causal = false\n"
            "  wanted: a causal layer\n"
            "  cure:   set is_causal in the options, or call the layer without a cache");
}

TEST(LayerErrors, CacheThatIsTooSmall) {
  const nn::AttentionOptions options{.num_heads = 2, .features = 4, .is_causal = true};
  const nn::SelfAttention layer(nn::Scope(Key(1)), options);
  nn::AttentionCache cache(1, 3, options);
  const Caught error = caught([&] { layer(ones({1, 4, 4}), cache); });
  EXPECT_EQ(
      error.text,
      "MultiHeadAttention: the cache does not match the layer and its input\n"
      "  where:  <this line>\n"
      "  found:  a cache of f32[1,3,2,2] for keys f32[1,4,2,2]\n"
      "  wanted: the batch, heads and dtype of the layer, and at least 4 positions\n"
      "  cure:   make it with the options of the layer: AttentionCache(batch, capacity, options)");
}

TEST(LayerErrors, SamplesOfNoProbability) {
  const Array logits = zeros({1, 4});
  const Caught error = caught([&] { nn::sample(Key(1), logits, {.top_p = 0}); });
  EXPECT_EQ(error.text,
            "sample: the options are not valid\n"
            "  where:  <this line>\n"
            "  found:  top_p = 0\n"
            "  wanted: a probability above 0 and at most 1\n"
            "  cure:   choose 1 for all tokens");
}

TEST(LayerErrors, SamplesOfNegativeTemperature) {
  const Array logits = zeros({1, 4});
  const Caught error = caught([&] { nn::sample(Key(1), logits, {.temperature = -1}); });
  EXPECT_EQ(error.text,
            "sample: the options are not valid\n"
            "  where:  <this line>\n"
            "  found:  temperature = -1\n"
            "  wanted: a number of at least 0\n"
            "  cure:   choose 1 for the probabilities of the model, 0 for the most likely token");
}

TEST(LayerErrors, SamplesOfNegativelyManyTokens) {
  const Array logits = zeros({1, 4});
  const Caught error = caught([&] { nn::sample(Key(1), logits, {.top_k = -2}); });
  EXPECT_EQ(error.text,
            "sample: the options are not valid\n"
            "  where:  <this line>\n"
            "  found:  top_k = -2\n"
            "  wanted: a number of at least 0\n"
            "  cure:   choose 0 for all tokens");
}

}  // namespace
}  // namespace tessera
