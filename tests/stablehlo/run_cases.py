#!/usr/bin/env python3
"""Runs the StableHLO programs of stablehlo_cases with the CPU client of jaxlib, and compares their
outputs with those that Tessera computed.

    run_cases.py FOLDER [TEXT]   # those whose names contain TEXT; 77: jaxlib is missing

A program that ends the process is named, because each one is announced before it runs."""
import json
import os
import pathlib
import subprocess
import sys

DEVICES = 8
FLAGS = [f"--xla_force_host_platform_device_count={DEVICES}",
         "--xla_cpu_enable_fast_min_max=false",  # else a maximum may lose NaN
         "--xla_allow_excess_precision=false",  # else bf16 may not be rounded between ops
         "--xla_backend_optimization_level=0",  # each program runs once
         "--xla_cpu_collective_call_terminate_timeout_seconds=600"]  # for busy machines
# Of an element, or of the largest element of a sum.
RELATIVE = {"f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}

# Of training steps: of scalars such as the loss, and of the largest element of the state.
STEP = {"step": (1e-5, 2e-4), "half_step": (1e-3, 2e-2)}


def numpy_type(name):
    import ml_dtypes
    import numpy as np
    if name == "bf16":
        return np.dtype(ml_dtypes.bfloat16)
    kinds = {"i": "int", "u": "uint", "f": "float"}
    return np.dtype(np.bool_ if name == "bool" else kinds[name[0]] + name[1:])


class Reader:
    """Reads arrays, device after device, from the bytes of all cases."""

    def __init__(self, path):
        self.data = path.read_bytes()
        self.at = 0

    def array(self, dtype, shape):
        import numpy as np
        count = int(np.prod(shape, dtype=np.int64))
        size = count * dtype.itemsize
        part = np.frombuffer(self.data[self.at:self.at + size], dtype).reshape(shape)
        self.at += size
        return part

    def tiles(self, types, replicas):
        return [[self.array(numpy_type(t["dtype"]), t["shape"]) for _ in range(replicas)]
                for t in types]

    def masks(self, types, replicas):
        import numpy as np
        return [[self.array(np.dtype(np.bool_), t["shape"]) for _ in range(replicas)]
                for t in types]


class Client:
    """Runs modules on replicas."""

    def __init__(self):
        import jax
        from jax._src import xla_bridge
        from jax._src.interpreters import mlir
        jax.config.update("jax_enable_x64", True)
        self.backend = xla_bridge.get_backend("cpu")
        self.context = mlir.make_ir_context()

    def run(self, text, inputs, replicas):
        import jax
        import numpy as np
        from jax._src.lib import xla_client
        from jaxlib.mlir import ir
        devices = self.backend.local_devices()[:replicas]
        options = xla_client.CompileOptions()
        options.num_replicas = replicas
        options.num_partitions = 1
        options.executable_build_options.num_replicas = replicas
        options.device_assignment = xla_client.DeviceAssignment.create(
            np.arange(replicas).reshape(replicas, 1))
        with self.context:
            module = ir.Module.parse(text)
            module.operation.verify()
            program = self.backend.compile_and_load(
                module, xla_client.DeviceList(tuple(devices)), options)
        mesh = jax.sharding.Mesh(np.array(devices), ("device",))
        same = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        arrays = []
        for tiles in inputs:
            parts = [jax.device_put(tile, device) for tile, device in zip(tiles, devices)]
            arrays.append(jax.make_array_from_single_device_arrays(tiles[0].shape, same, parts))
        results = program.execute_sharded(arrays)
        return [[np.asarray(part) for part in parts]
                for parts in results.disassemble_into_single_device_arrays()]


def difference(found, wanted, held, tolerance, dtype, slack):
    """A description of the worst element, or None."""
    import numpy as np
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} and not {wanted.dtype}{list(wanted.shape)}"
    x, y = found[held], wanted[held]
    if x.size == 0:
        return None
    if dtype not in ("f16", "f32", "f64", "bf16"):
        bad = x != y
    else:
        x, y = x.astype(np.float64), y.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if tolerance == "equal":
            bad = ~same
        elif tolerance in STEP:
            limit = STEP[tolerance][0 if found.ndim == 0 else 1]
            bad = ~(same | (np.abs(x - y) <= limit * np.abs(y).max() + 1e-7))
        else:
            limit = RELATIVE.get(dtype, RELATIVE["f32"]) / (16 if tolerance == "rounded" else 1)
            finite = np.isfinite(y)
            scale = np.abs(y) if tolerance in ("rounded", "function") else (
                np.abs(y[finite]).max() if finite.any() else 0.0)
            with np.errstate(invalid="ignore"):
                near = finite & (np.abs(x - y) <= limit * scale + slack + 1e-37)
            bad = ~(same | near)
    if not bad.any():
        return None
    i = int(np.argmax(bad))
    return f"{int(bad.sum())} of {x.size} elements differ, the first is {x[i]} and not {y[i]}"


def run_all(folder, text):
    cases = json.loads((folder / "cases.json").read_text())
    reader, client, count, failed = Reader(folder / "cases.bin"), Client(), 0, 0
    for case in cases:
        replicas = case["num_replicas"]
        inputs = reader.tiles(case["inputs"], replicas)
        wanted = reader.tiles(case["outputs"], replicas)
        held = reader.masks(case["outputs"], replicas)
        if text not in case["name"]:
            continue
        count += 1
        (folder / "now").write_text(case["name"])
        try:
            found = client.run(case["text"], inputs, replicas)
            problem = None
            slacks = case["slacks"] or [0.0] * len(case["outputs"])
            for i, type_ in enumerate(case["outputs"]):
                for device in range(replicas):
                    problem = problem or difference(found[i][device], wanted[i][device],
                                                    held[i][device], case["tolerance"],
                                                    type_["dtype"], slacks[i])
                    if problem and not problem.startswith("output"):
                        problem = f"output {i} of device {device}: {problem}"
        except Exception as error:  # whatever the compiler says is the answer
            problem = f"refused: {str(error)[:1500]}"
        if problem:
            failed += 1
            print(f"FAILED {case['name']}: {problem}\n{case['note']}", flush=True)
    print(f"{count} programs, {failed} failed", flush=True)
    return 1 if failed or count == 0 else 0


def main():
    folder = pathlib.Path(sys.argv[1])
    if os.environ.get("TESSERA_RUN_CASES") == "1":
        return run_all(folder, "".join(sys.argv[2:]))
    try:
        import jaxlib
    except ImportError:
        print("skipped: this Python has no jaxlib (pip install jax)")
        return 77
    print(f"jaxlib {jaxlib.__version__}", flush=True)
    environment = dict(os.environ, TESSERA_RUN_CASES="1", JAX_PLATFORMS="cpu",
                       XLA_FLAGS=" ".join(FLAGS))
    code = subprocess.run([sys.executable, *sys.argv], env=environment).returncode
    if code not in (0, 1):
        print(f"the compiler ended its process with {code} at: {(folder / 'now').read_text()}")
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
