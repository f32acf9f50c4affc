// The text of the error that a mistake causes, and the line of the mistake.
#pragma once

#include <functional>
#include <source_location>
#include <string>

#include <tessera/error.h>

namespace tessera {

struct Caught {
  /// The whole text of the error, or `no error`. The file and line of the call of caught() are
  /// replaced by `<this line>`, so that the text does not change when a test moves.
  std::string text;
};

/// `file:line` of the line that is `lines_down` lines below the call.
inline std::string line_of(int lines_down,
                           std::source_location where = std::source_location::current()) {
  return to_string(Span(where.file_name(), where.line() + static_cast<std::uint32_t>(lines_down)));
}

/// Runs `mistake`, which must be written on the line of the call.
inline Caught caught(const std::function<void()>& mistake,
                     std::source_location where = std::source_location::current()) {
  try {
    mistake();
  } catch (const UserError& error) {
    const std::string line = to_string(Span(where)) + "\n";
    std::string text = error.what();
    const std::size_t at = text.find(line);
    if (at != std::string::npos) text.replace(at, line.size(), "<this line>\n");
    return {.text = std::move(text)};
  }
  return {.text = "no error"};
}

}  // namespace tessera
