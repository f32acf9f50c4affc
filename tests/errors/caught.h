// The text of the error that a mistake makes, and the line where it is made.
#pragma once

#include <functional>
#include <source_location>
#include <string>

#include <tessera/error.h>
#ifndef WANT
#define WANT "?"
#endif

namespace tessera {

struct Caught {
  std::string text;  // the whole text; `no error` when there was none
  std::string line;  // of the call of caught(): `tests/errors/file.cc:12`
};

/// `file:line` of the caller, so many lines further down.
inline std::string line_of(int lines_down = 0,
                           std::source_location where = std::source_location::current()) {
  return to_string(Span(where.file_name(), where.line() + static_cast<std::uint32_t>(lines_down)));
}

/// Runs `mistake`, which stands on the line of the call.
inline Caught caught(const std::function<void()>& mistake,
                     std::source_location where = std::source_location::current()) {
  const std::string line = to_string(Span(where));
  try {
    mistake();
  } catch (const UserError& error) {
    return {.text = error.what(), .line = line};
  }
  return {.text = "no error", .line = line};
}

}  // namespace tessera
