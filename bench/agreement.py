#!/usr/bin/env -S python3 -B
"""How far the inferred shardings agree with those of JAX: bench/agreement.py --venv DIR.

Compares what build/dev/bench/inferred_shardings and the peers' --shardings print: every leaf of the
result by its path, and the products. Products have no names, so those of a program that have equal
sizes are compared as multisets. Prints a table in Markdown and each difference.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
PEER_COMMANDS = (["pjit_mlp.py"], ["pjit_mlp.py", "--loop"],
                 ["data_parallel_lm.py", "--params", "replicated"],
                 ["data_parallel_lm.py", "--params", "fsdp"])
VALUE = re.compile(r"(%\d+): \w+\[([\d,]*)\]<([^>]*)>")
SUM = re.compile(r"= (?:all_reduce|reduce_scatter)\[.*?\] (%\d+(?:, %\d+)*)")
DOT = re.compile(r"= dot_general\[.*?lhs_contract=\[([\d,]*)\].*\] (%\d+), ")


def programs(*command):
    """Runs a command that prints one JSON object per line; returns {program: object}."""
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line["program"]: line for line in map(json.loads, text.splitlines())}


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def axes_of_spec(spec):
    """`P(None, ('data', 'model'))` -> ((), ("data", "model")); leaves out whole last ones."""
    entries = eval(spec, {"P": lambda *entries: entries})
    dims = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries]
    while dims and not dims[-1]:
        dims.pop()
    return tuple(dims)


def spec_of_dims(text):
    """`{data},{}+{model}`, as in a partitioned program, -> a spec without its partial sums."""
    dims = [numbered.split(",") if numbered else [] for numbered in
            re.findall(r"{([^}]*)}", text.split("+")[0])]
    return "P(" + "".join(f"({''.join(repr(axis) + ',' for axis in dim)})," for dim in dims) + ")"


def dots_of(ir):
    """The products of a partitioned program. If a product is summed over devices, its spec is the
    one after the sum, as JAX reports it. Value numbers are local to a body, hence the scopes."""
    scopes, dots = [{}], []
    for line in ir.splitlines():
        outer, _, inner = line.partition("{(")
        results = VALUE.findall(outer)
        scopes[-1].update((name, {"shape": numbers(shape), "spec": spec_of_dims(dims)})
                          for name, shape, dims in results)
        if inner:
            scopes.append({name: {"shape": numbers(shape)} for name, shape, _ in
                           VALUE.findall(inner)})
        if found := DOT.search(line):
            lhs = scopes[-1][found.group(2)]["shape"]
            dots.append(scopes[-1][results[0][0]])
            dots[-1]["contract"] = [lhs[dim] for dim in numbers(found.group(1))]
        if found := SUM.search(line):
            for operand, (_, _, dims) in zip(found.group(1).split(", "), results):
                scopes[-1][operand]["spec"] = spec_of_dims(dims)
        if line.strip().startswith("}}"):
            scopes.pop()
    return dots


def placed_sizes(dot):
    """The pairs (size, axes) of the dimensions of a product, sorted: their order may differ."""
    axes = axes_of_spec(dot["spec"])
    return tuple(sorted(zip(dot["shape"], axes + ((),) * len(dot["shape"]))))


def by_sizes(dots):
    groups = collections.defaultdict(list)
    for dot in dots:
        groups[str((sorted(dot["shape"]), sorted(dot["contract"])))].append(dot)
    return groups


def verdict(ours, theirs):
    """Compares two specs, each a tuple of axes for each dimension."""
    if ours == theirs:
        return "equal"
    count = [sum(map(len, dims)) for dims in (ours, theirs)]
    if count[0] == count[1]:
        return "different"
    return "more split here" if count[0] > count[1] else "more split by JAX"


def compare_results(ours, theirs):
    """Yields a verdict and a line of text for each leaf."""
    rename = lambda path: path.removesuffix("/value").replace("opt_state/0/", "opt_state/slots/") \
        .replace("slots/count", "count")
    peers = {rename(leaf["path"]): leaf["spec"] for leaf in theirs}
    assert peers.keys() == {leaf["path"] for leaf in ours}, (peers, ours)
    for leaf in ours:
        mine, peer = axes_of_spec(leaf["spec"]), axes_of_spec(peers[leaf["path"]])
        yield verdict(mine, peer), f"{leaf['path']}: {leaf['spec']}, JAX {peers[leaf['path']]}"


def compare_dots(ours, theirs):
    groups, peers = by_sizes(ours), by_sizes(theirs)
    assert {key: len(dots) for key, dots in groups.items()} == \
        {key: len(dots) for key, dots in peers.items()}, "the programs have other products"
    for key, dots in groups.items():
        mine = collections.Counter(map(placed_sizes, dots))
        peer = collections.Counter(map(placed_sizes, peers[key]))
        yield from [("equal", "")] * (mine & peer).total()
        for a, b in zip((mine - peer).elements(), (peer - mine).elements()):
            axes = lambda dims: tuple(axis for _, axis in dims)
            yield verdict(axes(a), axes(b)), f"product of {key}: {a}, JAX {b}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv" / "peers",
                        help="the peers' Python environment")
    parser.add_argument("--tool", type=pathlib.Path,
                        default=ROOT / "build" / "dev" / "bench" / "inferred_shardings")
    args = parser.parse_args()
    python = [str(args.venv / "bin" / "python"), "-B"]
    theirs = {}
    for name, *flags in PEER_COMMANDS:
        theirs |= programs(*python, str(PEERS / name), *flags, "--shardings")
    verdicts = ("equal", "more split here", "more split by JAX", "different")
    print(f"| program | what | all | {' | '.join(verdicts)} |\n| --- | --- |{' ---: |' * 5}")
    differences = []
    for name, program in programs(str(args.tool)).items():
        for what, pairs in (
                ("results", compare_results(program["results"], theirs[name]["results"])),
                ("products", compare_dots(dots_of(program["ir"]), theirs[name]["dots"]))):
            pairs = list(pairs)
            if not pairs:
                continue
            counts = collections.Counter(v for v, _ in pairs)
            cells = [name, what, str(len(pairs)), *(str(counts[v]) for v in verdicts)]
            print("| " + " | ".join(cells) + " |")
            differences += [f"{name}: {text}: {v}" for v, text in pairs if v != "equal"]
    print("", *differences, sep="\n")


main()
