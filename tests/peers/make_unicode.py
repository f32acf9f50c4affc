"""Writes lib/data/unicode.cc: which code points are letters, numbers and spaces.

    pip install unicodedata2==16.0.0
    python3 tests/peers/make_unicode.py && clang-format -i lib/data/unicode.cc

Version 0.23 of the package tokenizers splits words by Unicode 16.0.
"""
import os
import sys

import unicodedata2

HEAD = """// The classes of characters, by ranges of code points of Unicode VERSION.
// Written by tests/peers/make_unicode.py; do not edit.
#include "data/unicode.h"

#include <algorithm>
#include <iterator>

namespace tessera::data {

namespace {

using enum CharClass;

struct Range {
  std::uint32_t first, last;
  CharClass kind;
};

constexpr Range kRanges[] = {
"""
TAIL = """};

}  // namespace

CharClass class_of(std::uint32_t code_point) {
  const Range* after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code_point,
                       [](std::uint32_t code, const Range& range) { return code < range.first; });
  if (after == std::begin(kRanges) || code_point > after[-1].last) return other;
  return after[-1].kind;
}

}  // namespace tessera::data
"""


def kind_of(code_point):
    char = chr(code_point)
    # str.isspace() holds for these four, which do not have the property White_Space.
    if char.isspace() and not 0x1C <= code_point <= 0x1F:
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata2.category(char)[0])


def ranges():
    found = []
    for code_point in range(sys.maxunicode + 1):
        kind = kind_of(code_point)
        if kind is None:
            continue
        if found and found[-1][1] == code_point - 1 and found[-1][2] == kind:
            found[-1][1] = code_point
        else:
            found.append([code_point, code_point, kind])
    return found


def main():
    text = HEAD.replace("VERSION", unicodedata2.unidata_version)
    text += "".join("    {0x%X, 0x%X, %s},\n" % tuple(r) for r in ranges()) + TAIL
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with open(os.path.join(root, "lib", "data", "unicode.cc"), "w") as file:
        file.write(text)


main()
