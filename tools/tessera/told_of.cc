// In a file of its own, because the other functions of flags.h need the flags of all commands.
#include <utility>

#include "flags.h"

namespace tessera::cli {

UserError told_of(const std::string& name, const UserError& error) {
  Mistake mistake = error.mistake();
  mistake.what = name + mistake.what.substr(mistake.what.find(": "));
  mistake.where = {};
  return UserError(std::move(mistake));
}

}  // namespace tessera::cli
