#include "checkpoint/processes.h"

#include <algorithm>
#include <exception>
#include <map>
#include <vector>

#include <tessera/engine.h>
#include <tessera/error.h>

namespace tessera::checkpoint {

namespace {

constexpr std::size_t kShownProcesses = 8;

/// Waits until all processes have received the values of the previous all_gather. A process that
/// throws closes its connections, which would make that all_gather fail in the others. Returns
/// false if a process has thrown already.
bool wait_for_all() {
  try {
    process_allgather(1);
    return true;
  } catch (const RuntimeFault&) {
    return false;
  }
}

std::string text_of(const std::exception_ptr& failure) {
  if (!failure) return "";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Rethrows the failure of this process. All processes usually find the same UserError, and only
/// the first process reports it. If the first process found no error, a UserError of another
/// process becomes a RuntimeFault, which that process reports.
[[noreturn]] void throw_own(const std::exception_ptr& failure, bool has_first_failed) {
  try {
    std::rethrow_exception(failure);
  } catch (const UserError& error) {
    if (has_first_failed) throw;
    throw RuntimeFault(error.what());
  }
}

/// "process 3", "processes 0, 1 and 2"
std::string text_of(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "process " : "processes ";
  const std::size_t shown = std::min(ranks.size(), kShownProcesses);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += (i == 0 ? "" : is_last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

}  // namespace

void all_or_none(const std::function<void()>& body) {
  if (process_count() == 1) return body();
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::vector<std::int64_t> failed = process_allgather(failure ? 1 : 0);
  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return;
  const std::vector<std::string> texts = process_allgather(text_of(failure));
  wait_for_all();
  if (failure) throw_own(failure, first == failed.begin());
  const std::int64_t rank = first - failed.begin();
  throw RuntimeFault("process " + std::to_string(rank) + ": " +
                     texts[static_cast<std::size_t>(rank)]);
}

void agree_on(const std::optional<std::int64_t>& step, const std::string& folder) {
  if (process_count() == 1) return;
  const std::vector<std::int64_t> found = process_allgather(step.value_or(-1));
  std::map<std::int64_t, std::vector<std::size_t>> ranks;
  for (std::size_t rank = 0; rank < found.size(); ++rank) ranks[found[rank]].push_back(rank);
  if (ranks.size() == 1) return;
  std::string text;
  for (const auto& [number, finders] : ranks) {
    text += (text.empty() ? "" : ", ") +
            (number < 0 ? std::string("no checkpoint") : "step " + std::to_string(number)) +
            " by " + text_of(finders);
  }
  const RuntimeFault fault("the processes do not see the same checkpoints in " + folder + ": " +
                           text);
  wait_for_all();
  throw fault;
}

}  // namespace tessera::checkpoint
