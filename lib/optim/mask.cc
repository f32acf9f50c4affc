#include <algorithm>

#include <tessera/error.h>
#include <tessera/optim.h>

namespace tessera::optim {

namespace {

constexpr std::size_t kMostPaths = 8;  // in an error

bool matches_whole(std::string_view pattern, std::string_view path) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, star))) return false;
  pattern.remove_prefix(star + 1);
  path.remove_prefix(star);
  for (std::size_t skipped = 0; skipped <= path.size(); ++skipped) {
    if (matches_whole(pattern, path.substr(skipped))) return true;
  }
  return false;
}

bool matches(std::string_view pattern, std::string_view path) {
  if (matches_whole(pattern, path)) return true;
  return pattern.starts_with("*/") && matches_whole(pattern.substr(2), path);
}

/// The pattern that the user may have meant: that of a similar path or, after `*/`, of a similar
/// end of a path. Empty if there is none.
std::string similar_pattern(std::string_view pattern, const std::vector<Param>& parameters) {
  const bool is_end = pattern.starts_with("*/");
  if (is_end) pattern.remove_prefix(2);
  const auto depth = std::count(pattern.begin(), pattern.end(), '/');
  std::vector<std::string> names;
  for (const Param& parameter : parameters) {
    std::string_view path = parameter.path();
    while (is_end && std::count(path.begin(), path.end(), '/') > depth) {
      path.remove_prefix(path.find('/') + 1);
    }
    names.emplace_back(path);
  }
  const std::string meant = nearest(pattern, names);
  return is_end && !meant.empty() ? "*/" + meant : meant;
}

[[noreturn]] void no_match(const std::string& pattern, const std::vector<Param>& parameters,
                           const std::source_location& where) {
  std::string paths;
  for (std::size_t i = 0; i < std::min(parameters.size(), kMostPaths); ++i) {
    paths += (paths.empty() ? "" : ", ") + parameters[i].path();
  }
  if (parameters.size() > kMostPaths) paths += ", ...";
  const std::string meant = similar_pattern(pattern, parameters);
  throw UserError({.what = "Mask: a pattern matches no parameter",
                   .where = where,
                   .found = pattern,
                   .wanted = "a pattern that matches some of the paths " + paths,
                   .cure = meant.empty() ? "* matches any text: write for example */bias"
                                         : "did you mean " + meant + "? * matches any text"});
}

}  // namespace

TESSERA_DEFINE_COPYABLE(Mask);
Mask::Mask() = default;

Mask Mask::matching(std::vector<std::string> patterns) {
  Mask mask;
  mask.patterns_ = std::move(patterns);
  mask.is_inverted_ = false;
  return mask;
}

Mask Mask::except(std::vector<std::string> patterns) { return !matching(std::move(patterns)); }

Mask::Mask(Choice is_chosen) : is_chosen_(std::move(is_chosen)), is_inverted_(false) {}

Mask Mask::operator!() const {
  Mask mask(*this);
  mask.is_inverted_ = !is_inverted_;
  return mask;
}

std::vector<bool> Mask::operator()(const std::vector<Param>& parameters,
                                   const std::source_location& where) const {
  std::vector<bool> chosen(parameters.size(), false);
  for (std::size_t i = 0; is_chosen_ && i < parameters.size(); ++i) {
    chosen[i] = is_chosen_(parameters[i]);
  }
  for (const std::string& pattern : patterns_) {
    bool is_used = false;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!matches(pattern, parameters[i].path())) continue;
      chosen[i] = true;
      is_used = true;
    }
    if (!is_used) no_match(pattern, parameters, where);
  }
  if (is_inverted_) chosen.flip();
  return chosen;
}

std::string Mask::key() const {
  std::string key = is_inverted_ ? "except" : "matching";
  for (const std::string& pattern : patterns_) {
    key += " " + std::to_string(pattern.size()) + ":" + pattern;
  }
  return is_chosen_ ? key + " " + is_chosen_.key() : key;
}

}  // namespace tessera::optim
