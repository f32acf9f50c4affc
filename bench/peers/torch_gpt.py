"""A GPT on PyTorch with its fused attention: step times and peak memory as one JSON object.

The same model as `tessera train lm --causal`. For one long sequence:

    bench/peers/torch_gpt.py --vocab 512 --seq 4096 --width 512 --heads 8 --layers 4 --batch 1
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in dict(vocab=50257, seq=512, width=768, heads=12, layers=12, batch=4,
                            steps=4).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.bf16, self.device = a.bf16, a.device
        self.tokens = nn.Embedding(a.vocab, a.width)
        self.positions = nn.Parameter(0.02 * torch.randn(a.seq, a.width))
        self.blocks = nn.Sequential(*[Block(a.width, a.heads) for _ in range(a.layers)])
        self.norm, self.head = nn.LayerNorm(a.width), nn.Linear(a.width, a.vocab, bias=False)

    def loss(self, tokens):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            x = self.tokens(tokens) + self.positions
            logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def device_peak_mib(device):
    return round(torch.cuda.max_memory_allocated() / 2**20) if device == "cuda" else None


def main():
    a = flags()
    model = Model(a).to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    tokens = torch.randint(0, a.vocab, (a.batch, a.seq), device=a.device)
    loss_of = torch.compile(model.loss) if a.compile else model.loss
    seconds, cpu, losses = [], [], []
    for _ in range(a.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(tokens)
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 6))
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    peak_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(dict(name="gpt", peer="torch", config=vars(a), torch=torch.__version__,
                          compile_s=round(seconds[0], 3),
                          step_ms_min=round(1e3 * min(seconds[1:]), 2),
                          step_ms_median=round(1e3 * statistics.median(seconds[1:]), 2),
                          step_cpu_ms_min=round(1e3 * min(cpu[1:]), 2),
                          peak_rss_mib=peak_rss_mib, losses=losses,
                          device_peak_mib=device_peak_mib(a.device))))


main()
