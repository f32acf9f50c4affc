#!/usr/bin/env -S python3 -B
"""How well `tessera plan` predicts the steps of several processes on this machine.

bench/scaling.py [--models lm mlp] [--processes 2 4 8] [--steps N] [--rounds N] [--clock cpu]

For each model and number of processes it prints the predicted time of a step, the measured one
(the fastest of all rounds) and the error. The links are measured by collective_bench. The speed of
a device is measured with a single device that has the work of one of them: the plan's FLOP/s and
bytes/s are divided by the same factor, so that its time is right for that one device. With more
processes than cores a device gets its share of them, and cannot compute while it communicates,
because another process uses the core. With --clock cpu all times are CPU times of all processes,
divided by the cores that they use: for a machine that other programs use, too. The script needs
build/dev, with benchmarks.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "dev"
TESSERA = BUILD / "tools" / "tessera"
# Per model: the flags, the axis that splits the batch, and the batch size per device.
MODELS = {"lm": (["--params", "replicated"], "data", 4),
          "lm-fsdp": (["--params", "fsdp"], "data", 4),
          "mlp": ([], "data", 64),
          "vit": ([], "batch", 4)}
CORES = len(os.sched_getaffinity(0))
OTHER_AXES = {"mlp": ",model=1", "vit": ",model=1"}


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True).stdout


def object_of(*command):
    """The JSON object in the last line."""
    return json.loads(output(*command).splitlines()[-1])


def cpu_seconds(run):
    """User and system time of the processes that `run` starts."""
    def now():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    start = now()
    run()
    return now() - start


def link_of(processes, clock):
    lines = map(json.loads, output(BUILD / "bench" / "collective_bench", processes).splitlines())
    return next(line for line in lines if line["clock"] == clock)


class Model:
    def __init__(self, name):
        self.name = name
        self.command = name.split("-")[0]
        self.flags, self.axis, self.batch = MODELS[name]

    def arguments(self, devices):
        mesh = f"{self.axis}={devices}{OTHER_AXES.get(self.command, '')}"
        return [self.command, "--mesh", mesh, "--batch", self.batch * devices, "--threads", 1,
                *self.flags]

    def run(self, devices, steps):
        isolated = ["--isolated"] if devices > 1 else []
        return object_of(TESSERA, "train", *self.arguments(devices), *isolated, "--steps", steps,
                         "--progress", "off", "--json", "-")

    def wall_ms(self, devices, steps, rounds):
        return min(self.run(devices, steps)["step_ms_min"] for _ in range(rounds))

    def cpu_ms(self, devices, steps, rounds):
        """CPU time of all processes per step, divided by the cores that they use."""
        def least(count):
            return min(cpu_seconds(lambda: self.run(devices, count)) for _ in range(rounds))
        return 1e3 * (least(2 + steps) - least(2)) / steps / min(devices, CORES)

    def planned(self, devices, *flags):
        return object_of(TESSERA, "plan", *self.arguments(devices), "--devices-per-node", devices,
                         *flags, "--json", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["lm", "lm-fsdp", "mlp"], choices=MODELS)
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    links = {n: link_of(n, options.clock) for n in options.processes}
    print("| model | processes | link | computing | exposed | predicted | measured | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.models:
        model = Model(name)
        alone = model.planned(1)

        def measured_ms(devices):
            measure = model.wall_ms if options.clock == "wall" else model.cpu_ms
            return measure(devices, options.steps, options.rounds)

        slower = measured_ms(1) / alone["step_ms"]
        for n in options.processes:
            share = slower * max(1.0, n / CORES)
            link = links[n]
            plan = model.planned(
                n, "--flops", f"{alone['cluster']['flops'] / share}FLOP/s",
                "--memory-bandwidth", f"{alone['cluster']['memory_bandwidth'] / share}B/s",
                "--node-bandwidth", f"{link['bandwidth']}B/s",
                "--node-latency", f"{link['latency_s']}s",
                *(["--no-overlap"] if n >= CORES else []))
            measured = measured_ms(n)
            error = plan["step_ms"] / measured - 1
            print(f"| {name} | {n} | {link['bandwidth'] / 1e9:.2f} GB/s, "
                  f"{link['latency_s'] * 1e6:.0f} us | {plan['computing_ms']:.1f} ms | "
                  f"{plan['exposed_ms']:.1f} ms | {plan['step_ms']:.1f} ms | {measured:.1f} ms | "
                  f"{error:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
