// Cures of errors about names that do not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/error.h>

namespace tessera {

/// `cure`, after a question that asks whether the most similar known name was meant. Names that
/// differ only in numbers, such as Dense_0 and Dense_1, are not suggested for each other.
inline std::string with_suggestion(std::string_view word, const std::vector<std::string>& names,
                                   const std::string& cure) {
  const auto without_numbers = [](std::string_view name) {
    std::string letters;
    for (const char c : name) {
      if (c < '0' || c > '9') letters += c;
    }
    return letters;
  };
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (without_numbers(name) != without_numbers(word)) others.push_back(name);
  }
  const std::string meant = nearest(word, others);
  return meant.empty() ? cure : "did you mean '" + meant + "'? Otherwise " + cure;
}

}  // namespace tessera
