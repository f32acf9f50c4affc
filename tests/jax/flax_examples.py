"""Trains with the examples of Flax, three steps each, on Tessera and on JAX's CPU backend.

    flax_examples.py CHECKOUT [EXAMPLE...]

CHECKOUT is a checkout of Flax at the tag of the installed version. Models, losses and steps are
those of the examples. Arrays of random numbers replace what the data loaders would read, and sizes
are small. Each example runs on 1 and on 8 devices. Prints the losses, and fails if they differ."""
import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import types

STEPS = 3
TOLERANCE = 2e-4
# Packages that data loaders, logs and command lines need, but steps do not.
ABSENT = {"PIL", "ale_py", "clu", "cv2", "gymnasium", "ml_collections", "orbax",
          "sentencepiece", "tensorboard", "tensorflow", "tensorflow_datasets", "tensorflow_text"}


class Anything(types.ModuleType):
    """Stands for any module, class or function, and does nothing."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)

    def __call__(self, *_, **__):
        return Anything("result")

    def __mro_entries__(self, bases):
        del bases
        return (object,)


class Settings(dict):
    """Stands for the configurations of the examples: a dictionary with attributes."""
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Loader:
    def find_spec(self, name, path=None, target=None):
        del path, target
        if name.split(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        if module.__name__ == "ml_collections":
            module.ConfigDict = Settings


def split(array):
    """The array with its first dimension split over all devices."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((jax.device_count(),), ("data",),
                         axis_types=(jax.sharding.AxisType.Auto,))
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec("data")))


def mnist(rng):
    import train
    from flax import nnx
    import optax
    config = importlib.import_module("configs.default").get_config()
    model = train.CNN(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(config.learning_rate, config.momentum),
                              wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    rngs = nnx.Rngs(0)
    model.train()
    for _ in range(STEPS):
        metrics.reset()
        batch = {"image": split(rng.random((32, 28, 28, 1), "float32")),
                 "label": split(rng.integers(0, 10, 32).astype("int32"))}
        train.train_step(model, optimizer, metrics, batch, rngs)
        yield metrics.compute()["loss"]


def imagenet(rng):
    import functools
    import jax
    import models
    import train
    config = importlib.import_module("configs.default").get_config()
    devices = jax.device_count()
    batch_size, image = 16, 64
    model = train.create_model(model_cls=models.ResNet50, half_precision=False)
    rate = train.create_learning_rate_fn(config, config.learning_rate * batch_size / 256, 2)
    state = train.create_train_state(jax.random.key(0), config, model, image, rate)
    step = jax.pmap(functools.partial(train.train_step, learning_rate_fn=rate),
                    in_axes=(None, 0), out_axes=(None, 0), axis_name="batch")
    for _ in range(STEPS):
        shape = (devices, batch_size // devices)
        batch = {"image": rng.standard_normal((*shape, image, image, 3), "float32"),
                 "label": rng.integers(0, 1000, shape).astype("int32")}
        state, metrics = step(state, batch)
        yield metrics["loss"].mean()


def lm1b(rng):
    import jax
    import models
    import optax
    import train
    import utils
    config = importlib.import_module("configs.default").get_config()
    config.update(emb_dim=64, num_heads=8, num_layers=2, qkv_dim=64, mlp_dim=256,
                  max_target_length=32, max_eval_target_length=32)
    sizes = {key: config[key] for key in ("emb_dim", "num_heads", "num_layers", "qkv_dim",
                                          "mlp_dim", "dropout_rate", "attention_dropout_rate")}
    settings = models.TransformerConfig(vocab_size=512, output_vocab_size=512, max_len=32, **sizes)
    mesh = jax.sharding.Mesh(utils.create_device_mesh(config), config.mesh_axes)
    rate = train.create_learning_rate_schedule(config.learning_rate, 1)
    optimizer = optax.adamw(rate, b1=0.9, b2=0.98, eps=1e-9, weight_decay=config.weight_decay)
    state, shardings = utils.setup_initial_state(
        models.TransformerLM(settings.replace(deterministic=True)), optimizer, config,
        jax.random.PRNGKey(0), mesh)
    data = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(config.data_sharding))
    step = jax.jit(train.train_step, in_shardings=(shardings, data, None),
                   out_shardings=(shardings, None), static_argnums=(2, 3, 4), donate_argnums=0)
    for _ in range(STEPS):
        batch = {"inputs": rng.integers(1, 512, (16, 32)).astype("int32")}
        with mesh:
            state, metrics = step(state, batch, settings, rate, 0.0, jax.random.PRNGKey(1))
        yield metrics["loss"] / metrics["denominator"]


def seq2seq(rng):
    del rng
    import jax
    import train
    train.FLAGS(["seq2seq", "--batch_size=32"])
    random.seed(0)
    table = train.CTable("0123456789+= ", train.FLAGS.max_len_query_digit)
    key = jax.random.key(0)
    state = train.get_train_state(key, table)
    for _ in range(STEPS):
        batch = jax.tree.map(split, table.get_batch(train.FLAGS.batch_size))
        state, metrics = train.train_step(state, batch, key, table.eos_id)
        yield metrics["loss"]


def vae(rng):
    from flax.training import train_state
    import jax
    import models
    import optax
    import train
    config = importlib.import_module("configs.default").get_config()
    model = models.model(config.latents)
    key = jax.random.key(0)
    params = model.init(key, jax.numpy.ones((32, 784)), key)["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params,
                                          tx=optax.adam(config.learning_rate))
    for i in range(STEPS):
        batch = split((rng.random((32, 784)) < 0.5).astype("float32"))
        noise = jax.random.fold_in(key, i)
        state = train.train_step(state, batch, noise, config.latents)
        recon, mean, logvar = model.apply({"params": state.params}, batch, noise)
        yield train.compute_metrics(recon, batch, mean, logvar)["loss"]


def ppo(rng):
    import jax
    import models
    import ppo_lib
    config = importlib.import_module("configs.default").get_config()
    model = models.ActorCritic(num_outputs=6)
    params = ppo_lib.get_initial_params(jax.random.key(0), model)
    state = ppo_lib.create_train_state(params, model, config, STEPS)
    for _ in range(STEPS):
        numbers = [rng.standard_normal(32, "float32") for _ in range(3)]
        batch = (rng.integers(0, 255, (32, 84, 84, 4)).astype("float32"),
                 rng.integers(0, 6, 32).astype("int32"), -abs(numbers[0]), *numbers[1:])
        state, loss = ppo_lib.train_step(
            state, tuple(map(split, batch)), 32, clip_param=config.clip_param,
            vf_coeff=config.vf_coeff, entropy_coeff=config.entropy_coeff)
        yield loss


EXAMPLES = {example.__name__: example for example in (mnist, imagenet, lm1b, seq2seq, vae, ppo)}


def losses_of(checkout, name, platform, devices):
    environment = dict(os.environ, JAX_PLATFORMS=platform, TESSERA_NUM_DEVICES=str(devices),
                       XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")
    run = subprocess.run([sys.executable, __file__, "--here", checkout, name], env=environment,
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return run.stderr.strip().splitlines()[-6:]
    return json.loads(run.stdout.splitlines()[-1])


def run_here(checkout, name):
    import numpy
    sys.meta_path.append(Loader())
    sys.path.insert(0, str(pathlib.Path(checkout) / "examples" / name))
    losses = [float(loss) for loss in EXAMPLES[name](numpy.random.default_rng(0))]
    print(json.dumps(losses))


def main():
    if sys.argv[1] == "--here":
        return run_here(*sys.argv[2:])
    checkout, names = sys.argv[1], sys.argv[2:] or list(EXAMPLES)
    failed = False
    for name in names:
        for devices in (1, 8):
            ours, xla = (losses_of(checkout, name, platform, devices)
                         for platform in ("tessera", "cpu"))
            numbers = all(isinstance(each, float) for each in ours + xla)
            worst = max((abs(a - b) / abs(b) for a, b in zip(ours, xla)), default=1) if (
                numbers) else None
            failed |= worst is None or not worst <= TOLERANCE
            print(f"{name} on {devices}: {ours}\n  XLA: {xla}\n  difference: {worst}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
