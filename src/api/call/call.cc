// Calling a program: check and move arguments, run, wrap results.
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/jit.h>

#include "api/call/donation.h"
#include "api/program.h"

namespace tessera::detail {

namespace {

[[noreturn]] void report_other_arguments(const std::string& what, const std::string& found,
                                         const std::string& wanted, const Span& where) {
  throw UserError({.what = "the call does not match the compiled program: " + what,
                   .where = where,
                   .found = found,
                   .wanted = wanted,
                   .cure = "pass arguments with the types and shardings of those given to lower(), "
                           "or call the jitted function, which compiles again when they change"});
}

/// The tiles of an argument, moved to the placement that the program expects.
Tiled argument_tiles(const Program& program, std::size_t i, const Array& array, const Span& where) {
  Tiled tiles = tiles_of(array, where);
  const PlacementPtr& to = program.inputs[i];
  const Placement& wanted = *to;
  const Placement& found = *tiles.placement;
  if (&found == &wanted) return tiles;
  const std::string subject =
      i < program.paths->size() ? "argument " + program.paths->at(i) : "captured array";
  if (found.type != wanted.type) {
    report_other_arguments("the type of " + subject, to_string(found.type), to_string(wanted.type),
                           where);
  }
  if (!found.mesh.axes().empty()) {
    report_other_arguments("the sharding of " + subject,
                           fmt::format("{} on {}", to_string(to_spec(found.mesh, found.sharding)),
                                       to_string(found.mesh)),
                           fmt::format("{} on {}", to_string(to_spec(wanted.mesh, wanted.sharding)),
                                       to_string(wanted.mesh)),
                           where);
  }
  return move_tiles(tiles, to, "placing an argument", where);
}

/// The leaves of the arguments, moved to the placements that the program expects.
std::vector<Tiled> argument_leaves(const Program& program, const Walk& arguments,
                                   const Span& where) {
  if (arguments.structure() != program.structure) {
    report_other_arguments(
        "the structure of the arguments",
        fmt::format("number of leaves: {}", arguments.leaves().size()),
        fmt::format("number of leaves: {}, the same static fields and parameters",
                    program.paths->size()),
        where);
  }
  std::vector<Tiled> leaves;
  leaves.reserve(program.inputs.size());
  for (const Walk::Leaf& leaf : arguments.leaves()) {
    leaves.push_back(argument_tiles(program, leaves.size(), *leaf.array, where));
  }
  return leaves;
}

}  // namespace

Outcome run(const std::shared_ptr<Program>& program, const Walk& arguments,
            const std::source_location& where) {
  const Span span(where);
  std::vector<Tiled> inputs = argument_leaves(*program, arguments, span);
  for (const Array& array : program->captured) {
    inputs.push_back(argument_tiles(*program, inputs.size(), array, span));
  }
  Donation donation(*program, arguments, span);
  compile(*program);
  const std::unique_lock<std::mutex> memory = check_memory(*program, span);
  return {program->result, execute(*program, std::move(inputs), donation)};
}

Outcome place(const std::shared_ptr<Program>& program, const Walk& arguments,
              const std::source_location& where) {
  std::vector<Tiled> leaves = argument_leaves(*program, arguments, Span(where));
  lower(*program);
  std::vector<Array> placed;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Tiled leaf = std::move(leaves[i]);
    if (program->pipeline) leaf = bring_input(*program, i, std::move(leaf));
    placed.push_back(make_concrete(leaf.placement, std::move(leaf.tiles), leaf.groups));
    placed.back().node()->info = program->input_infos[i];
  }
  return {nullptr, std::move(placed)};
}

}  // namespace tessera::detail
