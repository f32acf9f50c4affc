"""Finds the complete error texts that tests compare with, and the throw sites of UserError."""
import posixpath
import re

from gates import files, is_test, read

_LITERAL = r'"(?:\\.|[^"\\\n])*"'
_TEST = re.compile(r"^TEST(?:_F)?\((\w+)Errors, \w+\)", re.MULTILINE)
_TEXT = re.compile(rf"{_LITERAL}(?:\s*(?:\+\s*\w+\s*\+\s*)?{_LITERAL})*")
_SITE = re.compile(r"\bUserError\(\s*\{\s*\.what =|\b(?:\w+::)*fail\w*\(|\bbad_\w+\("
                   r"|\bUserError \w+\(\{\.what =")
_TOKEN = re.compile(rf"{_LITERAL}|'(?:\\.|[^'\\])+'|//[^\n]*|[(){{}},;]|.", re.DOTALL)


def joined(literals):
    """The text of adjacent string literals."""
    text = "".join(token[1:-1] for token in re.findall(_LITERAL, literals))
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def texts():
    """Yields (kind, path, line, complete text), from C++ suites XErrors, whose kind is x, and from
    .case files of commands that fail, whose kind is their folder."""
    for path in files("_test.cc"):
        source = read(path)
        tests = list(_TEST.finditer(source))
        for test, end in zip(tests, [t.start() for t in tests[1:]] + [len(source)]):
            for match in _TEXT.finditer(source, test.start(), end):
                if "\n  cure:" in joined(match[0]):
                    line = source.count("\n", 0, match.start()) + 1
                    yield test[1].lower(), path, line, joined(match[0])
    for path in files(".case"):
        head, _, text = read(path).partition("\nstderr:\n")
        if "\nexit: 0" not in head and text:
            kind = posixpath.basename(posixpath.dirname(path))
            yield kind, path, head.count("\n") + 3, text.partition(": ")[2]


def _sentence(source, at):
    """The literal pieces of the first argument after `at` that contains words."""
    pieces, depth, before = [], 0, ""
    for token in _TOKEN.finditer(source, at):
        depth += (token[0] in "({") - (token[0] in ")}")
        if depth < 0 or token[0] == ";" or (
                depth == 0 and token[0] == "," and any(" " in piece for piece in pieces)):
            break
        is_one_of_two = before in ("?", ":")  # a branch of a conditional expression
        is_argument = depth > 0 and before == ","
        before = token[0] if token[0].strip() else before
        if token[0].startswith('"') and not (is_one_of_two or is_argument):
            pieces += filter(None, re.split(r"\{[^}]*\}", joined(token[0])))
    return pieces


def sites():
    """Yields (path, line, pieces) for each throw site: the literal parts of its message."""
    for path in files(".cc", ".h"):
        if path.startswith(("src/", "lib/", "tools/")) and not is_test(path):
            source = read(path)
            for match in _SITE.finditer(source):
                pieces = _sentence(source, match.end())
                if pieces:
                    yield path, source.count("\n", 0, match.start()) + 1, pieces
