// The text of the error that a mistake makes, and the line where it is made.
#pragma once

#include <functional>
#include <source_location>
#include <string>

#include <tessera/error.h>

namespace tessera {

struct Caught {
  /// The whole text, where `<this line>` stands for the file and line of the call of caught(), so
  /// that tests may move; `no error` when there was none.
  std::string text;
};

/// `file:line` of the caller, so many lines further down.
inline std::string line_of(int lines_down,
                           std::source_location where = std::source_location::current()) {
  return to_string(Span(where.file_name(), where.line() + static_cast<std::uint32_t>(lines_down)));
}

/// Runs `mistake`, which stands on the line of the call.
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
