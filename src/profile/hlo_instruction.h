// Instructions and computations of an HLO module, with only the fields that are written here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::profile {

struct HloDot {
  std::vector<std::int64_t> lhs_contract, rhs_contract, lhs_batch, rhs_batch;
};

struct HloInstruction {
  std::int64_t id = 0;
  std::string name = {};
  std::string opcode = {};
  std::string target = {};  // of a custom call
  std::vector<Type> types = {};
  bool is_tuple = false;
  std::vector<std::int64_t> operands = {};
  std::vector<std::int64_t> called = {};  // computations
  std::string op_name = {};
  std::string op_type = {};
  Span where = {};
  std::int64_t parameter = -1;
  std::int64_t tuple_index = -1;
  std::vector<std::int64_t> dimensions = {};
  std::vector<std::vector<std::int64_t>> slices = {};  // start, limit, stride
  std::string comparison = {};
  HloDot dot = {};
  bool has_value = false;
  double value = 0;                                    // of a constant
  std::vector<std::vector<std::int64_t>> groups = {};  // of devices
  bool is_channel = false;
};

struct HloComputation {
  std::int64_t id = 0;
  std::string name = {};
  std::vector<HloInstruction> instructions = {};  // operands first; the last one is the result
};

/// The serialized messages HloComputationProto and ProgramShapeProto of a computation.
std::string to_message(const HloComputation& computation);
std::string program_shape(const HloComputation& computation);

}  // namespace tessera::profile
