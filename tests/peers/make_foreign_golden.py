"""Writes golden/foreign: the same arrays in files of NumPy, PyTorch and Flax.

    pip install numpy torch msgpack
    python3 tests/peers/make_foreign_golden.py

MessagePack is written as flax.serialization.to_bytes does: an array is an extension of kind 1 that
holds its shape, the name of its dtype, and its bytes.
"""
import collections
import os

import msgpack
import numpy as np
import torch

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "foreign")


def packed(array):
    parts = (array.shape, array.dtype.name, array.tobytes())
    return msgpack.ExtType(1, msgpack.packb(parts, use_bin_type=True))


class Runs:
    """Runs code if a reader unpickles it."""

    def __reduce__(self):
        return (os.system, ("true",))


def main():
    os.makedirs(OUT, exist_ok=True)
    kernel = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    bias = np.array([1.5, -2, 65504], np.float16)
    steps = np.array([7], np.int64)
    ids = np.array([[1, -2], [3, 4]], np.int32)
    mask = np.array([True, False])
    arrays = {"dense/kernel": kernel, "dense/bias": bias, "steps": steps, "ids": ids, "mask": mask}
    np.savez(os.path.join(OUT, "stored.npz"), **arrays)
    np.savez_compressed(os.path.join(OUT, "deflated.npz"), **arrays)
    tree = {"dense": {"kernel": packed(kernel), "bias": packed(bias)}, "steps": packed(steps),
            "ids": packed(ids), "mask": packed(mask), "epoch": 3, "name": "run", "rate": 0.5,
            "rest": [None, True, -300]}
    with open(os.path.join(OUT, "flax.msgpack"), "wb") as file:
        file.write(msgpack.packb(tree, use_bin_type=True))
    weight = torch.from_numpy(kernel.copy())
    state = collections.OrderedDict()
    state["dense.kernel"] = weight
    state["dense.bias"] = torch.nn.Parameter(torch.from_numpy(bias.copy()))
    state["transposed"] = weight.t()
    state["part"] = weight[1:, 1:3]
    state["bf16"] = torch.tensor([1.0, -3.0], dtype=torch.bfloat16)
    state["mask"] = torch.from_numpy(mask)
    state["empty"] = torch.zeros(0, 2)
    state["scalar"] = torch.tensor(2.5)
    state["steps"] = torch.from_numpy(steps)
    state._metadata = {"": {"version": 1}}
    nested = {"model": state, "epoch": 3, "lists": [torch.ones(2), "x"], "rate": 0.5}
    torch.save(nested, os.path.join(OUT, "torch.pt"))
    torch.save({"model": Runs()}, os.path.join(OUT, "runs.pt"))


main()
