#include "tests/fuzz/corpus.h"

#include "ir/text.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"
#include "tests/fuzz/case.h"

namespace tessera::fuzz {

std::vector<std::string> ir_texts(int num_random) {
  std::vector<std::string> texts;
  auto add = [&](const std::string& text) {
    if (text.find("function") != std::string::npos) texts.push_back(text);
  };
  const std::filesystem::path folder = source_dir() / "tests/golden";
  for (const std::filesystem::path& path : testing::case_files(folder)) {
    const testing::CaseFile c = testing::read_case(path);
    add(c.stdin_text);
    add(c.stdout_text);
  }
  for (int i = 0; i < num_random; ++i) {
    const Case c = make_case(static_cast<std::uint64_t>(i));
    const ir::Function program = program_of(c);
    add(ir::print(program));
    add(ir::print(testing::partition_verified(program, c.placed)));
  }
  return texts;
}

}  // namespace tessera::fuzz
