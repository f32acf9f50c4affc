"""Helpers for the JAX reference runs: virtual devices, timing, peak memory, JSON result."""
import json
import os
import resource
import statistics
import sys
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


def report(name, config, compile_seconds, seconds, losses, **extra):
    """Print one JSON line; the first two steps are warm-up and left out of the step time."""
    timed = seconds[2:] or seconds
    print(json.dumps(dict(
        name=name, peer="jax", config=config, compile_s=round(compile_seconds, 3),
        step_ms_min=round(1e3 * min(timed), 2),
        step_ms_median=round(1e3 * statistics.median(timed), 2),
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        losses=[round(x, 6) for x in losses], **extra)))
    sys.stdout.flush()
