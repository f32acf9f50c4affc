#!/usr/bin/env -S python3 -B
"""exchange_dlpack.py LIBRARY: passes tensors of NumPy, PyTorch and JAX to Tessera and back. Exits
with 77 without NumPy."""
import ctypes
import gc
import importlib.util
import random
import sys

SKIPPED = 77
CPU = (1, 0)
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}
USED = {True: b"used_dltensor_versioned", False: b"used_dltensor"}


class Tensor:
    """A tensor that Tessera returned, with the methods that consumers call."""

    def __init__(self, address, is_versioned):
        self.capsule = api.PyCapsule_New(address, NAMES[is_versioned], None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return CPU


def taken(capsule, is_versioned):
    """The tensor in a capsule, which then no longer owns it."""
    address = api.PyCapsule_GetPointer(capsule, NAMES[is_versioned])
    api.PyCapsule_SetName(capsule, USED[is_versioned])
    return ctypes.c_void_p(address)


def random_view(np, draw):
    """An array of any element type and strides."""
    dtype = draw.choice(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
    shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 4))]
    x = np.random.default_rng(draw.randrange(1 << 30)).integers(0, 50, shape).astype(dtype)
    steps = tuple(slice(None, None, draw.choice([1, 1, 2, -1])) for _ in shape)
    return np.transpose(x, draw.sample(range(len(shape)), len(shape)))[steps]


def check_numpy(np, library):
    draw = random.Random(1)
    for _ in range(200):
        x = random_view(np, draw)
        wanted = (x + x).T
        out = library.twice_transposed(taken(x.__dlpack__(max_version=(1, 0)), True))
        found = np.from_dlpack(Tensor(out, True))
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted), (x, found)
        assert not found.flags.writeable
        if x.size > 0:
            out = library.twice_transposed_old(taken(x.__dlpack__(), False))
            assert np.array_equal(np.from_dlpack(Tensor(out, False)), wanted)
    # Memory that begins at a multiple of 64 bytes is shared, other memory is not.
    block = np.zeros(4096 + 64, np.uint8)
    start = -block.ctypes.data % 64
    for shift in 0, 4, 16:
        x = block[start + shift:start + shift + 256].view(np.float32)
        capsule = x.__dlpack__(max_version=(1, 0))
        found = library.shared_elements(taken(capsule, True), x.ctypes.data)
        assert found == (64 if shift == 0 else -1), (shift, found)
    # The tensor outlives all arrays.
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.from_dlpack(Tensor(library.twice_transposed(
        taken(x.__dlpack__(max_version=(1, 0)), True)), True))
    wanted = (x + x).T.copy()
    del x
    gc.collect()
    assert np.array_equal(out, wanted)


def check_torch(torch, library):
    for dtype in torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64:
        x = torch.arange(12).reshape(3, 4).to(dtype)
        address = ctypes.c_void_p(x.data_ptr())
        shared = library.shared_elements(
            taken(x.__dlpack__(max_version=(1, 0)), True), address)
        assert shared == (12 if x.data_ptr() % 64 == 0 else -1)
        out = library.twice_transposed(taken(x.__dlpack__(max_version=(1, 0)), True))
        assert torch.equal(torch.from_dlpack(Tensor(out, True)), (x + x).T)
        out = library.twice_transposed_old(taken(x.__dlpack__(), False))
        assert torch.equal(torch.from_dlpack(Tensor(out, False)), (x + x).T)


def check_jax(jax, library):
    for dtype in "float32", "bfloat16", "float16", "int32", "uint8":
        x = jax.numpy.arange(12).reshape(3, 4).astype(dtype)
        wanted = (x + x).T
        out = library.twice_transposed_old(taken(x.__dlpack__(), False))
        found = jax.dlpack.from_dlpack(Tensor(out, False))
        assert found.dtype == wanted.dtype and bool((found == wanted).all()), (found, wanted)


def main():
    try:
        import numpy as np
    except ImportError:
        print("skipped: NumPy is not installed")
        sys.exit(SKIPPED)
    library = ctypes.CDLL(sys.argv[1])
    library.shared_elements.restype = ctypes.c_int64
    library.shared_elements.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for function in library.twice_transposed, library.twice_transposed_old:
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    check_numpy(np, library)
    peers = ["NumPy"]
    for module, name, check in ("torch", "PyTorch", check_torch), ("jax", "JAX", check_jax):
        if importlib.util.find_spec(module) is not None:
            check(importlib.import_module(module), library)
            peers.append(name)
    print("tensors of", ", ".join(peers), "as wanted")


main()
