#include <tessera/error.h>

namespace tessera {

namespace {

std::string render(const Mistake& mistake) {
  std::string text = mistake.what;
  auto add = [&](const char* label, const std::string& part) {
    if (!part.empty()) text += std::string("\n  ") + label + part;
  };
  add("where:  ", to_string(mistake.where));
  add("found:  ", mistake.found);
  add("wanted: ", mistake.wanted);
  add("cure:   ", mistake.cure);
  return text;
}

}  // namespace

UserError::UserError(Mistake mistake) : Error(render(mistake)), mistake_(std::move(mistake)) {}

InternalError::InternalError(const std::string& broken_rule, std::source_location where)
    : Error("internal error: " + broken_rule + " (" + where.file_name() + ":" +
            std::to_string(where.line()) + ")") {}

void require(bool holds, const char* rule, std::source_location where) {
  if (!holds) throw InternalError(rule, where);
}

}  // namespace tessera
