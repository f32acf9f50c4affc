"""Loops over small values, such as samplers, filters and solvers, on the plugin and on XLA's CPU
backend in turns: the least microseconds of a round, and Tessera's as a share of XLA's.

    JAX_PLATFORMS=tessera,cpu python small_loops.py [--calls N] [NAME..]

In most of them a round takes less time than a call of an op. With JAX_ENABLE_X64=1, numbers are
f64.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from common import least_times

RANDOM = np.random.default_rng(0)
FLOAT = np.float64 if jax.config.jax_enable_x64 else np.float32
LONG, SHORT = 2000, 200  # numbers of rounds
PROGRAMS = {}


def numbers(*shape):
    return RANDOM.random(shape, FLOAT)


def program(rounds, *arguments):
    """Registers a function with this number of rounds and these arguments."""
    def register(function):
        PROGRAMS[function.__name__] = function, rounds, arguments
        return function
    return register


def softplus_bowl(x):
    return 0.5 * (x * x).sum() + jnp.log1p(jnp.exp(x)).sum()


@program(LONG, np.int32(1))
def metropolis_of_one(seed):
    def step(state, key):
        x, energy = state
        jump, choice = jax.random.split(key)
        y = x + jax.random.normal(jump)
        other = softplus_bowl(y)
        accepts = jnp.log(jax.random.uniform(choice)) < energy - other
        state = jnp.where(accepts, y, x), jnp.where(accepts, other, energy)
        return state, state[0]

    start = jnp.zeros((), FLOAT)
    keys = jax.random.split(jax.random.key(seed), LONG)
    return lax.scan(step, (start, softplus_bowl(start)), keys)[1]


@program(LONG, np.int32(1))
def metropolis_with_cond(seed):
    def step(state, key):
        x, energy = state
        jump, choice = jax.random.split(key)
        y = x + jax.random.normal(jump, (8,))
        other = softplus_bowl(y)
        accepts = jnp.log(jax.random.uniform(choice)) < energy - other
        state = lax.cond(accepts, lambda: (y, other), lambda: (x, energy))
        return state, state[0]

    keys = jax.random.split(jax.random.key(seed), LONG)
    start = jnp.zeros(8)
    return lax.scan(step, (start, softplus_bowl(start)), keys)[1]


@program(SHORT, np.int32(1))
def hamiltonian_monte_carlo(seed):
    force = jax.grad(softplus_bowl)

    def leap(_, state):
        x, p = state
        p = p - 0.05 * force(x)
        x = x + 0.1 * p
        return x, p - 0.05 * force(x)

    def step(x, key):
        kick, choice = jax.random.split(key)
        p = jax.random.normal(kick, (8,))
        y, q = lax.fori_loop(0, 10, leap, (x, p))
        change = softplus_bowl(y) + 0.5 * (q * q).sum() - softplus_bowl(x) - 0.5 * (p * p).sum()
        x = jnp.where(jnp.log(jax.random.uniform(choice)) < -change, y, x)
        return x, x

    return lax.scan(step, jnp.zeros(8), jax.random.split(jax.random.key(seed), SHORT))[1]


def forward_algorithm(emissions, transitions):
    def step(state, emission):
        return jax.nn.logsumexp(state[:, None] + transitions, axis=0) + emission, None

    return jax.nn.logsumexp(lax.scan(step, emissions[0], emissions[1:])[0])


program(LONG, numbers(LONG, 16), numbers(16, 16))(forward_algorithm)


@program(LONG, numbers(LONG, 16), numbers(16, 16))
def forward_algorithm_gradient(emissions, transitions):
    return jax.grad(forward_algorithm)(emissions, transitions)


@program(LONG, FLOAT(3))
def newton(a):
    def step(state):
        x, i = state
        return x - (x * x - a) / (2 * x), i + 1

    return lax.while_loop(lambda state: state[1] < LONG, step, (a, 0))[0]


@program(LONG, numbers(LONG))
def filter_of_second_order(x):
    def step(state, x):
        y = x + 0.5 * state[0] - 0.2 * state[1]
        return (y, state[0]), y

    return lax.scan(step, (0.0, 0.0), x)[1]


@program(LONG, *(numbers(LONG, 64) for _ in range(3)))
def advantages(rewards, values, ends):
    def step(advantage, slices):
        reward, value, following, end = slices
        delta = reward + 0.99 * following * (1 - end) - value
        advantage = delta + 0.99 * 0.95 * (1 - end) * advantage
        return advantage, advantage

    following = jnp.concatenate([values[1:], values[-1:]])
    return lax.scan(step, jnp.zeros(64), (rewards, values, following, ends), reverse=True)[1]


@program(LONG, np.ones(3, FLOAT))
def runge_kutta(y):
    def slope(y):
        a, b, c = y
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    def step(y, _):
        k1 = slope(y)
        k2 = slope(y + 0.005 * k1)
        k3 = slope(y + 0.005 * k2)
        k4 = slope(y + 0.01 * k3)
        y = y + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lax.scan(step, y, None, length=LONG)[1]


@program(SHORT, numbers(SHORT, 2), numbers(2, 4))
def kalman_filter(measured, matrix):
    def step(state, z):
        x, p = state
        x, p = 0.9 * x, 0.81 * p + 0.1 * jnp.eye(4)
        spread = matrix @ p @ matrix.T + 0.1 * jnp.eye(2)
        gain = jnp.linalg.solve(spread, matrix @ p).T
        x = x + gain @ (z - matrix @ x)
        return (x, (jnp.eye(4) - gain @ matrix) @ p), x

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), measured)[1]


@program(LONG, np.int32(1))
def walk_on_a_grid(seed):
    moves = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def step(state, key):
        place, total = state
        place = jnp.clip(place + moves[jax.random.randint(key, (), 0, 4)], 0, 7)
        is_home = jnp.all(place == 7)
        reward = jnp.where(is_home, 1.0, -0.1)
        return (jnp.where(is_home, 0, place), total + reward), reward

    return lax.scan(step, (jnp.zeros(2, jnp.int32), 0.0),
                    jax.random.split(jax.random.key(seed), LONG))


@program(SHORT, np.int32(1))
def many_carts(seed):
    def step(state, key):
        place, speed = state
        speed = jnp.clip(speed + jax.random.uniform(key) - 0.5, -1, 1)
        place = place + 0.1 * speed
        ends = jnp.abs(place) > 1
        return (jnp.where(ends, 0.0, place), jnp.where(ends, 0.0, speed)), place

    keys = jax.random.split(jax.random.key(seed), (128, SHORT))
    return jax.vmap(lambda keys: lax.scan(step, (0.0, 0.0), keys)[1])(keys)


@program(LONG, numbers(LONG))
def recurrence_in_an_array(x):
    return lax.fori_loop(1, LONG, lambda i, y: y.at[i].set(0.5 * y[i - 1] + x[i]), jnp.zeros(LONG))


@program(64 * 64, *(RANDOM.integers(0, 4, 64).astype(np.int32) for _ in range(2)))
def edit_distance(first, second):
    def step(i, table):
        def cell(j, table):
            change = table[i, j] + jnp.where(first[i] == second[j], 0, 1)
            least = jnp.minimum(jnp.minimum(table[i, j + 1], table[i + 1, j]) + 1, change)
            return table.at[i + 1, j + 1].set(least)

        return lax.fori_loop(0, 64, cell, table)

    table = jnp.zeros((65, 65), jnp.int32).at[0].set(jnp.arange(65)).at[:, 0].set(jnp.arange(65))
    return lax.fori_loop(0, 64, step, table)


@program(LONG, numbers(LONG))
def exchange_of_elements(x):
    def step(i, x):
        j = i * 31 % LONG
        return x.at[i].set(x[j]).at[j].set(x[i])

    return lax.fori_loop(0, LONG, step, x)


@program(LONG, numbers(LONG) + 1, numbers(LONG))
def tridiagonal_system(diagonal, x):
    def step(i, state):
        upper, y = state
        pivot = 1 / (diagonal[i] - 0.1 * upper[i - 1])
        return upper.at[i].set(0.3 * pivot), y.at[i].set((x[i] - 0.1 * y[i - 1]) * pivot)

    return lax.fori_loop(1, LONG, step, (jnp.zeros(LONG), jnp.zeros(LONG)))[1]


@program(SHORT, numbers(SHORT, 64, 32), RANDOM.integers(0, 32, (SHORT, 64)).astype(np.int32),
         numbers(32))
def gradient_of_chosen_scores(scores, chosen, scale):
    def loss(scores, scale):
        def step(total, slices):
            score, choice = slices
            likelihood = jax.nn.log_softmax(score * scale)
            return total + likelihood[jnp.arange(64), choice].sum(), None

        return lax.scan(step, 0.0, (scores, chosen))[0]

    return jax.grad(loss, argnums=(0, 1))(scores, scale)


@program(SHORT, numbers(8, 32), numbers(32, 1), numbers(SHORT, 32, 8), numbers(SHORT, 32, 1))
def steps_of_a_small_network(first, second, x, y):
    def loss(matrices, x, y):
        return ((jnp.tanh(x @ matrices[0]) @ matrices[1] - y) ** 2).mean()

    def step(matrices, batch):
        gradients = jax.grad(loss)(matrices, *batch)
        return tuple(m - 0.1 * g for m, g in zip(matrices, gradients)), None

    return lax.scan(step, (first, second), (x, y))[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--calls", type=int, default=300, help="of each program")
    parser.add_argument("names", nargs="*", help="programs; all without any")
    options = parser.parse_args()
    for name, (function, rounds, arguments) in PROGRAMS.items():
        if options.names and name not in options.names:
            continue
        least = least_times(function, arguments, options.calls)
        ours, theirs = (1e6 * least[platform] / rounds for platform in ("tessera", "cpu"))
        print(f"{name:28} {ours:8.3f} us  XLA {theirs:8.3f} us  {ours / theirs:6.2f}", flush=True)


main()
