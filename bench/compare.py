#!/usr/bin/env -S python3 -B
"""Tessera against its peers on this machine, in one go: bench/compare.py MODEL [--rounds N].

With `all` as MODEL, one model after the other. All contenders run one after the other, in N rounds,
so that a slow minute of the machine affects all of them alike. Prints a table in Markdown and a
description of the machine.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"


@dataclasses.dataclass
class Contender:
    name: str
    group: str  # contenders of one group do the same work on the same layout
    command: list
    work: str = ""  # Tessera's runs with the same work must have the same bits
    draws: bool = False  # draws its own dropout or initial values, so its losses differ
    tells_bits: bool = True  # its result contains loss_bits and params_hash
    runs: list = dataclasses.field(default_factory=list)
    error: str = ""

    def values(self, key):
        return [run[key] for run in self.runs if run.get(key) is not None]

    def best(self, key):
        return min(self.values(key), default=None)

    def median(self, key):
        return statistics.median(self.values(key)) if self.values(key) else None


def fast(contender):
    """The same with --numerics fast, which delays sums over devices until they are needed."""
    return dataclasses.replace(contender, name="Tessera, fast", runs=[],
                               command=[*contender.command, "--numerics", "fast"])


def pytorch(group, command):
    return [Contender("PyTorch, eager", group, command, draws=True),
            Contender("PyTorch, compile", group, [*command, "--compile"], draws=True)]


def lm_contenders(args):
    """The language model in three layouts, each on Tessera and on the peers that support it."""
    steps = ["--steps", str(args.steps)]
    python = str(args.venv / "bin" / "python")
    jax = [python, "-B", str(PEERS / "data_parallel_lm.py"), *steps]
    torch = [python, "-B", str(PEERS / "torch_models.py"), "lm", *steps]
    tessera = [str(args.tessera), "train", "lm", *steps, "--json", "-", "--progress", "off"]
    contenders = []
    for params in ("replicated", "fsdp"):
        group = f"8 devices, {params}"
        layout = ["--mesh", "data=8", "--params", params]
        contenders.append(Contender("Tessera", group, tessera + layout))
        contenders.append(fast(contenders[-1]))
        contenders.append(Contender("JAX", group, jax + ["--devices", "8", "--params", params]))
    contenders.append(Contender("Tessera", "1 device", tessera + ["--mesh", "none"]))
    contenders.append(Contender("JAX", "1 device", jax + ["--devices", "1"]))
    return contenders + pytorch("1 device", torch)


def lm_gflop():
    """GFLOP of the matrix products in one step, for the sizes of the peers. The backward pass has
    twice as many as the forward pass."""
    batch, seq, vocab, width, layers, hidden = 32, 64, 512, 256, 4, 1024
    dense = 2 * (layers * (4 * width * width + 2 * width * hidden) + width * vocab)
    attention = layers * 2 * 2 * seq * width
    return 3 * batch * seq * (dense + attention) / 1e9


def mlp_contenders(args):
    """The perceptron on a 2x4 mesh, as a scan over stacked weights and as a loop."""
    steps = ["--steps", str(args.steps)]
    jax = [str(args.venv / "bin" / "python"), "-B", str(PEERS / "pjit_mlp.py"), *steps]
    tessera = [str(args.tessera), "train", "mlp", *steps, "--json", "-", "--progress", "off",
               "--mesh", "data=2,model=4"]
    contenders = []
    for form, flags in (("scan", []), ("loop", ["--loop"])):
        group = f"2x4 devices, {form}"
        contenders.append(Contender("Tessera", group, tessera + flags, form))
        contenders.append(fast(contenders[-1]))
        contenders.append(Contender("JAX", group, jax + flags))
    return contenders


def mlp_gflop():
    batch, depth, layers = 8, 1024, 4
    return 3 * batch * layers * 2 * 2 * depth * depth / 1e9


def vit_contenders(args):
    """The vision transformer with dropout, on two meshes and without one."""
    flags = ["--steps", str(args.steps)]
    python = str(args.venv / "bin" / "python")
    jax = [python, "-B", str(PEERS / "vit.py"), *flags]
    torch = [python, "-B", str(PEERS / "torch_models.py"), "vit", *flags]
    tessera = [str(args.tessera), "train", "vit", *flags, "--json", "-", "--progress", "off"]
    contenders = []
    for name, mesh in (("4x2", "batch=4,model=2"), ("8x1", "batch=8,model=1"), ("none", "none")):
        group = "1 device" if name == "none" else f"{name} devices"
        contenders.append(Contender("Tessera", group, tessera + ["--mesh", mesh], draws=True))
        if name != "none":
            contenders.append(fast(contenders[-1]))
        contenders.append(Contender("JAX", group, jax + ["--mesh", name], draws=True))
    return contenders + pytorch("1 device", torch)


def vit_gflop():
    batch, tokens, width, layers, hidden, patch = 128, 65, 384, 6, 1536, 48
    dense = 2 * layers * (4 * width * width + 2 * width * hidden)
    attention = layers * 2 * 2 * tokens * width
    return 3 * batch * (tokens * (dense + attention) + 2 * (tokens - 1) * patch * width) / 1e9


def pipeline_contenders(args):
    """The deep transformer, with sizes for two cores: FSDP, a scan over microbatches, remat."""
    flags = ["--steps", str(args.steps)]
    jax = [str(args.venv / "bin" / "python"), "-B", str(PEERS / "pipeline_transformer.py"), *flags]
    exact = Contender("Tessera", "fsdp=4", pipeline_command(args, "fsdp=4"))
    return [exact, fast(exact), Contender("JAX", "fsdp=4", jax)]


def pipeline_command(args, mesh):
    return [str(args.tessera), "train", "pipeline", "--steps", str(args.steps), "--json", "-",
            "--progress", "off", "--mesh", mesh, "--d-model", "256", "--seq", "128"]


def stages_contenders(args):
    """The same transformer as a pipeline on four groups of devices."""
    jaxpp = [str(args.venv / "bin" / "python"), "-B", str(PEERS / "pipeline_jaxpp.py"),
             "--jaxpp", str(args.jaxpp), "--steps", str(args.steps)]
    contenders = []
    for stages in ("4", "8"):
        flags = ["--stages", stages]
        group = f"{stages} stages on 4 groups"
        tessera = pipeline_command(args, "stage=4,fsdp=1")
        contenders.append(Contender("Tessera", group, tessera + flags))
        contenders.append(Contender("JaxPP", group, jaxpp + flags))
    return contenders


def pipeline_gflop():
    """GFLOP of the matrix products in one step. Remat runs the forward pass twice, and the backward
    pass takes as many as two forward passes."""
    batch, seq, width, layers = 8, 128, 256, 8
    dense = 2 * layers * (4 * width * width // 8 + 8 * width * width)
    attention = layers * 2 * 2 * seq * width // 8
    return 4 * batch * seq * (dense + attention) / 1e9


def gpt_contenders(args):
    """A GPT of the size of GPT-2, in f32 and in bf16."""
    sizes = {"vocab": 50257, "seq": 512, "heads": 12, "layers": 12, "batch": 4}
    return [c for dtype in ("f32", "bf16") for c in causal_contenders(args, dtype, sizes, 768)]


def gpt_gflop():
    return causal_gflop(4, 512, 50257, 768, 12)


def long_contenders(args):
    """One sequence of 4096 tokens."""
    sizes = {"vocab": 512, "seq": 4096, "heads": 8, "layers": 4, "batch": 1}
    return causal_contenders(args, "f32", sizes, 512)


def long_gflop():
    return causal_gflop(1, 4096, 512, 512, 4)


def causal_contenders(args, dtype, sizes, width):
    flags = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
    flags += ["--steps", str(args.steps)]
    tessera = [str(args.tessera), "train", "lm", "--json", "-", "--progress", "off", "--mesh",
               "none", "--causal", "--d-model", str(width), "--d-ff", str(4 * width), "--dtype",
               dtype, *flags]
    torch = [str(args.venv / "bin" / "python"), "-B", str(PEERS / "torch_gpt.py"), "--width",
             str(width), *flags, *(["--bf16"] if dtype == "bf16" else [])]
    return [Contender("Tessera", dtype, tessera, dtype, draws=True), *pytorch(dtype, torch)]


def causal_gflop(batch, seq, vocab, width, layers):
    """GFLOP of the matrix products in one step. Half of the scores are masked."""
    dense = 2 * (layers * 12 * width * width + width * vocab)
    attention = layers * 2 * 2 * seq * width // 2
    return 3 * batch * seq * (dense + attention) / 1e9


def resnet_contenders(args):
    """ResNet-20 on images of 32x32."""
    python = [str(args.venv / "bin" / "python"), "-B"]
    steps, group = str(args.steps), f"{os.cpu_count()} threads"
    torch = [*python, str(PEERS / "torch_resnet.py"), steps, str(os.cpu_count()), "--json"]
    return [Contender("Tessera", group,
                      [str(program("resnet_bench")), steps, str(os.cpu_count()), "json"],
                      draws=True, tells_bits=False),
            Contender("JAX", group, [*python, str(PEERS / "jax_resnet.py"), "--steps", steps],
                      draws=True),
            *pytorch(group, torch),
            Contender("PyTorch, not channels-last", group, [*torch, "--contiguous"], draws=True)]


def resnet_gflop():
    """The gradients of input and kernel each take as many operations as the result."""
    batch, side, width = 128, 32, 16
    first = 2 * side * side * 9 * 3 * width
    same = 2 * side * side * 9 * width * width  # of each convolution of a stage except the first
    return 3 * batch * (first + 6 * same + 2 * (same / 2 + 5 * same)) / 1e9


def scripts_contenders(args):
    """The peers' own scripts, on the plugin and on JAX's CPU backend."""
    plugin = ["env", "JAX_PLATFORMS=tessera", f"PYTHONPATH={ROOT / 'plugin' / 'python'}",
              f"TESSERA_PJRT_LIBRARY={args.plugin}"]
    python = [str(args.venv / "bin" / "python"), "-B"]
    scripts = {"lm, data=8": ["data_parallel_lm.py", "--params", "replicated"],
               "lm, FSDP": ["data_parallel_lm.py", "--params", "fsdp"],
               "mlp of 1024, scan": ["pjit_mlp.py"],
               "mlp of 256, scan": ["pjit_mlp.py", "--depth", "256"],
               "vit, 4x2": ["vit.py"],
               "encoder, FSDP, microbatches": ["pipeline_transformer.py"],
               "ResNet-50, data=8": ["flax_resnet.py"],
               "Flax transformer, FSDP": ["flax_transformer.py"]}
    contenders = []
    for group, (script, *flags) in scripts.items():
        command = [*python, str(PEERS / script), *flags, "--steps", str(args.steps)]
        draws = script == "vit.py"
        contenders.append(Contender("Tessera", group, plugin + command, draws=draws,
                                    tells_bits=False))
        contenders.append(Contender("JAX", group, command, draws=draws))
    return contenders


MODELS = {"gpt": (gpt_contenders, gpt_gflop), "lm": (lm_contenders, lm_gflop),
          "long": (long_contenders, long_gflop), "mlp": (mlp_contenders, mlp_gflop),
          "pipeline": (pipeline_contenders, pipeline_gflop),
          "resnet": (resnet_contenders, resnet_gflop),
          "scripts": (scripts_contenders, lambda: None),
          "stages": (stages_contenders, pipeline_gflop), "vit": (vit_contenders, vit_gflop)}


def last_json(text):
    """Parses the JSON object at the end of the output."""
    start = 0 if text.startswith("{") else text.rfind("\n{") + 1
    return json.loads(text[start:])


def run_once(contender):
    """Runs a contender once and adds the result, or sets its error."""
    try:
        result = subprocess.run(contender.command, capture_output=True, text=True, check=False,
                                cwd=ROOT)
        if result.returncode != 0:
            lines = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()
            contender.error = f"exit code {result.returncode}: {lines[-1]}"
        else:
            contender.runs.append(last_json(result.stdout))
    except (OSError, ValueError) as error:
        contender.error = str(error)


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "LC_ALL": "C"}).stdout
    except OSError:
        return ""


def machine():
    """Lines that describe the machine."""
    cpu = dict(re.findall(r"^([^:\n]+):\s*(.*)$", output_of("lscpu"), re.MULTILINE))
    flags = cpu.get("Flags", "").split()
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile")
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    compiler = (output_of("c++", "--version").splitlines() or ["unknown"])[0]
    yield f"cpu: {cpu.get('Model name', 'unknown')}, family {cpu.get('CPU family')} model " \
          f"{cpu.get('Model')}, {os.cpu_count()} cores, {cpu.get('L2 cache', '?')} L2, " \
          f"{cpu.get('L3 cache', '?')} L3"
    yield f"vectors: {' '.join(flag for flag in wanted if flag in flags) or 'none'}"
    yield f"memory: {int(memory.group(1)) / 2**20:.1f} GiB"
    yield f"compiler: {compiler}"
    load = os.getloadavg()[0]
    yield f"load before the start: {load:.2f}" + (" (BUSY: do not quote)" if load > 0.5 else "")


def fma_peak():
    """(GFLOP/s of all cores, the line of gemm_bench that states it); (None, reason) without it."""
    text = output_of(str(program("gemm_bench")), "no shape has this name")
    found = re.search(r"^.*FMA peak ([\d.]+) GFLOP/s on 1 thread, ([\d.]+) on 2.*$", text,
                      re.MULTILINE)
    if found:
        one, two = float(found.group(1)), float(found.group(2))
        cores = os.cpu_count()
        return (two / 2 * cores if cores > 1 else one), found.group()
    return None, "FMA peak: not measured (gemm_bench is not built)"


def program(name):
    """The path of a benchmark in the first build folder that has it."""
    paths = [ROOT / "build" / build / "bench" / name for build in ("dev", "bench", "release")]
    return next((path for path in paths if path.is_file()), paths[0])


def number(value, form):
    return "-" if value is None else format(value, form)


def table(contenders, gflop, peak):
    """Yields the rows of the table; a ratio above 1 means that Tessera takes less time."""
    yield "| layout | contender | step ms, min | median | time / Tessera's | share of FMA peak " \
          "| compile s | peak RSS MiB | last loss |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    tessera = {c.group: c.best("step_ms_min") for c in contenders if c.name == "Tessera"}
    for c in contenders:
        if not c.runs:
            yield f"| {c.group} | {c.name} | failed: {c.error} ||||||| "
            continue
        fastest, ours = c.best("step_ms_min"), tessera.get(c.group)
        ratio = fastest / ours if ours else None
        share = gflop / (fastest / 1e3) / peak if peak and gflop else None
        losses = c.runs[-1].get("losses") or [None]
        cells = [c.group, c.name, number(fastest, ".1f"), number(c.median("step_ms_median"), ".1f"),
                 number(ratio, ".2f"), number(share, ".0%"), number(c.best("compile_s"), ".3f"),
                 number(max(c.values("peak_rss_mib"), default=None), ".0f"),
                 number(losses[-1], ".4f")]
        yield "| " + " | ".join(cells) + " |"


def same_bits(contenders):
    """Checks whether Tessera's runs have the same bits on all meshes; returns (text, whether they
    do)."""
    exact = [c for c in contenders if c.name == "Tessera" and c.tells_bits]
    runs = [run for c in exact for run in c.runs]
    if not runs:
        return "no run of Tessera tells its bits", True
    if not all(run.get("loss_bits") and run.get("params_hash") for run in runs):
        return "a run of Tessera does not have loss_bits or params_hash", False
    works = {c.work for c in exact}
    different = {json.dumps([c.work, run["loss_bits"], run["params_hash"]])
                 for c in exact for run in c.runs}
    if len(different) == len(works):
        return f"all {len(runs)} runs of Tessera have the same loss and parameter bits", True
    return f"DIFFERENT BITS: {len(different)} results among {len(runs)} runs of Tessera", False


def same_losses(contenders):
    """Compares the losses within each group, step by step; returns (text, whether they differ by no
    more than rounding)."""
    worst = 0.0
    for group in {c.group for c in contenders}:
        curves = [run["losses"] for c in contenders if c.group == group and not c.draws
                  for run in c.runs if run.get("losses")]
        for values in zip(*curves):
            worst = max(worst, (max(values) - min(values)) / max(map(abs, values)))
    if all(c.draws for c in contenders):
        return "losses are not compared: each contender draws its own dropout or values", True
    return f"losses of the contenders differ by at most {worst:.1e}", worst < 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=[*sorted(MODELS), "all"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int,
                        help="steps of a run, two are warm-up; default: 12, of large models fewer")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv" / "peers",
                        help="the peers' Python environment")
    parser.add_argument("--tessera", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "tools" / "tessera",
                        help="the command; default: as ./run builds it")
    parser.add_argument("--plugin", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "plugin" / "pjrt_tessera.so",
                        help="for scripts: the plugin; default: as plugin/build makes it")
    parser.add_argument("--setup", action="store_true", help="make that environment first (slow)")
    parser.add_argument("--jaxpp", type=pathlib.Path,
                        help="for stages: a checkout of github.com/NVIDIA/jaxpp")
    parser.add_argument("--json", type=pathlib.Path, help="write every run to this file")
    args = parser.parse_args()
    args.venv = args.venv.absolute()
    args.tessera = args.tessera.absolute()
    args.plugin = args.plugin.absolute()
    if args.model == "stages" and args.jaxpp is None:
        parser.error("stages are compared with JaxPP: give --jaxpp DIR, a checkout of it")
    if args.setup:
        subprocess.run([str(PEERS / "setup"), str(args.venv), "--torch"], check=True)
    if not (args.venv / "bin" / "python").exists():
        parser.error(f"no environment in {args.venv}: make it with bench/peers/setup DIR --torch, "
                     "and give --venv DIR")
    return args


STEPS = {"gpt": 4, "long": 6}  # of a run


def compare(model, args):
    """Runs all contenders, prints their table, and returns their runs and whether all succeeded."""
    args.steps = args.all_steps or STEPS.get(model, 12)
    make_contenders, gflop = MODELS[model]
    contenders = make_contenders(args)
    description = list(machine())
    peak, peak_line = fma_peak()
    for number_of_round in range(args.rounds):
        for c in contenders:
            if not c.error:
                print(f"round {number_of_round + 1} of {args.rounds}: {c.name}, {c.group}",
                      file=sys.stderr)
                run_once(c)
    bits, is_exact = same_bits(contenders)
    print(f"## {model}: {args.rounds} rounds of {args.steps} steps\n")
    print("\n".join(table(contenders, gflop(), peak)), end="\n\n")
    losses, is_same = same_losses(contenders)
    print("\n".join(f"- {line}" for line in (*description, peak_line, bits, losses)))
    is_right = is_exact and is_same and not any(c.error for c in contenders)
    return {f"{c.name}, {c.group}": c.runs for c in contenders}, is_right


def main():
    args = parse_arguments()
    args.all_steps = args.steps
    models = sorted(MODELS) if args.model == "all" else [args.model]
    if args.model == "all" and args.jaxpp is None:
        models.remove("stages")
    runs, are_right = {}, True
    for model in models:
        runs[model], is_right = compare(model, args)
        are_right = are_right and is_right
    if args.json:
        args.json.write_text(json.dumps(runs if args.model == "all" else runs[args.model]))
    sys.exit(0 if are_right else 1)


main()
