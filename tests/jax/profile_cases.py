"""profile_cases.py: what jax.profiler records for programs on Tessera: the devices, the programs
that ran, their ops, and the threads, in addition to JAX's own rows."""
import collections
import glob
import os
import tempfile
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

STEPS = 4


def profiled(run):
    """The planes of a profile of `run`, by name."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        (path,) = glob.glob(os.path.join(folder, "plugins/profile/*/*.xplane.pb"))
        return {plane.name: {line.name: list(line.events) for line in plane.lines}
                for plane in jax.profiler.ProfileData.from_file(path).planes}


def step(w, x):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2)
    return w - 0.1 * jax.grad(loss)(w)


def arguments():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    w = jnp.asarray(np.random.default_rng(1).random((64, 64), np.float32))
    x = jnp.asarray(np.random.default_rng(2).random((128, 64), np.float32))
    return jax.block_until_ready((jax.device_put(w, NamedSharding(mesh, P())),
                                  jax.device_put(x, NamedSharding(mesh, P("data", "model")))))


def every_device_has_the_programs_and_their_ops():
    w, x = arguments()
    compiled = jax.jit(step, out_shardings=w.sharding)
    compiled(w, x).block_until_ready()

    def run():
        value = w
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                value = compiled(value, x)
                value.block_until_ready()

    planes = profiled(run)
    for device in range(8):
        lines = planes[f"/device:TPU:{device}"]
        names = [event.name.split("(")[0] for event in lines["XLA Modules"]]
        assert names == ["step"] * STEPS, names
        ops = lines["XLA Ops"]
        counts = collections.Counter(op.name for op in ops)
        assert set(counts.values()) == {STEPS}, counts
        assert sum("dot" in name for name in counts) == 5, counts
        # Ops lie within their programs, and programs lie within the profile.
        begin = min(event.start_ns for event in lines["XLA Modules"])
        assert begin > 0 and all(op.start_ns >= begin for op in ops)
        assert all(op.duration_ns > 0 for op in ops)
    host = planes["/host:CPU"]
    # Only the steps of JAX are recorded, not Tessera's own as well.
    steps = [event for events in host.values() for event in events if event.name == "train"]
    assert len(steps) == STEPS, host.keys()
    assert sum(event.name.startswith("execute step") for event in host["tessera"]) == STEPS
    assert host["buffers"] and host["python"], host.keys()


def a_profile_waits_for_programs_that_call_python():
    def slow(x):
        is_called.set()
        time.sleep(0.2)
        return np.asarray(x) + 1

    def program(x):
        return jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x @ x)

    is_called = threading.Event()
    x = jnp.eye(8, dtype=jnp.float32)
    compiled = jax.jit(program)
    compiled(x).block_until_ready()
    results = [compiled(x)]

    def run():
        results[0].block_until_ready()
        is_called.clear()
        results.append(compiled(x))
        is_called.wait()  # the profile ends while the function runs

    planes = profiled(run)
    for result in results:
        np.testing.assert_array_equal(result, np.eye(8) + 1)
    events = planes["/device:TPU:0"]["XLA Modules"]
    # The first call may have been waiting when the profile began.
    assert len(events) in (1, 2) and all(event.name.startswith("program") for event in events)


def profiles_can_be_taken_again():
    w, x = arguments()
    compiled = jax.jit(step)
    for _ in range(2):
        planes = profiled(lambda: compiled(w, x).block_until_ready())
        assert len(planes["/device:TPU:0"]["XLA Modules"]) == 1
    # Nothing runs: there are no devices to show.
    assert not any(name.startswith("/device:") for name in profiled(lambda: None))


CASES = [every_device_has_the_programs_and_their_ops, a_profile_waits_for_programs_that_call_python,
         profiles_can_be_taken_again]

if __name__ == "__main__":
    for case in CASES:
        case()
    print(f"{len(CASES)} cases of profiles")
