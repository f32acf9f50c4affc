// Where a plugin is, and the options of its client.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt {

/// `PATH[,NAME=VALUE]...`.
struct ClientSpec {
  std::string path;
  std::map<std::string, std::string> options;
};
/// Throws UserError for text that is not of this form, and for an option whose name is almost that
/// of a known option: some plugins ignore options that they do not know.
ClientSpec parse_spec(std::string_view text, const Span& where);

/// Options as plugins take them: `[0,1]` is a list of whole numbers, `8` a whole number, `true` and
/// `false` are booleans, `0.9` is a number, and anything else is text.
class NamedValues {
 public:
  /// `options` must live as long as this.
  explicit NamedValues(const std::map<std::string, std::string>& options);
  const std::vector<abi::NamedValue>& all() const { return values_; }

 private:
  std::vector<abi::NamedValue> values_;
  std::deque<std::vector<std::int64_t>> lists_;  // lists to which values point
};

}  // namespace tessera::run::pjrt
