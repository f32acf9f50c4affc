// ARCHITECTURE.md shows a program after each stage. This test checks that what it shows is correct.
// TESSERA_UPDATE_DOCS=1 rewrites it.

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <tessera/tessera.h>

#include "tests/cases/source_dir.h"

namespace tessera {
namespace {

const std::string kPath = source_dir() / "ARCHITECTURE.md";

std::string read_file() {
  std::ifstream file(kPath);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Removes source positions, which change whenever this file is edited.
std::string without_spans(const std::string& ir) {
  std::stringstream in(ir);
  std::string out;
  for (std::string line; std::getline(in, line);) out += line.substr(0, line.find("  #")) + "\n";
  return out;
}

/// Replaces the text between the code fences that follow the marker `<!-- name -->`.
std::string with_block(const std::string& text, const std::string& name, const std::string& block) {
  const std::size_t marker = text.find("<!-- " + name + " -->");
  const std::size_t begin = text.find("```\n", marker) + 4;
  const std::size_t end = text.find("```", begin);
  if (marker == std::string::npos || end == std::string::npos) return text + "no marker " + name;
  return text.substr(0, begin) + block + text.substr(end);
}

TEST(Architecture, ShowsWhatTheStagesDo) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const use_mesh scope(mesh);
  auto step = jit([](Array w, Array x) {
    auto [loss, grad_w] =
        value_and_grad([&](const Array& weights) { return mean(square(dot(x, weights))); })(w);
    return std::tuple(w - grad_w * 0.1, loss);
  });
  const Array w = device_put(ones({4, 3}), P{});
  const Array x = device_put(ones({8, 4}), P{"data"});
  const auto lowered = step.lower(w, x);
  const std::string text = read_file();
  std::string wanted = with_block(text, "traced", without_spans(lowered.ir()));
  wanted = with_block(wanted, "partitioned", without_spans(lowered.partitioned_ir()));
  if (std::getenv("TESSERA_UPDATE_DOCS") != nullptr) std::ofstream(kPath) << wanted;
  EXPECT_EQ(text, wanted) << "run with TESSERA_UPDATE_DOCS=1 to rewrite ARCHITECTURE.md";
}

}  // namespace
}  // namespace tessera
