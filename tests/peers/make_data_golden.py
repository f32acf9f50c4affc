#!/usr/bin/env python3
"""Writes golden/data.json: random numbers, crops and files as NumPy, Pillow and array_record make
them. Needs those three packages; random crops follow torchvision's RandomResizedCrop.get_params."""
import io
import json
import math
import pathlib
import pickle
import tempfile

import numpy as np
import PIL
from array_record.python import array_record_module
from PIL import Image

MEANS = (0.4914, 0.4822, 0.4465)
DEVIATIONS = (0.2023, 0.1994, 0.2010)


def generator(key):
    return np.random.Generator(np.random.Philox(key=key))


def image(seed, height, width, channels=3):
    """An irregular pattern that C++ code can generate just as easily."""
    n = np.arange(height * width * channels, dtype=np.uint64)
    return ((n * n * 37 + n * (seed + 11) + seed) // 7 % 256).astype(np.uint8).reshape(
        height, width, channels)


def resized(pixels, height, width):
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def draws():
    cases = []
    for key in (0, 12, 13, 2**32 + 5):
        rng = generator(key)
        u32 = rng.integers(0, 2**32, 5, dtype=np.uint32).tolist()
        doubles = [float(rng.random()) for _ in range(3)]
        rest = [[low, high, int(rng.integers(low, high + 1))]
                for low, high in ((0, 1), (0, 9), (-5, 5), (0, 2**31), (7, 7), (0, 3),
                                  (0, 2**32 - 1))
                for _ in range(4)]
        cases.append({"key": key, "u32": u32, "doubles": doubles, "integers": rest})
    return cases


def box(rng, height, width, scale, ratio):
    """top, left, height, width, as torchvision draws them."""
    area = height * width
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for _ in range(10):
        part = area * (scale[0] + (scale[1] - scale[0]) * rng.random())
        shape = math.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * rng.random())
        w, h = round(math.sqrt(part * shape)), round(math.sqrt(part / shape))
        if 0 < w <= width and 0 < h <= height:
            top = int(rng.integers(0, height - h + 1))
            return [top, int(rng.integers(0, width - w + 1)), h, w]
    w, h = width, height
    if width / height < min(ratio):
        h = round(w / min(ratio))
    elif width / height > max(ratio):
        w = round(h * max(ratio))
    return [(height - h) // 2, (width - w) // 2, h, w]


def boxes():
    cases = []
    for height, width in ((32, 32), (20, 48), (48, 20), (7, 100), (100, 7), (1, 1)):
        for scale, ratio in (((0.9, 1.0), (0.9, 1.1)), ((0.08, 1.0), (3 / 4, 4 / 3)),
                             ((1.0, 1.0), (1.0, 1.0))):
            cases.append({"height": height, "width": width, "scale": scale, "ratio": ratio,
                          "boxes": [box(generator(key), height, width, scale, ratio)
                                    for key in range(40)]})
    return cases


def resizes():
    cases = []
    sizes = ((32, 32, 30, 29), (29, 31, 32, 32), (8, 8, 32, 32), (40, 9, 6, 9), (5, 7, 5, 3),
             (1, 1, 3, 4), (64, 50, 8, 8))
    for i, (h, w, oh, ow) in enumerate(sizes):
        out = resized(image(i, h, w), oh, ow)
        cases.append({"seed": i, "from": [h, w], "to": [oh, ow], "bytes": out.tobytes().hex()})
    return cases


def augmented():
    """Flips, crops and normalises, as for the training data of the vision transformer."""
    cases = []
    for key in range(12, 20):
        rng, pixels = generator(key), image(key, 32, 32)
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        top, left, h, w = box(rng, 32, 32, (0.9, 1.0), (0.9, 1.1))
        pixels = resized(np.ascontiguousarray(pixels[top:top + h, left:left + w]), 32, 32)
        x = (np.array(pixels, dtype=np.float32) / 255. - np.array(MEANS)) / np.array(DEVIATIONS)
        cases.append({"key": key, "bytes": pixels.tobytes().hex(),
                      "normalised": [float(v) for v in x.astype(np.float32).ravel()[:48]]})
    return cases


def segments(data):
    """[offset, hex] of each run of blocks that are not all zeros."""
    parts, at = [], 0
    for begin in range(0, len(data), 32):
        part = data[begin:begin + 32]
        if any(part):
            if parts and at == begin:
                parts[-1][1] += part.hex()
            else:
                parts.append([begin, part.hex()])
            at = begin + len(part)
    return {"size_bytes": len(data), "parts": parts}


def record(i, size):
    """Long records are mostly zeros, which the golden file leaves out."""
    return bytes((i * 7 + j * 3) % 251 if j % 5000 < 300 else 0 for j in range(size))


def array_records():
    cases = []
    for options, count, size in (("group_size:1,uncompressed", 5, 20),
                                 ("group_size:4,zstd:3", 10, 300),
                                 ("group_size:2000,zstd:1", 5000, 2), ("", 3, 10),
                                 ("group_size:3,uncompressed", 7, 0),
                                 ("group_size:1,uncompressed", 3, 70000),
                                 ("group_size:1,brotli:5", 2, 300), ("group_size:1", 0, 0)):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/x.array_record"
            writer = array_record_module.ArrayRecordWriter(path, options)
            for i in range(count):
                writer.write(record(i, size))
            writer.close()
            data = pathlib.Path(path).read_bytes()
        cases.append({"options": options, "count": count, "record_bytes": size,
                      **segments(data)})
    return cases


def pickles():
    cases = []
    for protocol in range(6):
        batch = {b"batch_label": b"training batch 1 of 5", b"labels": [3, 9, 0],
                 b"data": np.stack([image(i, 32, 32).reshape(-1) for i in range(3)]),
                 b"filenames": [b"a.png", b"b.png", b"a.png"]}
        cases.append({"protocol": protocol, "bytes": pickle.dumps(batch, protocol).hex()})
    return cases


def pickled_arrays():
    """Small arrays, with their elements in row-major order."""
    cases = []
    for protocol in range(6):
        for array in (np.arange(6, dtype="<f4").reshape(2, 3) / 4,
                      np.asfortranarray(np.arange(-300, 300, 25).reshape(2, 3, 4)),
                      np.array([True, False]), np.array([[1, -2]], ">i2"), np.zeros((0, 4), "u1"),
                      np.array(2.5, "<f2")):
            cases.append({"type": array.dtype.str, "shape": array.shape,
                          "elements": array.tobytes().hex(),
                          "bytes": pickle.dumps(array, protocol).hex()})
    return cases


def npys():
    cases = []
    for dtype in ("|u1", "<i4", "<f4"):
        file = io.BytesIO()
        shift = 0 if dtype == "|u1" else 7
        np.save(file, (np.arange(24).reshape(4, 3, 2) * 5 - shift).astype(dtype))
        cases.append({"dtype": dtype, "bytes": file.getvalue().hex()})
    return cases


def main():
    golden = {"numpy": np.__version__, "pillow": PIL.__version__, "draws": draws(),
              "boxes": boxes(), "resizes": resizes(), "augmented": augmented(),
              "array_records": array_records(), "pickles": pickles(),
              "pickled_arrays": pickled_arrays(), "npys": npys()}
    path = pathlib.Path(__file__).parent / "golden/data.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


main()
