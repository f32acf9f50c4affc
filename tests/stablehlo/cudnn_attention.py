"""Writes cudnn_attention.txt, JAX's calls of cuDNN's attention, without names of values and
escapes:

    python tests/stablehlo/cudnn_attention.py > tests/stablehlo/cudnn_attention.txt

It needs JAX 0.11.2 with jax-cuda13-plugin, and no GPU."""
import re

import jax
import jax._src.cudnn.fused_attention_stablehlo as fused
import jax.numpy as jnp

# These ask the GPU and its libraries.
fused.check_cudnn_version = lambda: 91100
fused.check_compute_capability = lambda capability: True
fused.is_cuda_compute_capability_equal = lambda capability: False


def loss(q, k, v):
    output = fused.dot_product_attention(q, k, v, scale=0.125, mask_type=fused.MaskType.CAUSAL)
    return jnp.sum(output.astype(jnp.float32) ** 2)


x = jnp.zeros((2, 128, 4, 64), jnp.bfloat16)
traced = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).trace(x, x, x)
text = traced.lower(lowering_platforms=("cuda",)).as_text()
for line in text.splitlines():
    if "custom_call" in line:
        print(re.sub(r"%\w+(#\d+)?", "%", line.split("= ", 1)[1]).replace(r"\22", '"'))
