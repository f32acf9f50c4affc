// The names of committed modules and programs.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::testing {

/// The files of the folder with this extension, without it, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder,
                                         const std::string& extension) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace tessera::testing
