#!/usr/bin/env -S python3 -B
"""Whether Tessera works on an accelerator, and how fast: bench/gpu_smoke.py [--venv DIR].

On one device of a PJRT plugin: every op's samples against the reference engine, then training steps
beside JAX and PyTorch on the same device, one after the other in rounds. Prints a table in
Markdown. Builds what is missing in --build. The Python environment has JAX with the plugin and
PyTorch (pip install "jax[cuda13]" flax optax torch); without PyTorch its rows are left out."""
import argparse
import dataclasses
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
COLUMNS = ("work", "contender", "step ms, min", "median", "tokens/s", "share of peak", "compile s",
           "device MiB")


@dataclasses.dataclass
class Work:
    name: str
    tessera: list  # flags of `tessera train`
    jax: list      # a script and its flags
    torch: list
    tokens: int    # per step; for vit, the patches and the class token of each image
    gflop: float   # of the matrix products in one step


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv" / "peers",
                        help="the Python environment with JAX and PyTorch")
    parser.add_argument("--plugin", help="PATH[,OPTION=VALUE]...; default: CUDA's in --venv")
    parser.add_argument("--platform", default="cuda", help="what JAX and PyTorch run on")
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


def transformer_gflop(batch, seq, width, hidden, layers, outputs=0, is_causal=False):
    """GFLOP of the matrix products in one step. The backward pass takes twice as many as the
    forward pass, and causal attention needs half of the scores."""
    dense = 2 * (layers * (4 * width * width + 2 * width * hidden) + width * outputs)
    scores = layers * (2 if is_causal else 4) * seq * width
    return 3 * batch * seq * (dense + scores) / 1e9


def gpt_works(sizes):
    flags = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    tessera = ["lm", "--mesh", "none", "--causal", "--d-ff", str(4 * sizes["width"])]
    for name, value in sizes.items():
        tessera += [FLAGS[name], str(value)]
    gflop = transformer_gflop(sizes["batch"], sizes["seq"], sizes["width"], 4 * sizes["width"],
                              sizes["layers"], sizes["vocab"], is_causal=True)
    tokens = sizes["batch"] * sizes["seq"]
    for dtype, own, peers in (("f32", [], []), ("bf16", ["--dtype", "bf16"], ["--bf16"])):
        yield Work(f"GPT-2 size, {dtype}", tessera + own, ["jax_gpt.py", *flags, *peers],
                   ["torch_gpt.py", *flags, *peers], tokens, gflop)


def works(args):
    yield Work("lm", ["lm", "--mesh", "none"], ["data_parallel_lm.py", "--devices", "1"],
               ["torch_models.py", "lm"], 32 * 64, transformer_gflop(32, 64, 256, 1024, 4, 512))
    for batch in (4,) if args.small else (128, 1024):
        flags = ["--batch", str(batch)]
        patches = 3 * 2 * batch * 64 * 48 * 384 / 1e9
        yield Work(f"vit, batch {batch}", ["vit", "--mesh", "none", *flags],
                   ["vit.py", "--mesh", "none", *flags], ["torch_models.py", "vit", *flags],
                   batch * 65, transformer_gflop(batch, 65, 384, 1536, 6) + patches)
    yield from gpt_works(SMALL if args.small else GPT2)


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


def row(args, work, contender, runs):
    errors = [run["error"] for run in runs if "error" in run]
    if errors:
        cells = [work.name, contender, f"failed: {errors[0]}"] + [""] * (len(COLUMNS) - 3)
    else:
        ms = min(run["step_ms_min"] for run in runs)
        share = f"{work.gflop / ms / args.peak_tflops:.0%}" if args.peak_tflops else "-"
        cells = [work.name, contender, f"{ms:.1f}", cell(runs, "step_ms_median", statistics.median),
                 f"{1e3 * work.tokens / ms:.0f}", share, cell(runs, "compile_s"),
                 cell(runs, "device_peak_mib", max)]
    return f"| {' | '.join(cells)} |"


def commands_of(args, work, has_torch):
    """The command of a run, by contender."""
    python = [args.venv / "bin" / "python", "-B"]
    steps = ["--steps", args.steps]
    tessera = [args.build / "tools" / "tessera", "train", *work.tessera, *steps, "--backend",
               f"pjrt:{args.plugin}", "--json", "-", "--progress", "off"]
    commands = {"Tessera": tessera,
                "JAX": [*python, PEERS / work.jax[0], *work.jax[1:], *steps]}
    if has_torch:
        torch = [*python, PEERS / work.torch[0], *work.torch[1:], *steps, "--device", args.platform]
        commands["PyTorch"] = torch
        commands["PyTorch, compile"] = [*torch, "--compile"]
    return commands


def build(args):
    """Builds the programs that this script runs, if they are missing. Returns 0 on success."""
    programs = [args.build / "tools" / "tessera", args.build / "tests" / "pjrt" / "pjrt_cases"]
    if all(program.exists() for program in programs):
        return 0
    if not (args.build / "build.ninja").exists():
        configure = ["cmake", "--preset", "dev", "-B", args.build]
        if failed := subprocess.run(configure, cwd=ROOT, check=False).returncode:
            return failed
    command = ["cmake", "--build", args.build, "--target", "tessera_cli", "pjrt_cases"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main():
    args = arguments()
    devices = [args.build / "tools" / "tessera", "devices", "--backend", f"pjrt:{args.plugin}"]
    if failed := build(args) or subprocess.run(devices, check=False).returncode:
        return failed
    failed = subprocess.run([args.build / "tests" / "pjrt" / "pjrt_cases", args.plugin, "samples",
                             "1"], check=False).returncode
    has_torch = "error" not in run([args.venv / "bin" / "python", "-c",
                                    "import torch; print('{}')"])
    if not has_torch:
        print(f"no PyTorch in {args.venv}: its rows are left out")
    print(f"\n| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * (len(COLUMNS) - 2)}")
    for work in works(args):
        commands = commands_of(args, work, has_torch)
        runs = {contender: [] for contender in commands}
        for _ in range(args.rounds):
            for contender, command in commands.items():
                # Makes JAX multiply f32 as f32, as Tessera does, and as PyTorch does by default.
                runs[contender].append(run(command, JAX_PLATFORMS=args.platform,
                                           JAX_DEFAULT_MATMUL_PRECISION="highest"))
        for contender, of_one in runs.items():
            print(row(args, work, contender, of_one), flush=True)
            failed |= any("error" in one for one in of_one)
    return 1 if failed else 0


sys.exit(main())
