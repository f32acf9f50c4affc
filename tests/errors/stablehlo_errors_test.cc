// Files that are not StableHLO modules, and damaged modules.
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"
#include "tests/cases/source_dir.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

using namespace std::string_literals;

std::string error_of(const std::string& bytes) {
  return caught([&] { stablehlo::bytecode::read_module(bytes); }).text;
}

/// A module of a constant of three numbers, with `from` replaced by `to`.
std::string module_with(const std::string& from, const std::string& to) {
  std::ifstream in(source_dir() / "tests/stablehlo/bytecode/modules/special_constants.mlirbc",
                   std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!from.empty()) bytes.replace(bytes.find(from), from.size(), to);
  return bytes;
}

const std::string kHeader = "ML\xefR\x0dStableHLO_v1.13.0\0"s;

TEST(StableHloErrors, TheModuleItselfIsRight) {
  EXPECT_EQ(error_of(module_with("", "")), "no error");
}

TEST(StableHloErrors, Text) {
  EXPECT_EQ(error_of("module @jit_f {}"),
            "stablehlo: this is not MLIR bytecode\n"
            "  found:  16 bytes that do not start with the signature of MLIR bytecode\n"
            "  wanted: portable StableHLO bytecode\n"
            "  cure:   write jax.export.export(jitted)(...).mlir_module_serialized to a file, in "
            "binary mode; text has no stable format");
}

TEST(StableHloErrors, NewerRelease) {
  EXPECT_EQ(error_of(module_with("v1.13.0", "v1.23.0")),
            "stablehlo: the version of the module is not supported\n"
            "  found:  StableHLO_v1.23.0, bytecode version 6\n"
            "  wanted: at most StableHLO_v1.22.0, bytecode version 6\n"
            "  cure:   write the module for an older release: "
            "serialize_portable_artifact(module, \"1.13.0\")");
}

TEST(StableHloErrors, AnEndIsMissing) {
  EXPECT_EQ(error_of(kHeader + "\x01\xc9"),
            "stablehlo: the module is damaged\n"
            "  found:  100 bytes expected, but only 0 left in the section, at byte 25\n"
            "  wanted: portable StableHLO bytecode\n"
            "  cure:   export the program again, and copy the file in binary mode");
}

TEST(StableHloErrors, ASectionIsMissing) {
  EXPECT_EQ(error_of(kHeader),
            "stablehlo: the module is damaged\n"
            "  found:  no section 0, at byte 23\n"
            "  wanted: portable StableHLO bytecode\n"
            "  cure:   export the program again, and copy the file in binary mode");
}

TEST(StableHloErrors, AListIsLongerThanTheFile) {
  EXPECT_EQ(error_of(kHeader + std::string("\x00\x05\xff\x01", 4)),
            "stablehlo: the module is damaged\n"
            "  found:  a list of 127 elements in 1 bytes, at byte 25\n"
            "  wanted: portable StableHLO bytecode\n"
            "  cure:   export the program again, and copy the file in binary mode");
}

TEST(StableHloErrors, AnOperationThatDoesNotExist) {
  EXPECT_EQ(error_of(module_with("constant_v1", "constant_v9")),
            "stablehlo: the module is not portable\n"
            "  found:  the operation vhlo.constant_v9\n"
            "  wanted: the dialects vhlo, sdy and builtin as JAX writes them\n"
            "  cure:   write it with jax.export.export(jitted)(...).mlir_module_serialized or "
            "serialize_portable_artifact");
}

TEST(StableHloErrors, ADialectOfAnotherProgram) {
  EXPECT_EQ(error_of(module_with("vhlo", "mhlo")),
            "stablehlo: the module is not portable\n"
            "  found:  the operation mhlo.func_v1\n"
            "  wanted: the dialects vhlo, sdy and builtin as JAX writes them\n"
            "  cure:   write it with jax.export.export(jitted)(...).mlir_module_serialized or "
            "serialize_portable_artifact");
}

/// The importer's error for a committed module.
std::string import_error_of(const std::string& name) {
  std::ifstream in(source_dir() / "tests/stablehlo/bytecode/modules" / (name + ".mlirbc"),
                   std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto module = stablehlo::bytecode::read_module(std::move(bytes));
  return caught([&] { stablehlo::import_module(*module); }).text;
}

TEST(StableHloErrors, AFunctionThatTheIrLacks) {
  EXPECT_EQ(import_error_of("hessenberg"),
            "stablehlo: this use of vhlo.custom_call_v1 is not supported\n"
            "  where:  programs.py:552\n"
            "  found:  the function lapack_sgehrd_ffi, (tensor<4x4xf32>) -> (tensor<4x4xf32>, "
            "tensor<3xf32>, tensor<i32>)\n"
            "  wanted: the operations that docs/stablehlo.md lists\n"
            "  cure:   rewrite this line of the program with other functions");
}

TEST(StableHloErrors, AProgramForSeveralShapes) {
  EXPECT_EQ(import_error_of("symbolic_shape"),
            "stablehlo: the shapes of the program are not fixed\n"
            "  found:  a value of type tensor<?x3xf32>\n"
            "  wanted: a program for arrays of certain shapes\n"
            "  cure:   export it with arguments of fixed shapes, without "
            "jax.export.symbolic_shape");
}

TEST(StableHloErrors, AComparisonInAWeakOrder) {
  EXPECT_EQ(import_error_of("weak_order"),
            "stablehlo: this use of vhlo.compare_v1 is not supported\n"
            "  where:  -:7\n"
            "  found:  comparisons in a weak order, (tensor<3xf32>, tensor<3xf32>) -> "
            "(tensor<3xi1>)\n"
            "  wanted: the operations that docs/stablehlo.md lists\n"
            "  cure:   rewrite this line of the program with other functions");
}

}  // namespace
}  // namespace tessera
