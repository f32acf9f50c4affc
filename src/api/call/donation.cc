#include "api/call/donation.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>
#include <unordered_map>

#include <tessera/error.h>

#include "run/lent_memory.h"

namespace tessera::detail {

Donation::Donation(const Program& program, const Walk& arguments, const Span& where) {
  std::unordered_map<const ArrayNode*, std::size_t> seen;
  for (std::size_t i = 0; i < arguments.leaves().size(); ++i) {
    if (!program.is_donated[i]) continue;
    const NodePtr& node = arguments.leaves()[i].array->node();
    const auto [first, is_new] = seen.try_emplace(node.get(), i);
    if (!is_new) {
      throw UserError(
          {.what = "an array was donated twice in one call",
           .where = where,
           .found = fmt::format("arguments {} and {}", program.paths->at(first->second),
                                program.paths->at(i)),
           .wanted = "different arrays",
           .cure =
               "copy the array for one of the arguments, for example x + 0, or do not donate it"});
    }
    gifts_.push_back({.node = node, .leaf = i, .lent = {}});
  }
  if (gifts_.empty()) return;
  call_ = std::make_shared<DonatingCall>();
  call_->paths = program.paths;
  call_->where = where;
}

/// Drops the nodes' references to the tiles in `inputs`, because the engine overwrites only tiles
/// that have a single owner. The nodes keep all other tiles.
void Donation::take(std::vector<run::Tiles>& inputs) {
  const std::lock_guard<std::mutex> lock(donation_mutex());
  for (Gift& gift : gifts_) {
    fail_if_donated(*gift.node, call_->where);  // another thread may have donated it meanwhile
    for (const run::BufferPtr& tile : gift.node->tiles) {
      const run::Tiles& input = inputs[gift.leaf];
      const auto place = std::find(input.begin(), input.end(), tile);
      gift.lent.push_back(place == input.end() ? -1 : place - input.begin());
      if (run::is_lent(*tile)) kept_.push_back(tile);
    }
  }
  for (const Gift& gift : gifts_) {
    gift.node->donation = call_;
    gift.node->donated_leaf = gift.leaf;
    for (std::size_t tile = 0; tile < gift.lent.size(); ++tile) {
      if (gift.lent[tile] >= 0) gift.node->tiles[tile].reset();
    }
  }
}

void Donation::give_back(const std::vector<run::Tiles>& inputs) noexcept {
  const std::lock_guard<std::mutex> lock(donation_mutex());
  for (Gift& gift : gifts_) {
    if (gift.node->donation != call_) continue;
    for (std::size_t tile = 0; tile < gift.lent.size(); ++tile) {
      if (gift.lent[tile] < 0) continue;
      gift.node->tiles[tile] = inputs[gift.leaf][static_cast<std::size_t>(gift.lent[tile])];
    }
    gift.node->donation = nullptr;
  }
}

void Donation::let_go() noexcept {
  const std::lock_guard<std::mutex> lock(donation_mutex());
  for (const Gift& gift : gifts_) gift.node->tiles.clear();
}

void Donation::give_away() {
  if (gifts_.empty()) return;
  std::vector<run::Tiles> none(gifts_.back().leaf + 1);
  take(none);
  let_go();
}

/// Throws the fault of a program that failed after it had started.
void Donation::report_lost(const std::string& fault) const {
  throw RuntimeFault(
      fmt::format("{}; these arguments were donated to the call and are lost: {}", fault, names()));
}

/// `0/params/kernel, 0/params/bias, 0/step and 17 more`.
std::string Donation::names() const {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, gifts_.size()); ++i) {
    text += (i == 0 ? "" : ", ") + call_->paths->at(gifts_[i].leaf);
  }
  if (gifts_.size() > kMost) text += fmt::format(" and {} more", gifts_.size() - kMost);
  return text;
}

std::vector<run::Tiles> Donation::run(const run::Runnable& program,
                                      std::vector<run::Tiles> inputs) {
  if (gifts_.empty()) return program.execute(inputs, [] {});
  bool has_begun = false;
  const auto end_failed_call = [&] {
    if (!has_begun) give_back(inputs);
    call_->has_failed = has_begun;
  };
  try {
    take(inputs);
    return program.execute(inputs, [&] {
      has_begun = true;
      let_go();
    });
  } catch (const RuntimeFault& fault) {
    end_failed_call();
    if (!has_begun) throw;
    report_lost(fault.what());
  } catch (const std::bad_alloc&) {
    end_failed_call();
    if (!has_begun) throw;
    report_lost("out of memory; use a smaller batch or a smaller model");
  } catch (...) {
    end_failed_call();
    throw;
  }
}

namespace {

/// Whether a leaf of the result has the path of a leaf of an argument. The first part of the
/// result's path may be the number of an item in a tuple.
bool has_path_of(const std::string& result, const std::string& argument) {
  const std::string path = inner_path(argument);
  return path == inner_path(result) || path == result;
}

}  // namespace

std::vector<int> replaced_arguments(const std::vector<std::string>& paths,
                                    const std::vector<PlacementPtr>& inputs,
                                    const std::vector<std::string>& result_paths,
                                    const std::vector<Type>& results) {
  std::vector<int> replaced(results.size(), -1);
  std::vector<bool> is_taken(paths.size(), false);
  for (std::size_t out = 0; out < results.size(); ++out) {
    for (std::size_t in = 0; in < paths.size() && replaced[out] < 0; ++in) {
      if (is_taken[in] || inputs[in]->type != results[out]) continue;
      if (!has_path_of(result_paths[out], paths[in])) continue;
      is_taken[in] = true;
      replaced[out] = static_cast<int>(in);
    }
  }
  return replaced;
}

std::vector<int> aliases_of(const Program& program) {
  std::vector<int> aliases(program.outputs.size(), -1);
  std::vector<bool> is_free = program.is_donated;
  std::vector<std::size_t> results;  // per output: its leaf of the result
  for (std::size_t i = 0; i < program.forwarded.size(); ++i) {
    if (program.forwarded[i] < 0) {
      results.push_back(i);
    } else {
      is_free[static_cast<std::size_t>(program.forwarded[i])] = false;
    }
  }
  if (std::find(is_free.begin(), is_free.end(), true) == is_free.end()) return aliases;
  const auto match = [&](const auto& fits) {
    for (std::size_t out = 0; out < aliases.size(); ++out) {
      for (std::size_t in = 0; in < is_free.size() && aliases[out] < 0; ++in) {
        if (!is_free[in] || program.inputs[in] != program.outputs[out] || !fits(in, out)) continue;
        is_free[in] = false;
        aliases[out] = static_cast<int>(in);
      }
    }
  };
  match([&](std::size_t in, std::size_t out) {
    return has_path_of(program.result_paths[results[out]], program.paths->at(in));
  });
  match([](std::size_t, std::size_t) { return true; });
  return aliases;
}

}  // namespace tessera::detail
