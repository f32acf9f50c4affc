"""Helpers for the JAX reference runs: virtual devices, timing, peak memory, JSON result."""
import json
import os
import pathlib
import re
import resource
import statistics
import sys
import tempfile
import time


def use_devices(count):
    """Emulate `count` CPU devices; call before importing jax."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def timed_steps(step, state, batches, steps, block):
    """Run `steps` steps, each blocked on, and return (state, losses, seconds per step)."""
    losses, seconds = [], []
    for i in range(steps):
        start = time.perf_counter()
        state, loss = step(state, batches[i % len(batches)])
        block((state, loss))
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss))
    return state, losses, seconds


def least_times(function, arguments, calls):
    """The least seconds of a call on the plugin and on JAX's CPU backend, which take turns."""
    import jax

    compiled = jax.jit(function)
    placed = {backend: jax.device_put(arguments, jax.devices(backend)[0])
              for backend in ("tessera", "cpu")}
    least = dict.fromkeys(placed, float("inf"))
    for call in range(calls + 1):
        for backend, values in placed.items():
            start = time.perf_counter()
            jax.block_until_ready(compiled(*values))
            if call > 0:  # the first call compiles
                least[backend] = min(least[backend], time.perf_counter() - start)
    return least


def device_peak_mib():
    """The peak memory of arrays on the first device; None if the device does not report it."""
    import jax

    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return peak and round(peak / 2**20)


def report(name, config, compile_seconds, seconds, losses, **extra):
    """Print one JSON line; the first two steps are warm-up and left out of the step time."""
    timed = seconds[2:] or seconds
    print(json.dumps(dict(
        name=name, peer="jax", config=config, compile_s=round(compile_seconds, 3),
        step_ms_min=round(1e3 * min(timed), 2),
        step_ms_median=round(1e3 * statistics.median(timed), 2),
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        device_peak_mib=device_peak_mib(), losses=[round(x, 6) for x in losses], **extra)))
    sys.stdout.flush()


def dots_of(hlo, mesh):
    """The products in an HLO text after sharding propagation, in the order of the text: the sizes
    of the result and of the contracting dimensions, and the spec of the result. If a product is
    used only by a transpose, the result of the transpose is reported."""
    from jax._src.lib import xla_client
    from jax._src.sharding_impls import parse_flatten_op_sharding

    defined = re.compile(r"^\s*(?:ROOT )?%(\S+) = \w+\[([\d,]*)\]\S* (\S+?)\((.*)$", re.MULTILINE)
    lines = {name: (shape, op, rest) for name, shape, op, rest in defined.findall(hlo)}
    sizes = lambda text: [int(size) for size in text.split(",") if size]
    transposes = {rest[1:rest.index(")")]: name for name, (_, op, rest) in lines.items()
                  if op == "transpose"}
    dots = []
    for name, (shape, op, rest) in lines.items():
        if op != "dot":
            continue
        lhs = sizes(lines[re.match(r"%([^,)]+)", rest).group(1)][0])
        contract = sizes(re.search(r"lhs_contracting_dims={([\d,]*)}", rest).group(1))
        result = rest
        is_used_once = len(re.findall(rf"%{re.escape(name)}(?![\w.])", hlo)) == 2
        if name in transposes and is_used_once:
            shape, _, result = lines[transposes[name]]
        written = re.search(r"sharding=({.*?})(?:,|$)", result)
        sharding = xla_client.HloSharding.from_string(
            written.group(1) if written else "{replicated}")
        dots.append({"shape": sizes(shape), "contract": [lhs[dim] for dim in contract],
                     "spec": str(parse_flatten_op_sharding(sharding, mesh)[0])})
    return dots


def print_shardings(program, mesh, lowered):
    """Print the shardings that XLA infers for a lowered program as one JSON line: those of the
    leaves of the result and of the products."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        compiled = lowered.compile({"xla_dump_to": folder, "xla_dump_hlo_pass_re": "shardy-xla"})
        hlo, = pathlib.Path(folder).glob("*after_shardy-xla.before_spmd*")
        dots = dots_of(hlo.read_text(), mesh)
    leaves = jax.tree_util.tree_leaves_with_path(compiled.output_shardings)
    results = [{"path": jax.tree_util.keystr(path, simple=True, separator="/"),
                "spec": str(sharding.spec)} for path, sharding in leaves]
    print(json.dumps(dict(program=program, results=results, dots=dots)))
