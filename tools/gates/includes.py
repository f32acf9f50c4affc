"""What the files of the tree include."""
import functools
import posixpath
import re

from gates import ROOT, code_of, read

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)


def place_of(quoted, path):
    """The file of the tree that `#include "quoted"` means, or None."""
    for folder in ("src", "lib", "examples", "", posixpath.dirname(path)):
        place = posixpath.normpath(posixpath.join(folder, quoted))
        if (ROOT / place).is_file():
            return place
    return None


def includes_of(text):
    """Yields (line, quote, name) for each include outside comments."""
    code = code_of(text).splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match and "include" in code[number - 1]:
            yield number, match.group(1), match.group(2)


@functools.cache
def system_headers(path):
    """The names of all headers outside the tree that a file includes, itself or through others."""
    found = set()
    for _, quote, name in includes_of(read(path)):
        public = "include/" + name
        place = place_of(name, path) if quote == '"' else public
        if place and (ROOT / place).is_file():
            found |= system_headers(place)
        else:
            found.add(name)
    return frozenset(found)
