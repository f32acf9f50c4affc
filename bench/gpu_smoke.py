#!/usr/bin/env -S python3 -B
"""Whether Tessera works on an accelerator, and how fast: bench/gpu_smoke.py [--venv DIR].

On one device of a PJRT plugin: every op's samples against the reference engine, then training steps
beside JAX on the same device, one after the other in rounds. Prints a table in Markdown. The Python
environment has JAX with the plugin (pip install "jax[cuda13]" flax optax)."""
import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
SMALL = dict(vocab=512, seq=64, width=64, heads=4, layers=2, batch=2)
GPT2 = dict(vocab=50257, seq=1024, width=768, heads=12, layers=12, batch=8)
FLAGS = dict(vocab="--vocab", seq="--seq", width="--d-model", heads="--heads", layers="--layers",
             batch="--batch")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv" / "peers",
                        help="the Python environment with JAX")
    parser.add_argument("--plugin", help="PATH[,OPTION=VALUE]...; default: CUDA's in --venv")
    parser.add_argument("--platform", default="cuda", help="what JAX runs on")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--steps", type=int, default=12, help="steps of a run, two are warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, help="of the device, for the share of it")
    parser.add_argument("--small", action="store_true", help="tiny models, to try this script")
    args = parser.parse_args()
    if args.plugin is None:
        pattern = args.venv / "lib/python3*/site-packages/jax_plugins/xla_cuda*/xla_cuda_plugin.so"
        found = sorted(glob.glob(str(pattern)))
        if not found:
            parser.error(f"no plugin at {pattern}: pip install jax[cuda13], or give --plugin")
        args.plugin = found[-1]
    return args


def gpt_gflop(sizes):
    """GFLOP of the matrix products in one step. The backward pass has twice as many as the forward
    pass, and causal attention half of all scores."""
    width, seq = sizes["width"], sizes["seq"]
    dense = 2 * (sizes["layers"] * 12 * width * width + width * sizes["vocab"])
    return 3 * sizes["batch"] * seq * (dense + sizes["layers"] * 2 * seq * width) / 1e9


def works(args):
    """Yields (name, Tessera's flags, JAX's command, GFLOP or None)."""
    yield "lm", ["lm", "--mesh", "none"], ["data_parallel_lm.py", "--devices", "1"], None
    for batch in ("4",) if args.small else ("128", "1024"):
        yield (f"vit, batch {batch}", ["vit", "--mesh", "none", "--batch", batch],
               ["vit.py", "--mesh", "none", "--batch", batch], None)
    sizes = SMALL if args.small else GPT2
    tessera = ["lm", "--mesh", "none", "--causal", "--d-ff", str(4 * sizes["width"])]
    jax = ["jax_gpt.py"]
    for name, value in sizes.items():
        tessera += [FLAGS[name], str(value)]
        jax += [f"--{name}", str(value)]
    yield "GPT-2 size, f32", tessera, jax, gpt_gflop(sizes)
    yield "GPT-2 size, bf16", [*tessera, "--dtype", "bf16"], [*jax, "--bf16"], gpt_gflop(sizes)


def run(command, **environment):
    """The JSON object that the command prints last, or its error."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            check=False, cwd=ROOT, env={**os.environ, **environment})
    if result.returncode != 0:
        lines = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()
        return {"error": f"exit code {result.returncode}: {lines[-1]}"}
    text = result.stdout
    return json.loads(text[0 if text.startswith("{") else text.rfind("\n{") + 1:])


def cell(runs, key, choose=min):
    values = [run[key] for run in runs if run.get(key) is not None]
    return f"{choose(values):.1f}" if values else "-"


def row(args, name, contender, runs, gflop):
    errors = [run["error"] for run in runs if "error" in run]
    if errors:
        return f"| {name} | {contender} | failed: {errors[0]} | | | | |"
    fastest = min(run["step_ms_min"] for run in runs)
    share = f"{gflop / fastest / args.peak_tflops:.0%}" if gflop and args.peak_tflops else "-"
    return " | ".join(["", name, contender, cell(runs, "step_ms_min"),
                       cell(runs, "step_ms_median", statistics.median), share,
                       cell(runs, "compile_s"), cell(runs, "device_peak_mib", max), ""]).strip()


def main():
    args = arguments()
    tessera = args.build / "tools" / "tessera"
    backend = f"pjrt:{args.plugin}"
    failed = subprocess.run([tessera, "devices", "--backend", backend], check=False).returncode
    if failed:
        return failed
    failed = subprocess.run([args.build / "tests" / "pjrt" / "pjrt_cases", args.plugin, "samples",
                             "1"], check=False).returncode
    python = args.venv / "bin" / "python"
    print("\n| work | contender | step ms, min | median | share of peak | compile s | device MiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, flags, peer, gflop in works(args):
        commands = {"Tessera": [tessera, "train", *flags, "--steps", args.steps, "--backend",
                                backend, "--json", "-", "--progress", "off"],
                    "JAX": [python, "-B", PEERS / peer[0], *peer[1:], "--steps", args.steps]}
        runs = {contender: [] for contender in commands}
        for _ in range(args.rounds):
            for contender, command in commands.items():
                runs[contender].append(run(command, JAX_PLATFORMS=args.platform))
        for contender, of_one in runs.items():
            print(row(args, name, contender, of_one, gflop), flush=True)
            failed |= any("error" in one for one in of_one)
    return 1 if failed else 0


sys.exit(main())
