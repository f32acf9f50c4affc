"""Helpers of the gates: the files of the tree, C++ without comments, and the report."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def git(*args):
    """The output of a git command in the tree, or None if it fails."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *args]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else None


def files(*suffixes):
    """The paths below ROOT that git tracks or would add, sorted; only these suffixes, if any."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        sys.exit("git ls-files failed: the gates look at a git working tree")
    paths = sorted(set(filter(None, listed.split("\0"))))
    return [p for p in paths if (not suffixes or p.endswith(suffixes)) and (ROOT / p).is_file()]


def read(path):
    """The text of a file, "" for a binary one."""
    data = (ROOT / path).read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'",
    re.DOTALL)


def _blank(match):
    token = match.group()
    kept = "" if token.startswith("/") else token[0] + token[-1]
    return kept + "\n" * token.count("\n")


def code_of(text):
    """C++ without comments and the contents of literals; lines keep their numbers."""
    return _TOKEN.sub(_blank, text)


def is_test(path):
    return path.endswith("_test.cc") or path.startswith("tests/")


def report(problems):
    """Prints the problems (strings, or (path, line, message)) and ends the program."""
    for problem in problems:
        print(problem if isinstance(problem, str) else "{}:{}: {}".format(*problem))
    sys.exit(1 if problems else 0)
