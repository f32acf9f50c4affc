#!/usr/bin/env python3
"""make_digits.py FOLDER: the digits of scikit-learn in CIFAR-10's binary layout.

1,797 scans of handwritten digits (E. Alpaydin, C. Kaynak 1998) of 8x8 pixels with 17 levels become
grey images of 32x32, enlarged bilinearly. A fifth of the scans, every fifth of a random order, is
the test set; the others are shared by the five training files. Needs numpy and scikit-learn.
"""
import argparse
import pathlib

import numpy as np
from sklearn.datasets import load_digits

SIDE = 32
SEED = 0


def bilinear_weights(size, to):
    """[to, size]: what each place of the longer line is a mean of; pixels have their centres at
    i + 0.5, beyond the outer ones their values go on."""
    centres = (np.arange(to) + 0.5) * size / to - 0.5
    low = np.clip(np.floor(centres), 0, size - 2).astype(int)
    part = np.clip(centres - low, 0, 1)
    weights = np.zeros((to, size))
    weights[np.arange(to), low] = 1 - part
    weights[np.arange(to), low + 1] += part
    return weights


def enlarged(scans):
    """f64 [n,8,8] of 0 to 16 -> u8 [n,32,32]"""
    weights = bilinear_weights(scans.shape[1], SIDE)
    images = np.einsum("yi,nij,xj->nyx", weights, scans, weights)
    return np.rint(images * 255 / 16).astype(np.uint8)


def records(images, labels):
    """A label and three equal planes each."""
    planes = np.repeat(images.reshape(len(images), 1, -1), 3, axis=1).reshape(len(images), -1)
    return np.concatenate([labels.astype(np.uint8)[:, None], planes], axis=1).tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    digits = load_digits()
    images, labels = enlarged(digits.images), digits.target
    order = np.random.RandomState(SEED).permutation(len(images))
    test = order[::5]
    train = np.delete(order, np.s_[::5])
    folder.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(np.array_split(train, 5), 1):
        (folder / f"data_batch_{i}.bin").write_bytes(records(images[part], labels[part]))
    (folder / "test_batch.bin").write_bytes(records(images[test], labels[test]))
    (folder / "batches.meta.txt").write_text("".join(f"{n}\n" for n in digits.target_names))
    print(f"{len(train)} images to train on, {len(test)} to test: {folder}")


main()
