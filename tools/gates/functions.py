"""Finds functions in C++ code by matching braces. Needs the style of this tree."""
import re

# What may follow the parameters of a function (or the capture of a lambda) before its body.
_AFTER = re.compile(
    r"(?:\)|(?<![\w\]])\[[^\[\]]*\])\s*"
    r"(?:(?:const|mutable|override|final|constexpr|try|&&?|noexcept(?:\s*\([^{}]*\))?)\s*)*"
    r"(?:->[^;{}=]*|requires\b[^;{}]*|:(?!:)[^;]*)?\Z", re.DOTALL)
_SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
_NAME = re.compile(r"([\w~:]+|operator\s*\S+|operator\s*\(\s*\))\s*\Z")


def without_directives(code):
    """Blanks preprocessor lines and all branches of each conditional except the first."""
    out, branches, continued = [], [], False
    for line in code.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line)
        if directive and not continued:
            word = directive.group(1)
            if word in ("if", "ifdef", "ifndef"):
                branches.append(False)
            elif word in ("else", "elif") and branches:
                branches[-1] = True
            elif word == "endif" and branches:
                branches.pop()
        is_kept = not (directive or continued or any(branches))
        continued = (bool(directive) or continued) and line.endswith("\\")
        out.append(line if is_kept else "")
    return "\n".join(out)


def _without_templates(header):
    """The header without `template <...>`, whose parameters may contain `class`."""
    while (start := header.find("template")) >= 0:
        depth, end = 0, start
        for end in range(start, len(header)):
            depth += {"<": 1, ">": -1}.get(header[end], 0)
            if depth == 0 and header[end] == ">":
                break
        header = header[:start] + header[end + 1:]
    return header


def _is_function(header):
    header = _without_templates(header).strip()
    # A scope has its keyword before any parenthesis; a function has one among its parameters only.
    if _SCOPE.search(header.split("(")[0]):
        return False
    return bool(_AFTER.search(header))


def _name_of(header):
    header = _without_templates(header)
    match = _NAME.search(header.split("(")[0])
    name = match.group(1) if match else "lambda"
    if name in ("TEST", "TEST_P", "TEST_F", "TYPED_TEST"):
        arguments = header.split("(", 1)[1].split(")")[0]
        name = ".".join(word.strip() for word in arguments.split(","))
    return name


def functions_of(code):
    """Yields (name, first line of the body, number of lines of the body) of each outermost function
    in `code`, from which code_of() has removed comments and the contents of literals."""
    code = without_directives(code)
    stack = []  # per open brace: (is_function, header, line)
    header, line, in_function = "", 1, 0
    pieces = re.split(r"([{};,\n])", code)
    for i, piece in enumerate(pieces):
        if piece == "\n":
            line += 1
            header += " "
        elif piece == "{":
            is_function = not in_function and _is_function(header)
            in_function += is_function
            stack.append((is_function, header, line))
            header = ""
        elif piece == "}" and stack:
            is_function, opened, first = stack.pop()
            in_function -= is_function
            rest = "".join(pieces[i + 1:i + 8]).lstrip()
            # In `Foo() : a_{1}, b_{2} {` the braces of the members are not bodies.
            is_member = is_function and rest.startswith((",", "{")) and ":" in opened
            header = opened + "()" if is_member else ""
            if is_function and not is_member:
                yield _name_of(opened), first, line - first + 1
        elif piece == ";" or (piece == "," and _ends_item(header, stack)):
            header = ""
        else:
            header += piece


def _ends_item(header, stack):
    """Whether a comma after `header` ends an item of a list in braces."""
    is_list = stack and not stack[-1][0] and not _SCOPE.search(stack[-1][1])
    return is_list and header.count("(") == header.count(")")
