"""The rules of src/layers.txt."""
import posixpath
import sys

from gates import read

LAYERS = "src/layers.txt"


def read_layers():
    """{folder: what it may include}. A folder may have several lines in the file."""
    layers = {}
    for number, line in enumerate(read(LAYERS).splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, colon, words = line.partition(":")
        if not colon:
            sys.exit(f"{LAYERS}:{number}: wanted `folder: words`")
        layers.setdefault(folder.strip(), set()).update(words.split())
    return layers


def layer_of(path, layers):
    """The longest prefix of the path that `layers` lists, or None."""
    name = path[len("src/"):] if path.startswith("src/") else path
    while name and name not in layers:
        name = posixpath.dirname(name)
    return name or None
