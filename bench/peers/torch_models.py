"""The models of examples/lm and examples/vit on PyTorch: one process on all CPU cores or on a GPU,
eager or with torch.compile."""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

args = argparse.ArgumentParser()
args.add_argument("model", choices=["lm", "vit"])
args.add_argument("--compile", action="store_true")
args.add_argument("--batch", type=int)
args.add_argument("--steps", type=int, default=8)
args.add_argument("--device", default="cpu", help="cpu or cuda")
args = args.parse_args()
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width, bias=bias), \
            nn.Linear(width, width, bias=bias)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, bias, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention, self.dropout = Attention(width, heads, bias), nn.Dropout(dropout)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.down(self.dropout(
            F.gelu(self.up(self.norm2(x)), approximate="tanh"))))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(512, 256), nn.Parameter(torch.randn(64, 256))
        self.blocks = nn.Sequential(*[Block(256, 8, 1024, False, 0.0) for _ in range(4)])
        self.norm, self.head = nn.LayerNorm(256, eps=1e-6), nn.Linear(256, 512, bias=False)

    def loss(self, tokens):
        logits = self.head(self.norm(self.blocks(self.embed(tokens) + self.positions)))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.cls = nn.Conv2d(3, 384, 4, 4), nn.Parameter(torch.zeros(1, 1, 384))
        self.blocks = nn.Sequential(*[Block(384, 8, 1536, True, 0.1) for _ in range(6)])
        self.norm, self.head = nn.LayerNorm(384, eps=1e-6), nn.Linear(384, 10)

    def loss(self, batch):
        images, labels = batch
        x = self.conv(images).flatten(2).transpose(1, 2)
        x = self.blocks(torch.cat((self.cls.expand(len(x), -1, -1), x), 1))
        return F.cross_entropy(self.head(self.norm(x[:, 0])), labels)


if args.model == "lm":
    size, model = args.batch or 32, LM().to(args.device)
    batch, optimizer = torch.randint(0, 512, (size, 64), device=args.device), \
        torch.optim.AdamW(model.parameters(), 3e-4)
else:
    size, model = args.batch or 128, ViT().to(args.device)
    batch = torch.randn(size, 3, 32, 32, device=args.device), \
        torch.randint(0, 10, (size,), device=args.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

loss_fn = torch.compile(model.loss) if args.compile else model.loss
seconds, losses = [], []
for _ in range(args.steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(batch)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - start)
timed = seconds[2:]
peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else None
print(json.dumps(dict(name=args.model, peer="torch", config=vars(args),
                      compile_s=round(seconds[0], 3),
                      step_ms_min=round(1e3 * min(timed), 2),
                      step_ms_median=round(1e3 * statistics.median(timed), 2),
                      peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                      device_peak_mib=peak and round(peak / 2**20),
                      losses=[round(x, 6) for x in losses])))
