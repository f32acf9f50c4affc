// Who is to blame for the end of a run, and who reports it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/transport/notes.h"

namespace tessera::run {

struct Verdict {
  Finding finding;
  int teller = 0;            // a rank with this finding
  bool is_reporter = false;  // this process reports it
  /// If the teller has diverged itself: the rank whose message it did not expect, otherwise -1.
  int sender = -1;
};

/// Processes that know the same findings come to the same verdict. `findings` has an entry per
/// rank; the entry of `own` must be set.
Verdict verdict_of(const std::vector<std::optional<Finding>>& findings, int own);

/// If processes wait for each other in a cycle: the one that has diverged, and how. Beats are given
/// per rank; without one, nothing is known of the rank. Nobody is stuck for less than
/// `least_stuck_ms`.
std::optional<Finding> deadlock_of(const std::vector<std::optional<Beat>>& beats, int own,
                                   std::uint32_t least_stuck_ms,
                                   const std::function<std::string(int)>& name);

}  // namespace tessera::run
