"""Writes golden/layers.json: layers with their state, losses and derivatives of functions, as Flax,
Optax and JAX compute them.

Run in an environment with jax, flax and optax; the tests only read what it wrote.
"""
import json
import pathlib

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

FILE = pathlib.Path(__file__).parent / "golden" / "layers.json"
jax.config.update("jax_default_matmul_precision", "highest")
rng = np.random.default_rng(26)


def array(shape, low=-2.0, high=2.0):
    """Multiples of 1/64, which JSON holds exactly."""
    return np.round(rng.uniform(low, high, shape) * 64).astype(np.float32) / 64


def packed(x):
    x = np.asarray(x)
    return dict(shape=list(x.shape), values=x.ravel().tolist())


def flat(tree):
    return {"/".join(path): x for path, x in flax.traverse_util.flatten_dict(tree).items()}


def packed_tree(tree):
    return {path: packed(x) for path, x in flat(tree).items()}


def weighted(x):
    return jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape))


def randomised(tree):
    return jax.tree.map(lambda x: jnp.asarray(array(x.shape)), tree)


def batch_norms():
    for shape in ((7, 3), (2, 5, 4), (4, 3, 5, 2), (1, 2, 3, 2, 6), (8, 1)):
        options = dict(momentum=float(rng.choice([0.99, 0.5, 0.9])),
                       epsilon=float(rng.choice([1e-5, 1e-3])), use_bias=bool(rng.integers(2)),
                       use_scale=bool(rng.integers(2)))
        x = array(shape) + np.float32(rng.integers(-3, 4))
        layer = nn.BatchNorm(use_running_average=False, use_fast_variance=False, **options)
        variables = layer.init(jax.random.PRNGKey(0), x)
        params = randomised(variables.get("params", {}))
        stats = dict(mean=array(shape[-1:]), var=array(shape[-1:], 0.25, 2.0))

        def apply(p, a):
            return layer.apply(dict(params=p, batch_stats=stats), a, mutable=["batch_stats"])

        y, updated = apply(params, x)
        gradients = jax.grad(lambda p, a: weighted(apply(p, a)[0]), (0, 1))(params, x)
        evaluated = nn.BatchNorm(use_running_average=True, **options).apply(
            dict(params=params, batch_stats=stats), x)
        yield dict(name="BatchNorm", options=options, x=packed(x), y=packed(y),
                   params=packed_tree(params), stats=packed_tree(stats),
                   new_stats=packed_tree(updated["batch_stats"]), evaluated=packed(evaluated),
                   gradients=packed_tree(gradients[0]), x_gradient=packed(gradients[1]))


def layer_case(name, layer, shape, **options):
    x = array(shape)
    params = randomised(layer.init(jax.random.PRNGKey(0), x)["params"])
    gradients = jax.grad(lambda p, a: weighted(layer.apply(dict(params=p), a)), (0, 1))(params, x)
    return dict(name=name, options=options, x=packed(x), params=packed_tree(params),
                y=packed(layer.apply(dict(params=params), x)),
                gradients=packed_tree(gradients[0]), x_gradient=packed(gradients[1]))


def norms():
    for shape, groups in (((2, 5, 6), 3), ((3, 4), 2), ((2, 3, 2, 8), 8), ((1, 4, 3), 1)):
        yield layer_case("GroupNorm", nn.GroupNorm(groups), shape, groups=groups)
    for shape in ((3, 5), (2, 3, 8)):
        yield layer_case("RMSNorm", nn.RMSNorm(epsilon=1e-3), shape, epsilon=1e-3)


def transposed_convolutions():
    for _ in range(8):
        space = int(rng.integers(1, 4))
        kernel = [int(n) for n in rng.integers(1, 5, space)]
        strides = [int(n) for n in rng.integers(1, 4, space)]
        dilation = [int(n) for n in rng.integers(1, 3, space)]
        padding = str(rng.choice(["SAME", "VALID"]))
        inputs, features = (int(n) for n in rng.integers(1, 4, 2))
        layer = nn.ConvTranspose(features, tuple(kernel), tuple(strides), padding,
                                 kernel_dilation=tuple(dilation))
        shape = (2,) + tuple(int(n) for n in rng.integers(2, 5, space)) + (inputs,)
        yield layer_case("ConvTranspose", layer, shape, kernel=kernel, strides=strides,
                         dilation=dilation, padding=padding, features=features)


def cells():
    for name, cell in (("SimpleCell", nn.SimpleCell), ("LSTMCell", nn.LSTMCell),
                       ("GRUCell", nn.GRUCell)):
        layer = nn.RNN(cell(features=3))
        case = layer_case(name, layer, (2, 5, 4), features=3)
        variables = layer.init(jax.random.PRNGKey(5), np.zeros((2, 5, 4), np.float32))
        case["initial"] = packed_tree(variables["params"])
        for key in ("params", "gradients", "initial"):
            case[key] = {path.removeprefix("cell/"): x for path, x in case[key].items()}
        yield case


def orthogonal():
    """The columns from which orthogonal matrices are made."""
    for seed, shape in enumerate(((4, 4), (7, 3), (2, 5), (2, 3, 4), (24, 24))):
        init = nn.initializers.orthogonal(scale=1.5)
        yield dict(seed=seed, shape=shape, values=packed(init(jax.random.PRNGKey(seed), shape)))


def losses():
    logits = array((4, 3, 7), -4.0, 4.0)
    labels = rng.integers(0, 7, (4, 3))
    for s in (0.0, 0.1, 0.5):
        def smoothed(x):
            soft = optax.smooth_labels(jax.nn.one_hot(labels, 7), s)
            return optax.softmax_cross_entropy(x, soft)
        yield loss_case("cross_entropy", smoothed, logits, labels, smoothing=s)
    targets = array((4, 5), 0.0, 1.0)
    yield loss_case("binary", lambda x: optax.sigmoid_binary_cross_entropy(x, targets),
                    array((4, 5), -30.0, 30.0), targets)
    targets = array((4, 5))
    for delta in (0.5, 1.0, 3.0):
        yield loss_case("huber", lambda x: optax.huber_loss(x, targets, delta=delta), array((4, 5)),
                        targets, delta=delta)


def loss_case(name, loss, x, targets, **options):
    return dict(name=name, options=options, x=packed(x), targets=packed(targets),
                y=packed(loss(x)), x_gradient=packed(jax.grad(lambda a: weighted(loss(a)))(x)))


def derivatives():
    """Derivatives of the functions with the same names in the test; x [2, 3], y [2, 3]."""
    def mixed(x, y):
        return jnp.sin(x) @ jnp.exp(y).T / (1 + jnp.sum(x * x)) + jnp.tanh(y) @ x.T

    def scanned(x, y):
        return jax.lax.scan(lambda c, a: (c * jnp.sin(a) + y[0], c), y[0] + 1, x)[1]

    def branched(x, y):
        return jax.lax.cond(x[0, 0] > 0, lambda: jnp.cumsum(x * y, 1),
                            lambda: jax.nn.softmax(x - y))

    functions = dict(mixed=mixed, scanned=scanned, branched=branched)
    for name, f in functions.items():
        for _ in range(3):
            x, y, dx, dy = (array((2, 3), -1.0, 1.0) for _ in range(4))
            out, pull = jax.vjp(f, x, y)
            ct = array(out.shape)
            scalar = lambda a: weighted(f(a, y))
            yield dict(name=name, x=packed(x), y=packed(y), dx=packed(dx), dy=packed(dy),
                       ct=packed(ct), out=packed(out), vjp=[packed(g) for g in pull(ct)],
                       jvp=packed(jax.jvp(f, (x, y), (dx, dy))[1]),
                       jacobian=packed(jax.jacobian(f)(x, y)),
                       jacobian_y=packed(jax.jacobian(f, 1)(x, y)),
                       hessian=packed(jax.hessian(scalar)(x)))


def attentions():
    """Attention of x to itself or to other arrays, with padding after random lengths."""
    for i in range(12):
        heads, width, kv_width = (int(n) for n in rng.integers(1, 4, 3))
        features = int(rng.integers(2, 7))
        options = dict(heads=heads, qkv=heads * width, use_bias=bool(rng.integers(2)),
                       cross=i % 3 > 0, causal=bool(rng.integers(2)), padded=bool(i % 2))
        batch, queries = (int(n) for n in rng.integers(1, 5, 2))
        keys = int(rng.integers(1, 6)) if options["cross"] else queries
        x = array((batch, queries, features))
        seen = array((batch, keys, kv_width + 1)) if options["cross"] else x
        lengths = rng.integers(1, keys + 1, batch)
        mask = np.ones((batch, 1, queries, keys), bool)
        if options["causal"]:
            mask &= np.arange(queries)[:, None] >= np.arange(keys)
        if options["padded"]:
            mask &= np.arange(keys) < lengths[:, None, None, None]
        layer = nn.MultiHeadDotProductAttention(heads, qkv_features=heads * width,
                                                use_bias=options["use_bias"])
        params = randomised(layer.init(jax.random.PRNGKey(0), x, seen)["params"])

        def apply(p, a, b):
            return layer.apply(dict(params=p), a, b if options["cross"] else a, mask=mask)

        gradients = jax.grad(lambda *args: weighted(apply(*args)), (0, 1, 2))(params, x, seen)
        yield dict(options=options, x=packed(x), seen=packed(seen), lengths=lengths.tolist(),
                   params=packed_tree(params), y=packed(apply(params, x, seen)),
                   gradients=packed_tree(gradients[0]), x_gradient=packed(gradients[1]),
                   seen_gradient=packed(gradients[2]))


def all_of(*makers):
    return [case for make in makers for case in make()]


FILE.write_text(json.dumps(dict(
    source=f"Flax {flax.__version__}, Optax {optax.__version__}, JAX {jax.__version__}",
    layers=all_of(batch_norms, norms, transposed_convolutions, cells),
    orthogonal=all_of(orthogonal), losses=all_of(losses), derivatives=all_of(derivatives),
    attention=all_of(attentions))) + "\n")
