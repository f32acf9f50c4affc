"""Writes golden/foreign: the same arrays in files of NumPy, PyTorch and Flax.

    pip install numpy torch msgpack
    python3 tests/peers/make_foreign_golden.py

MessagePack is written as flax.serialization.to_bytes does: an array is an extension of kind 1 that
holds its shape, the name of its dtype, and its bytes.
"""
import argparse
import collections
import os
import pathlib
import random
import zipfile

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


def training_state(weight):
    """What training programs save beside the weights, and tensors inside of it."""
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    rates = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 1, 3])
    by_name = collections.defaultdict(list)
    by_name["hidden"].append(torch.ones(2))
    return {"model": {"weight": weight}, "optimizer": optimizer.state_dict(),
            "rates": rates.state_dict(), "by_name": by_name,
            "random": [random.getstate(), np.random.RandomState(0).get_state()],
            "loss": np.float32(0.5), "history": np.arange(3), "size": weight.shape,
            "device": torch.device("cpu"), "dtype": torch.float32, "bytes": b"\xff\x00",
            "seen": {1, 2}, "frozen": frozenset({3}), "number": 1 << 100, "path": pathlib.Path("x"),
            "arguments": argparse.Namespace(rate=0.1, start=torch.zeros(2, 3)),
            (1, 2): torch.ones(1)}


def big_endian(path, to):
    """Copies an archive with i32 tensors as a big-endian machine would have written it."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(to, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("byteorder"):
                content = b"big"
            if "/data/" in name:
                content = np.frombuffer(content, "<i4").astype(">i4").tobytes()
            target.writestr(name, content)


def write_torch():
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    for protocol in 2, 4:
        path = os.path.join(OUT, f"training{protocol}.pt")
        torch.save(training_state(weight), path, pickle_protocol=protocol)
    x = torch.arange(1.0, 4.0)
    torch.save({"negated": torch.complex(x, x).conj().imag}, os.path.join(OUT, "negated.pt"))
    path = os.path.join(OUT, "little.pt")
    torch.save({"x": torch.tensor([[1, -2], [3, 1 << 20]], dtype=torch.int32)}, path)
    big_endian(path, os.path.join(OUT, "big.pt"))
    os.remove(path)


def write_views():
    """Tensors of any strides, all in the storage of `base`, and copies of them."""
    base = torch.arange(24, dtype=torch.int32)
    views = {"base": base, "expanded": base[5].expand(2, 3), "rows": base[3:6].expand(2, 3),
             "columns": base[::9].unsqueeze(1).expand(3, 2), "windows": base.unfold(0, 4, 2)[:3],
             "overlapping": base.as_strided((2, 2, 2), (3, 1, 3), 4),
             "permuted": base.reshape(2, 3, 4).permute(2, 0, 1)[1::2, :, ::2]}
    for name, view in list(views.items()):
        views["copies." + name] = view.clone(memory_format=torch.contiguous_format)
    torch.save(views, os.path.join(OUT, "views.pt"))


def write_kinds():
    """Kinds of tensors that arrays do not have, beside two that they have."""
    rows = torch.ones(2, 3)
    scales = torch.quantize_per_channel(rows, torch.ones(2), torch.zeros(2), 0, torch.quint8)
    meta = torch.empty(2, 3, device="meta", dtype=torch.float64)
    torch.save({"weight": rows, "buffer": torch.nn.Buffer(torch.arange(3.0)),
                "quantised": torch.quantize_per_tensor(rows, 0.1, 0, torch.qint8),
                "channels": scales, "meta": meta, "parameter": torch.nn.Parameter(meta),
                "sparse": torch.eye(3).to_sparse(), "rows": torch.eye(3).to_sparse_csr(),
                "complex": torch.ones(2, dtype=torch.complex64),
                "hidden": argparse.Namespace(m=meta),
                "float8": torch.ones(2).to(torch.float8_e5m2)}, os.path.join(OUT, "kinds.pt"))


def write_other_types():
    fields = np.array([(1, 2), (3, 4)], [("a", "<f4"), ("b", "<i4")])
    np.savez(os.path.join(OUT, "types.npz"), weight=np.ones(3, np.float32), fields=fields,
             names=np.array(["a", "bc"]), big=np.ones((2, 2), ">f4"), complex=np.ones(1, "c8"),
             object=np.array([{}]), day=np.array(["2020-01-01"], "M8[D]"))


def main():
    os.makedirs(OUT, exist_ok=True)
    write_torch()
    write_views()
    write_kinds()
    write_other_types()
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
