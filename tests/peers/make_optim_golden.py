"""Writes golden/optim.json from Optax itself: parameters after each of several updates, and
schedules.

Run in an environment with optax; the tests only read what it wrote. Gradients are recorded too.
bf16 parameters are updated as in the library: updates and optimiser state are f32.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

FILE = pathlib.Path(__file__).parent / "golden" / "optim.json"
STEPS = 6
# The leaves by path, in order; * marks bf16.
SHAPES = {"a/bias": (7,), "a/kernel": (5, 7), "b/scale": (), "b/wide": (3, 11), "c/kernel": (6, 1),
          "c/one": (1,), "d/tall": (13, 4), "d/bias*": (9,), "e/cube": (2, 5, 6),
          "f/square": (4, 4)}


def kernels(params):
    return {path: not path.rstrip("*").endswith(("bias", "scale")) for path in params}


def rank_two(params):
    return {path: value.ndim == 2 for path, value in params.items()}


def cases():
    cosine = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 5, 0.01)
    yield "sgd", optax.sgd(0.1)
    yield "sgd momentum", optax.sgd(0.1, momentum=0.9)
    yield "sgd nesterov", optax.sgd(0.1, momentum=0.9, nesterov=True)
    yield "sgd cosine", optax.sgd(cosine, momentum=0.9)
    yield "adam", optax.adam(0.1)
    yield "adam nesterov", optax.adam(0.1, b1=0.8, b2=0.99, eps_root=1e-3, nesterov=True)
    yield "adamw", optax.adamw(0.1, weight_decay=0.1)
    yield "adamw masked", optax.adamw(0.1, weight_decay=0.1, mask=kernels)
    yield "adamw cosine", optax.adamw(cosine)
    yield "adafactor", optax.adafactor(0.1)
    yield "adafactor small", optax.adafactor(0.1, min_dim_size_to_factor=4)
    yield "adafactor all", optax.adafactor(
        cosine, min_dim_size_to_factor=2, momentum=0.9, weight_decay_rate=0.01,
        weight_decay_mask=kernels, clipping_threshold=0.5, decay_rate=0.7)
    yield "adafactor plain", optax.adafactor(0.1, multiply_by_parameter_scale=False,
                                             clipping_threshold=None)
    yield "lion", optax.lion(0.1)
    yield "lion masked", optax.lion(0.1, b1=0.8, b2=0.95, weight_decay=0.1, mask=kernels)
    yield "muon", contrib.muon(0.1)
    yield "muon rms", contrib.muon(0.1, consistent_rms=0.2, weight_decay=0.1, nesterov=False,
                                   weight_decay_mask=lambda p: jax.tree.map(lambda x: True, p))
    yield "rmsprop", optax.rmsprop(0.1)
    yield "rmsprop centered", optax.rmsprop(0.1, decay=0.8, eps=1e-3, centered=True, momentum=0.9)
    yield "rmsprop all", optax.rmsprop(
        cosine, eps=1e-4, initial_scale=0.5, eps_in_sqrt=False, momentum=0.9, nesterov=True,
        bias_correction=True)
    yield "rmsprop deviation", optax.rmsprop(0.1, eps=1e-2, centered=True, eps_in_sqrt=False,
                                             initial_scale=2.0)
    yield "adagrad", optax.adagrad(0.1)
    yield "adagrad zero", optax.adagrad(cosine, initial_accumulator_value=0.0, eps=1e-3)
    yield "amsgrad", optax.amsgrad(0.1)
    yield "amsgrad root", optax.amsgrad(0.1, b1=0.8, b2=0.5, eps=1e-4, eps_root=1e-3)
    yield "adamax", optax.adamax(0.1)
    yield "adamax decay", optax.adamaxw(cosine, b1=0.8, b2=0.5, eps=1e-3, weight_decay=0.1,
                                        mask=kernels)
    # Averages of few gradients, because Optax computes their lengths in f32.
    yield "radam", optax.radam(0.1, b2=0.9)
    yield "radam all", optax.radam(cosine, b1=0.8, b2=0.8, eps=1e-3, eps_root=1e-3, threshold=4.5,
                                   nesterov=True)
    yield "adabelief", optax.adabelief(0.1)
    yield "adabelief all", optax.adabelief(cosine, b1=0.8, b2=0.9, eps=1e-4, eps_root=1e-3,
                                           nesterov=True)
    yield "lars", optax.lars(0.1)
    yield "lars all", optax.lars(cosine, weight_decay=0.1, weight_decay_mask=kernels,
                                 trust_coefficient=0.02, eps=1e-2, trust_ratio_mask=rank_two,
                                 momentum=0.8, nesterov=True)
    yield "trust ratio", optax.chain(optax.scale_by_trust_ratio(min_norm=2.0), optax.sgd(0.1))
    yield "adadelta", optax.adadelta(1.0)
    yield "adadelta decay", optax.adadelta(cosine, rho=0.8, eps=1e-3, weight_decay=0.1,
                                           weight_decay_mask=kernels)
    yield "lamb", optax.lamb(0.1)
    yield "lamb decay", optax.lamb(cosine, b1=0.8, b2=0.99, eps=1e-4, eps_root=1e-3,
                                   weight_decay=0.1, mask=kernels)
    yield "novograd", optax.novograd(0.1)
    yield "novograd decay", optax.novograd(0.1, b1=0.8, b2=0.5, eps=1e-3, eps_root=1e-3,
                                           weight_decay=0.1)
    yield "yogi", optax.yogi(0.1)
    yield "yogi small", optax.yogi(cosine, b1=0.8, b2=0.9, eps=1e-2)
    yield "clip norm", optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    yield "clip norm large", optax.chain(optax.clip_by_global_norm(1e3), optax.adam(0.1))
    yield "clip", optax.chain(optax.clip(0.3), optax.sgd(0.1))
    yield "chain", optax.chain(optax.trace(0.5), optax.clip_by_global_norm(2.0),
                               optax.add_decayed_weights(0.1, kernels), optax.trace(0.9),
                               optax.scale_by_schedule(lambda count: -0.1 / (1 + count)))
    yield "masked", optax.chain(optax.masked(optax.clip_by_global_norm(1.0), rank_two),
                                optax.adam(0.1))
    yield "multi steps", optax.MultiSteps(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(cosine)), 2)
    yield "multi steps 4", optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 4)


def schedules():
    yield "linear", optax.linear_schedule(0.1, 0.02, 7, 3)
    yield "polynomial", optax.polynomial_schedule(0.1, 0.02, 2.5, 7, 3)
    yield "polynomial root", optax.polynomial_schedule(0.0, 0.1, 0.5, 9)
    yield "linear one cycle", optax.linear_onecycle_schedule(11, 0.1, 0.4, 0.8, 10.0, 100.0)
    yield "linear one cycle falls", optax.linear_onecycle_schedule(7, 0.1, 0.0)
    yield "cosine one cycle", optax.cosine_onecycle_schedule(11, 0.1, 0.4, 10.0, 100.0)
    yield "cosine one cycle usual", optax.cosine_onecycle_schedule(10, 0.1)
    yield "cosine", optax.cosine_decay_schedule(0.1, 10, 0.1, 2.0)
    yield "warmup cosine", optax.warmup_cosine_decay_schedule(0.01, 0.1, 4, 12, 0.001)
    yield "exponential", optax.exponential_decay(0.1, 4, 0.5, 2)
    yield "exponential stairs", optax.exponential_decay(0.1, 4, 0.5, 2, True, 0.03)
    yield "piecewise", optax.piecewise_constant_schedule(0.1, {3: 0.5, 8: 0.1})
    yield "join", optax.join_schedules(
        [optax.linear_schedule(0, 1, 4), optax.constant_schedule(0.5),
         optax.exponential_decay(1.0, 3, 0.1)], [4, 9])


def numbers(array):
    return [float(f"{x:.9g}") for x in np.asarray(array, np.float64).ravel()]


def is_narrow(path):
    return path.endswith("*")


def rounded(tree):
    return {path: value.astype(jnp.bfloat16).astype(jnp.float32) if is_narrow(path) else value
            for path, value in tree.items()}


def random_tree(rng, scale):
    return rounded({path: jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32)
                    for path, shape in sorted(SHAPES.items())})


def run(optimiser, params, gradients):
    state = optimiser.init(params)
    after = []
    for gradient in gradients:
        updates, state = optimiser.update(gradient, state, params)
        params = rounded(optax.apply_updates(params, updates))
        after.append({path: numbers(value) for path, value in params.items()})
    return after


def main():
    rng = np.random.default_rng(0)
    params = random_tree(rng, 1.0)
    gradients = [random_tree(rng, 0.5) for _ in range(STEPS)]
    content = {
        "made_by": "tests/peers/make_optim_golden.py",
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
        "shapes": {path: list(shape) for path, shape in sorted(SHAPES.items())},
        "params": {path: numbers(value) for path, value in params.items()},
        "gradients": [{p: numbers(v) for p, v in tree.items()} for tree in gradients],
        "after": {name: run(optimiser, params, gradients) for name, optimiser in cases()},
        "schedules": {name: [float(schedule(step)) for step in range(16)]
                      for name, schedule in schedules()},
    }
    FILE.write_text(json.dumps(content) + "\n")


main()
