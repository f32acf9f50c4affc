#include "read_program.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <tessera/error.h>

#include "ir/text.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"

namespace tessera::opt {

namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

[[noreturn]] void unreadable(const std::string& file, const std::string& found,
                             const std::string& wanted) {
  throw UserError({.what = "FILE: the program cannot be read",
                   .found = (file == "-" ? "standard input" : file) + ": " + found,
                   .wanted = wanted,
                   .cure = "check the path; - is standard input"});
}

}  // namespace

std::string read_file(const std::string& file) {
  auto close = [](std::FILE* f) {
    if (f != stdin) std::fclose(f);
  };
  const std::unique_ptr<std::FILE, decltype(close)> stream(
      file == "-" ? stdin : std::fopen(file.c_str(), "rb"), close);
  if (stream == nullptr) unreadable(file, std::strerror(errno), "a file of IR text");
  std::string text;
  char block[1 << 14];
  while (const std::size_t count = std::fread(block, 1, sizeof(block), stream.get())) {
    text.append(block, count);
    if (text.size() > kMostBytes) unreadable(file, "more than 64 MiB", "at most 64 MiB");
  }
  if (std::ferror(stream.get()) != 0) unreadable(file, std::strerror(errno), "a file of IR text");
  return text;
}

bool is_bytecode(const std::string& bytes) { return bytes.starts_with("ML\xefR"); }

namespace {

/// Replaces the mesh in the text. The shardings in the text name axes, so they stay valid for any
/// mesh that has these axes.
std::string with_mesh(const std::string& text, const std::string& mesh) {
  try {
    parse_mesh(mesh, std::source_location());
  } catch (const UserError& error) {
    Mistake mistake = error.mistake();
    mistake.what = "--mesh" + mistake.what.substr(mistake.what.find(": "));
    throw UserError(std::move(mistake));
  }
  const std::string key = "mesh=\"";
  const std::size_t begin = text.find(key);
  const std::size_t end = begin == std::string::npos ? begin : text.find('"', begin + key.size());
  if (end == std::string::npos) return text;
  return text.substr(0, begin + key.size()) + mesh + text.substr(end);
}

}  // namespace

ir::Function program_of(std::string bytes, const std::string& mesh) {
  if (is_bytecode(bytes)) {
    const auto module = stablehlo::bytecode::read_module(std::move(bytes));
    ir::Function function = stablehlo::import_module(*module).function;
    if (mesh.empty()) return function;
    bytes = ir::print(function);
  }
  return ir::parse(mesh.empty() ? bytes : with_mesh(bytes, mesh));
}

}  // namespace tessera::opt
