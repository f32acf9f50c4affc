// The folder of a model in Hugging Face's layout, as the commands of GPT-2 read it.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/data.h>

#include "tools/cli/command.h"

namespace tessera::cli {

/// The text of a file in the folder; throws UserError if it cannot be read.
std::string read_folder_file(const std::string& folder, const std::string& name);
/// The tokenizer of the folder. Throws UserError if the model, which has `vocab` tokens, does not
/// know all of its tokens.
data::BytePairTokenizer read_tokenizer(const std::string& folder, std::int64_t vocab);

/// `tessera generate gpt2`.
void add_generate_gpt2(Command& generate);

}  // namespace tessera::cli
