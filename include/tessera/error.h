// The errors that Tessera throws. The library prints only warnings (debug.h) and never aborts.
//
//   UserError      the program, a flag or a file is wrong: what, where, found, wanted, cure
//   RuntimeFault   something failed while running: a device, a process or a file
//   InternalError  Tessera broke one of its own rules
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

/// The base of all errors.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The parts of a message to the user. `what` and `cure` are required; the others may be empty.
struct Mistake {
  std::string what;  // one sentence that starts with the op or the flag
  Span where = {};   // the user's source line
  std::string found = {};
  std::string wanted = {};
  std::string cure;  // what to write instead
};

/// The program, a flag or a file is wrong.
class UserError : public Error {
 public:
  explicit UserError(Mistake mistake);
  const Mistake& mistake() const { return mistake_; }

 private:
  Mistake mistake_;
};

/// A device, a process or a file failed while running.
class RuntimeFault : public Error {
 public:
  using Error::Error;
};

/// Tessera broke one of its own rules. Please report it.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& broken_rule,
                         std::source_location where = std::source_location::current());
};

/// Throws InternalError unless `holds`.
void require(bool holds, const char* rule,
             std::source_location where = std::source_location::current());

/// For use in cures: the one of `names` that `word` was probably meant to be; empty if none is
/// similar.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace tessera
