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
def direct_includes(path):
    return [(quote, name) for _, quote, name in includes_of(read(path))]


@functools.cache
def all_includes(path):
    """What a file includes, itself or through others: the files of the tree, and the names of the
    headers outside it. What includes itself again, as kernels do, counts once."""
    places, names, left = set(), set(), [path]
    while left:
        current = left.pop()
        for quote, name in direct_includes(current):
            place = place_of(name, current) if quote == '"' else "include/" + name
            if not place or not (ROOT / place).is_file():
                names.add(name)
            elif place not in places:
                places.add(place)
                left.append(place)
    return frozenset(places), frozenset(names)
