"""Sums and maxima of segments in JAX, on the plugin and on XLA's CPU backend in turns: milliseconds
of calls, as one JSON line each. JAX_PLATFORMS=tessera,cpu"""
import argparse
import json
import time

import jax
import numpy as np

CASES = (((200_000, 64), 20_000), ((200_000, 64), 10), ((200_000, 64), 200_000),
         ((1_000_000,), 1_000), ((1_000_000,), 1_000_000))


def seconds(function, arguments):
    """The wall-clock time and the CPU time of a call."""
    clock, processor = time.perf_counter(), time.process_time()
    function(*arguments).block_until_ready()
    return time.perf_counter() - clock, time.process_time() - processor


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--calls", type=int, default=30)
    args = args.parse_args()
    random = np.random.default_rng(0)
    for shape, count in CASES:
        rows = random.standard_normal(shape, dtype=np.float32)
        ids = random.integers(0, count, shape[0]).astype(np.int32)
        for name in ("segment_sum", "segment_max"):
            reduce = jax.jit(lambda x, i: getattr(jax.ops, name)(x, i, num_segments=count))
            placed = {backend: jax.device_put((rows, ids), jax.devices(backend)[0])
                      for backend in ("tessera", "cpu")}
            found = {backend: [] for backend in placed}
            for call in range(args.calls + 1):
                for backend, arguments in placed.items():
                    times = seconds(reduce, arguments)
                    if call > 0:  # the first call compiles
                        found[backend].append(times)
            line = {"op": name, "shape": shape, "segments": count}
            for backend, times in found.items():
                least, median = np.min(times, 0) * 1e3, np.median(times, 0) * 1e3
                line[backend] = {"least_ms": round(least[0], 2), "median_ms": round(median[0], 2),
                                 "processor_ms": round(median[1], 2)}
            print(json.dumps(line), flush=True)


main()
