#include <algorithm>

#include <tessera/error.h>

namespace tessera {

namespace {

/// Text from files may contain anything. Characters that a terminal would not show, or would
/// interpret as commands, are written as \x00.
std::string visible(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t') {
      result += c;
    } else {
      result += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return result;
}

std::string render(const Mistake& mistake) {
  std::string text = mistake.what;
  auto add = [&](const char* label, const std::string& part) {
    if (!part.empty()) text += std::string("\n  ") + label + part;
  };
  add("where:  ", to_string(mistake.where));
  add("found:  ", mistake.found);
  add("wanted: ", mistake.wanted);
  add("cure:   ", mistake.cure);
  return visible(text);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// The number of insertions, removals and replacements that turn `a` into `b`, ignoring case.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

UserError::UserError(Mistake mistake) : Error(render(mistake)), mistake_(std::move(mistake)) {}

InternalError::InternalError(const std::string& broken_rule, std::source_location where)
    : Error("internal error: " + broken_rule + " (" + where.file_name() + ":" +
            std::to_string(where.line()) + ")") {}

void require(bool holds, const char* rule, std::source_location where) {
  if (!holds) throw InternalError(rule, where);
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t least = 3;
  for (const std::string& name : names) {
    const std::size_t d = distance(word, name);
    // Any two short names may share half of their letters.
    if (d < least && 2 * d <= word.size()) {
      least = d;
      best = name;
    }
  }
  return best;
}

}  // namespace tessera
