#!/usr/bin/env -S python3 -B
"""Convolutions, pools and ResNet-20 beside PyTorch: bench/convolutions.py --venv DIR [--rounds N].

Runs conv_bench and resnet_bench of build/dev and the peers' programs in turn, all on one thread, so
that a slow minute of the machine affects all of them alike. Prints the least CPU time of each in
Markdown. `bench/peers/setup DIR --torch` makes the environment of the peers.
"""
import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout.splitlines()


def take_least(times, lines):
    """Lines are a name and times in ms."""
    for line in lines:
        name, *found = line.split()
        found = [float(time) for time in found]
        times[name] = [min(pair) for pair in zip(times.get(name, found), found)]


def resnet_times(lines):
    words = lines[-1].split()
    values = dict(zip(words[1::2], words[2::2]))
    return [f"ResNet-20 {values['cpu']}", f"rss {values['rss']}"]


def row(name, ours, theirs):
    ratios = " / ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs))
    return "| {} | {} | {} | {} |".format(
        name.replace(",", ", "), " / ".join(f"{t:.1f}" for t in ours),
        " / ".join(f"{t:.1f}" for t in theirs), ratios)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--venv", type=pathlib.Path, required=True)
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--repeats", type=int, default=10, help="runs of a layer per round")
    args.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev" / "bench")
    args.add_argument("names", nargs="*", help="parts of the names of layers; none: all, and ResNet")
    args = args.parse_args()
    python = [str(args.venv / "bin" / "python"), "-B"]
    peers = ROOT / "bench" / "peers"
    layers = [str(args.repeats), *args.names]
    ours, theirs = {}, {}
    for _ in range(args.rounds):
        take_least(ours, output_of([str(args.build / "conv_bench"), *layers]))
        take_least(theirs, output_of([*python, str(peers / "torch_conv.py"), *layers]))
        if args.names:
            continue
        steps = ["8", "1"]
        take_least(ours, resnet_times(output_of([str(args.build / "resnet_bench"), *steps])))
        take_least(theirs,
                   resnet_times(output_of([*python, str(peers / "torch_resnet.py"), *steps])))
    print("| layer | Tessera | PyTorch | ratio |\n| --- | ---: | ---: | ---: |")
    for name, times in ours.items():
        if name != "rss":
            print(row(name, times, theirs[name]))
    if "rss" in ours:
        print(f"\nPeak resident memory of ResNet-20 in MiB: {ours['rss'][0]:.0f} and "
              f"{theirs['rss'][0]:.0f}.")


if __name__ == "__main__":
    main()
