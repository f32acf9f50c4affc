// Which values the forward pass of a remat keeps for its derivative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tessera::ops {

enum class SavePolicy : std::uint8_t {
  nothing_saveable,
  everything_saveable,
  dots_saveable,
  dots_with_no_batch_dims_saveable
};
inline constexpr std::string_view kSavePolicyNames[] = {
    "nothing_saveable", "everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"};

/// The policy with this name; nullopt if there is none.
inline std::optional<SavePolicy> save_policy_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kSavePolicyNames); ++i) {
    if (kSavePolicyNames[i] == name) return static_cast<SavePolicy>(i);
  }
  return std::nullopt;
}

}  // namespace tessera::ops
