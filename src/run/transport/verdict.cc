#include "run/transport/verdict.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include <tessera/error.h>

namespace tessera::run {

namespace {

/// The rank that most processes blame for this reason; if two are blamed by equally many, the one
/// that the first process blames. A process whose exception was thrown blames itself.
int culprit_of(const std::vector<std::optional<Finding>>& findings, Reason reason) {
  std::map<int, int> votes;
  int best = -1;
  for (const auto& finding : findings) {
    if (finding && finding->reason == reason) ++votes[finding->culprit];
  }
  for (const auto& finding : findings) {
    if (!finding || finding->reason != reason) continue;
    if (best < 0 || votes[finding->culprit] > votes[best]) best = finding->culprit;
  }
  return best;
}

/// If two ranks see each other in different collectives, the one whose collective fewer ranks are
/// in has diverged.
bool is_teller_guilty(const std::vector<std::optional<Finding>>& findings, std::size_t teller,
                      int culprit) {
  const auto& other = findings[static_cast<std::size_t>(culprit)];
  const auto& mine = findings[teller];
  if (!other || other->where.empty() || other->where == mine->where) return false;
  const auto count = [&](const std::string& where) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const auto& finding) { return finding && finding->where == where; });
  };
  const auto with_teller = count(mine->where);
  const auto with_other = count(other->where);
  // If there are only two ranks, the second one: then it does not matter which of them noticed it
  // first.
  return with_teller < with_other ||
         (with_teller == with_other && static_cast<int>(teller) > culprit);
}

}  // namespace

Verdict verdict_of(const std::vector<std::optional<Finding>>& findings, int own) {
  const std::optional<Finding>& mine = findings[static_cast<std::size_t>(own)];
  require(mine.has_value(), "a process that ends knows something");
  Reason reason = Reason::told;
  for (const auto& finding : findings) {
    if (finding) reason = std::max(reason, finding->reason);
  }
  Verdict verdict{.finding = *mine, .teller = own, .is_reporter = false};
  const int culprit = culprit_of(findings, reason);
  const auto teller = std::find_if(findings.begin(), findings.end(), [&](const auto& finding) {
    return finding && finding->reason == reason && finding->culprit == culprit;
  });
  if (teller == findings.end()) return verdict;
  verdict.finding = **teller;
  verdict.teller = static_cast<int>(teller - findings.begin());
  verdict.is_reporter = verdict.teller == own;
  if (reason == Reason::diverged &&
      is_teller_guilty(findings, static_cast<std::size_t>(verdict.teller), culprit)) {
    verdict.finding.culprit = verdict.teller;
    verdict.sender = culprit;
    return verdict;
  }
  if (reason == Reason::failed && mine->reason == Reason::failed) {
    // Processes may fail for different reasons at once, or all for the same one.
    verdict.is_reporter = std::none_of(
        findings.begin(), findings.begin() + own, [&](const std::optional<Finding>& finding) {
          return finding && finding->reason == reason && finding->text_hash == mine->text_hash;
        });
  }
  // What this process has seen itself, it reports best itself.
  if (mine->reason == reason && mine->culprit == culprit) {
    verdict.finding = *mine;
    verdict.teller = own;
  }
  return verdict;
}

std::optional<Finding> deadlock_of(const std::vector<std::optional<Beat>>& beats, int own,
                                   std::uint32_t least_stuck_ms,
                                   const std::function<std::string(int)>& name) {
  const auto beat = [&](int rank) -> const Beat& { return *beats[static_cast<std::size_t>(rank)]; };
  std::vector<int> path;
  int at = own;
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    const auto& known = beats[static_cast<std::size_t>(at)];
    if (!known || known->waits_for < 0 || known->stuck_ms < least_stuck_ms) return std::nullopt;
    path.push_back(at);
    at = known->waits_for;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  // The process that has diverged is in a collective that fewer processes are in.
  std::map<std::uint64_t, int> count;
  for (const auto& each : beats) {
    if (each && each->waits_for >= 0) ++count[each->collective];
  }
  int culprit = path.front();
  for (const int rank : path) {
    const int mine = count[beat(rank).collective];
    const int least = count[beat(culprit).collective];
    if (mine < least || (mine == least && rank > culprit)) culprit = rank;
  }
  const auto waiter = std::find_if(path.begin(), path.end(),
                                   [&](int rank) { return beat(rank).waits_for == culprit; });
  return Finding{
      .reason = Reason::diverged,
      .culprit = culprit,
      .text = fmt::format("has diverged: it waits for {} in {}, and {} waits for it in {}",
                          name(beat(culprit).waits_for), beat(culprit).where, name(*waiter),
                          beat(*waiter).where),
      .where = {},
      .text_hash = 0};
}

}  // namespace tessera::run
