// docs/ops.md must match the op table. TESSERA_UPDATE_DOCS=1 rewrites it.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/cases/source_dir.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

std::string dtypes_text(ops::TypeSet set) {
  switch (set) {
    case ops::TypeSet::boolean:
      return "booleans";
    case ops::TypeSet::integers:
      return "integers";
    case ops::TypeSet::wide_floats:
      return "f32, f64";
    case ops::TypeSet::floats:
      return "floats";
    case ops::TypeSet::numbers:
      return "integers, floats";
    case ops::TypeSet::wide_numbers:
      return "integers, f32, f64";
    case ops::TypeSet::bits:
      return "booleans, integers";
    default:
      return "all";
  }
}

std::string derivative_text(const ops::OpRecord& op) {
  return op.vjp.is_differentiable() ? "" : " Not differentiable: " + op.vjp.why_not() + ".";
}

std::string entry(const ops::OpRecord& op) {
  const ir::Function example = testing::function_of(op, op.samples->front());
  const ir::Equation& equation = example.equations[0];
  const ops::Factors factors =
      (*op.factors)(equation.attributes, ir::operand_types(example, equation),
                    ir::result_types(example, equation));
  std::string text = "## " + *op.name;
  std::string names;
  for (const std::string& name : *op.attributes) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) text += "[" + names + "]";
  text += "\n" + *op.doc + derivative_text(op) + "\n\n";
  for (const std::string& name : op.optional_attributes) {
    text += "- Optional attribute: `" + name + "`\n";
  }
  text += "- Dtypes: " + dtypes_text(*op.types);
  if (op.num_typed != 0) text += " for the first " + std::to_string(op.num_typed) + " operands";
  text += "\n";
  text += "- Factors: `" + to_string(factors) + "` for ";
  std::string operands;
  for (const Type& type : ir::operand_types(example, equation)) {
    operands += (operands.empty() ? "" : ", ") + to_string(type);
  }
  text += (operands.empty() ? "no operands" : operands) + " -> ";
  std::string results;
  for (const Type& type : ir::result_types(example, equation)) {
    results += (results.empty() ? "" : ", ") + to_string(type);
  }
  return text + results + "\n- Source: " + *op.source + "\n\n";
}

std::string document() {
  std::string text =
      "# Ops\n\nWritten by `TESSERA_UPDATE_DOCS=1 ctest -R ops_conformance_test` from the table in "
      "`src/ops`.\nFactors read like einsum: dimensions with the same letter are split together; "
      "`sum`, `max`, ... are\nreductions along a letter, and `whole` letters are never split. "
      "A dimension in brackets is read in windows:\n`[2a+b-1]` means that index a, b reads row "
      "2a + b - 1, `[2a+0:3]` that index a reads three rows from 2a on,\nand `[(a-1)/2]` that "
      "index "
      "a reads row (a - 1) / 2 if it is an integer. Neighbours exchange the rows\nthat their "
      "shards "
      "lack.\n\n";
  for (const ops::OpRecord* op : ops::all_ops()) text += entry(*op);
  text.pop_back();
  return text;
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Docs, SayWhatTheTableSays) {
  const std::string path = source_dir() / "docs/ops.md";
  if (std::getenv("TESSERA_UPDATE_DOCS") != nullptr) std::ofstream(path) << document();
  EXPECT_EQ(text_of(path), document()) << "run with TESSERA_UPDATE_DOCS=1 to write " << path;
}

TEST(Docs, CountTheOps) {
  const std::string row = "| ops | " + std::to_string(ops::all_ops().size()) + ", each ";
  EXPECT_NE(text_of(source_dir() / "README.md").find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace tessera
