"""The calls of bench/eager_bench.cc with PyTorch and MLX, microseconds per call.

python3 bench/peers/eager.py     # with torch, mlx or both installed
"""

import time


def best(call, seconds=0.3):
    """The least time of a call, over blocks of 200 calls."""
    for _ in range(200):
        call()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(200):
            call()
        least = min(least, (time.perf_counter() - start) / 200)
    return least * 1e6


class Rate:
    """A number that differs in each call."""

    value = 0.0

    def next(self):
        self.value += 1e-6
        return self.value


def torch_calls():
    import torch

    torch.set_grad_enabled(False)
    rate = Rate()
    calls = {}
    for size in (1, 1024, 65536):
        a, b = torch.full((size,), 1.5), torch.full((size,), 1.5)
        calls[f"add_arrays/{size}"] = lambda a=a, b=b: a + b
    a, b = torch.full((1024,), 1.5), torch.full((1024,), 1.5)
    calls["multiply_by_new_number"] = lambda: a * rate.next()
    calls["tanh_of_array"] = lambda: torch.tanh(a)
    calls["less_than"] = lambda: a < b
    calls["choose"] = lambda: torch.where(a < 0.0, a, b)
    calls["sum_of_array"] = lambda: torch.sum(a)
    m = torch.full((16, 16), 1.5)
    calls["product/16"] = lambda: m @ m
    return calls


def mlx_calls():
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    rate = Rate()
    calls = {}
    for size in (1, 1024, 65536):
        a, b = mx.full((size,), 1.5), mx.full((size,), 1.5)
        calls[f"add_arrays/{size}"] = lambda a=a, b=b: mx.eval(a + b)
    a, b = mx.full((1024,), 1.5), mx.full((1024,), 1.5)
    calls["multiply_by_new_number"] = lambda: mx.eval(a * rate.next())
    calls["tanh_of_array"] = lambda: mx.eval(mx.tanh(a))
    calls["less_than"] = lambda: mx.eval(a < b)
    calls["choose"] = lambda: mx.eval(mx.where(a < 0.0, a, b))
    calls["sum_of_array"] = lambda: mx.eval(mx.sum(a))
    m = mx.full((16, 16), 1.5)
    calls["product/16"] = lambda: mx.eval(m @ m)
    return calls


def main():
    times = {}
    for name, make in (("PyTorch", torch_calls), ("MLX", mlx_calls)):
        try:
            calls = make()
        except ImportError:
            continue
        for call, run in calls.items():
            times.setdefault(call, {})[name] = best(run)
    for call, row in times.items():
        print(f"{call:28}" + "".join(f"{name} {us:8.2f}  " for name, us in row.items()))


if __name__ == "__main__":
    main()
