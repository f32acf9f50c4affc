// Continues a text with GPT-2 in the layout of Hugging Face: example_gpt2 FOLDER TEXT [TOKENS]

#include <cstdio>
#include <cstdlib>

#include <tessera/data.h>

#include "config.h"
#include "generate.h"
#include "weights.h"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc < 3) {
    std::fputs("usage: example_gpt2 FOLDER TEXT [TOKENS]\n", stderr);
    return 1;
  }
  const std::string folder = argv[1];
  const std::int64_t tokens = argc > 3 ? std::atoi(argv[3]) : 20;
  try {
    const gpt2::Config config = gpt2::read_config(folder);
    const gpt2::GPT2 model = gpt2::read_weights(folder, config);
    const data::BytePairTokenizer tokenizer(folder + "/vocab.json", folder + "/merges.txt");
    gpt2::Generator generator(model, config, {tokenizer.encode(argv[2])},
                              {.tokens = tokens, .sampling = {.temperature = 0}});
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(generator.next()[0]);
    for (const std::int32_t id : ids) std::printf("%d ", id);
    std::printf("\n%s%s\n", argv[2], tokenizer.decode(ids).c_str());
    return 0;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
