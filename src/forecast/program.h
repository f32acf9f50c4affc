// What one device does in a step: a list of items, each with its cost and the items whose results
// it reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/profile.h>

#include "forecast/cost.h"
#include "run/executable.h"

namespace tessera::forecast {

struct Program;

/// A nested function that runs several times, one run after the other.
struct Rounds {
  std::shared_ptr<const Program> program;
  std::int64_t count = 1;
};

struct Item {
  enum class Kind : std::uint8_t {
    compute,
    collective,  // all devices of the group take part at the same time
    send,        // of a transfer to group `peer`
    receive,     // of a transfer from group `peer`
    control,     // computes and communicates by its rounds
  };
  Kind kind = Kind::compute;
  std::string name;
  Span where = {};
  double seconds = 0;  // of compute
  double flops = 0;
  double bytes = 0;
  Exchange exchange = {};  // of collectives and transfers
  int peer = -1;
  std::vector<std::uint32_t> after = {};  // items whose results it reads; all come before it
  std::vector<Rounds> rounds = {};
};

/// Items in program order.
struct Program {
  std::vector<Item> items;
  bool communicates = false;  // has collectives, also nested ones
};

/// Whether items of this kind use the links.
inline bool is_exchange(const Item& item) {
  return item.kind != Item::Kind::compute && item.kind != Item::Kind::control;
}
/// Whether the item has a place in the order of collectives.
bool has_collectives(const Item& item);

/// The program of an executable that was compiled for one device of `group`. What an item reads is
/// known from Executable::source: nothing waits for memory to be reused. For a cond, the most
/// expensive branch counts; a while loop counts as one iteration.
Program program_of(const run::Executable& executable, std::int64_t group, const Cluster& cluster);

}  // namespace tessera::forecast
