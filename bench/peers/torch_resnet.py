"""The step of resnet_bench on PyTorch, in the same format: torch_resnet.py [STEPS [THREADS]]
[--contiguous] [--compile] [--json]. Arrays are channels-last without --contiguous."""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

args = argparse.ArgumentParser()
args.add_argument("steps", type=int, nargs="?", default=10)
args.add_argument("threads", type=int, nargs="?", default=1)
args.add_argument("--contiguous", action="store_true")
args.add_argument("--compile", action="store_true")
args.add_argument("--json", action="store_true")
args = args.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(0)
BATCH, SIDE, WIDTH, BLOCKS, CLASSES = 128, 32, 16, 3, 10


class ConvNorm(nn.Sequential):
    def __init__(self, channels, features, stride=1):
        super().__init__(nn.Conv2d(channels, features, 3, stride, 1, bias=False),
                         nn.BatchNorm2d(features))


class Block(nn.Module):
    def __init__(self, channels, features, stride):
        super().__init__()
        self.first = ConvNorm(channels, features, stride)
        self.second = ConvNorm(features, features)
        self.stride, self.more = stride, features - channels

    def forward(self, x):
        y = self.second(F.relu(self.first(x)))
        if self.stride == 2:
            low = self.more // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, low, self.more - low))
        return F.relu(y + x)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [WIDTH << stage for stage in range(3)]
        blocks, channels = [], WIDTH
        for stage, features in enumerate(widths):
            for block in range(BLOCKS):
                blocks.append(Block(channels, features, 2 if stage > 0 and block == 0 else 1))
                channels = features
        self.stem, self.blocks = ConvNorm(3, WIDTH), nn.Sequential(*blocks)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


model = ResNet()
images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(0, CLASSES, (BATCH,))
if not args.contiguous:
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
run = torch.compile(model) if args.compile else model


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(run(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


losses, cpu, wall = [], [], []
for _ in range(args.steps):
    start_cpu, start = time.process_time(), time.perf_counter()
    losses.append(step())
    cpu.append(time.process_time() - start_cpu)
    wall.append(time.perf_counter() - start)
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
if args.json:
    print(json.dumps(dict(name="resnet20", peer="torch", config=vars(args),
                          compile_s=round(wall[0], 3), step_ms_min=round(1e3 * min(wall[1:]), 2),
                          step_ms_median=round(1e3 * statistics.median(wall[1:]), 2),
                          step_cpu_ms_min=round(1e3 * min(cpu[1:]), 2), peak_rss_mib=rss,
                          losses=[round(loss, 6) for loss in losses])))
else:
    print(f"resnet20 cpu {min(cpu[1:]) * 1e3:.1f} wall {min(wall[1:]) * 1e3:.1f} rss {rss} "
          f"loss {losses[0]:.6g} {losses[-1]:.6g}")
