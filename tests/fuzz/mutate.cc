#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cctype>

namespace tessera::fuzz {

namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

char awkward_byte(Random& random) {
  static const std::string likely = "%[](){}<>,:=#\"+-.0129eainftrue \n\t\0\x7f\xff";
  return random.chance(80) ? likely[random.pick(likely.size())]
                           : static_cast<char>(random.pick(256));
}

void mutate_bytes(std::string& text, Random& random) {
  const std::size_t at = random.pick(text.size());
  switch (random.pick(4)) {
    case 0:
      text[at] = awkward_byte(random);
      break;
    case 1:
      text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), awkward_byte(random));
      break;
    case 2:
      text.erase(at, 1 + random.pick(4));
      break;
    default:
      text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << random.pick(8)));
  }
}

/// Changes, drops, repeats or swaps parts (tokens or lines), or takes some from `others`.
void mutate_parts(std::vector<std::string>& parts, const std::vector<std::string>& others,
                  Random& random) {
  if (parts.empty()) return;
  const std::size_t at = random.pick(parts.size());
  const auto place = parts.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.pick(5)) {
    case 0:
      parts.erase(place);
      break;
    case 1: {
      const std::string copy = *place;
      parts.insert(place, copy);
      break;
    }
    case 2:
      std::swap(*place, parts[random.pick(parts.size())]);
      break;
    case 3:
      *place = parts[random.pick(parts.size())];
      break;
    default:
      if (!others.empty()) *place = random.choose(others);
  }
}

bool is_number(const std::string& token) {
  return std::isdigit(static_cast<unsigned char>(token[0])) != 0;
}

void mutate_number(std::vector<std::string>& tokens, Random& random) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_number(tokens[i])) places.push_back(i);
  }
  if (!places.empty()) tokens[random.choose(places)] = awkward_number(random);
}

}  // namespace

std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    if (is_name(text[begin])) {
      const bool is_digit = std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
      while (end < text.size() && (is_name(text[end]) || (is_digit && text[end] == '.'))) ++end;
    }
    while (end < text.size() && text[end] == ' ') ++end;
    tokens.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return tokens;
}

std::string awkward_number(Random& random) {
  static const std::vector<std::string> numbers = {"0",
                                                   "1",
                                                   "2",
                                                   "3",
                                                   "7",
                                                   "-1",
                                                   "-0",
                                                   "0.0",
                                                   "-0.0",
                                                   "1.5",
                                                   "1e400",
                                                   "1e-400",
                                                   "nan",
                                                   "-nan",
                                                   "inf",
                                                   "-inf",
                                                   "00",
                                                   "0x10",
                                                   "65536",
                                                   "1048575",
                                                   "1048576",
                                                   "2147483647",
                                                   "2147483648",
                                                   "4294967295",
                                                   "4294967296",
                                                   "1099511627776",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "-9223372036854775808",
                                                   "18446744073709551616",
                                                   "99999999999999999999999999"};
  return random.choose(numbers);
}

std::string mutated(const std::string& text, const std::string& other, Random& random) {
  if (text.empty()) return other;
  std::string result = text;
  const std::size_t kind = random.pick(8);
  if (kind == 0) {
    mutate_bytes(result, random);
  } else if (kind <= 3) {
    std::vector<std::string> tokens = tokens_of(text);
    mutate_parts(tokens, tokens_of(other), random);
    result = joined(tokens);
  } else if (kind == 4) {
    std::vector<std::string> tokens = tokens_of(text);
    mutate_number(tokens, random);
    result = joined(tokens);
  } else if (kind == 5) {
    std::vector<std::string> lines = lines_of(text);
    mutate_parts(lines, lines_of(other), random);
    result = joined(lines);
  } else if (kind == 6) {
    const std::size_t begin = random.pick(text.size());
    result.erase(begin, random.pick(40));
  } else {
    const std::size_t cut = random.pick(text.size());
    result = text.substr(0, cut) + other.substr(std::min(other.size(), random.pick(text.size())));
  }
  return result;
}

}  // namespace tessera::fuzz
