#!/usr/bin/python3
"""Trains the demo's byte-level transformer and writes model.npz (float16, under 2 MB).

    apt-get install python3-torch libopenblas0-pthread r-cran-janeaustenr
    nice -n 10 deploy/demo/train.py --minutes 10

One thread, a fixed seed. The budget is wall-clock time, so two machines give two checkpoints;
model.npz in this folder is the one that the demo and its tests use. The last part of the training
sees the full context; the first part sees shorter pieces, which is cheaper per byte.
"""

import argparse
import math
import time

import corpus
import numpy as np
import torch
import torch.nn.functional as F
from model import Config
from torch import nn

SHORT_CONTEXT = 128
SHORT_SHARE = 0.7  # of the time is spent on short pieces
TOKENS_PER_STEP = 1024
MUON_RATE = 0.02
ADAM_RATE = 4e-3
WARMUP_SHARE = 0.02
DECAY_SHARE = 0.6


def rotary_table(config, length):
    """cos and sin of the rotary embedding, [length, head_dim / 2] each."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_base**-exponents)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        d, kv = config.width, config.kv_heads * config.head_dim
        self.attention_norm = nn.Parameter(torch.ones(d))
        self.qkv = nn.Parameter(torch.randn(d, d + 2 * kv) / math.sqrt(d))
        self.out = nn.Parameter(torch.randn(d, d) / math.sqrt(d * 2 * config.layers))
        self.mlp_norm = nn.Parameter(torch.ones(d))
        self.gate_up = nn.Parameter(torch.randn(d, 2 * config.hidden) / math.sqrt(d))
        self.down = nn.Parameter(
            torch.randn(config.hidden, d) / math.sqrt(config.hidden * 2 * config.layers)
        )

    def forward(self, x, cos, sin, mask):
        c = self.config
        batch, length, _ = x.shape
        kv = c.kv_heads * c.head_dim
        q, k, v = (norm(x, self.attention_norm) @ self.qkv).split((c.width, kv, kv), dim=-1)
        q = rotate(q.view(batch, length, c.heads, c.head_dim).transpose(1, 2), cos, sin)
        k = rotate(k.view(batch, length, c.kv_heads, c.head_dim).transpose(1, 2), cos, sin)
        v = v.view(batch, length, c.kv_heads, c.head_dim).transpose(1, 2)
        k = k.repeat_interleave(c.heads // c.kv_heads, dim=1)
        v = v.repeat_interleave(c.heads // c.kv_heads, dim=1)
        scores = (q * c.head_dim**-0.5) @ k.transpose(-1, -2) + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, c.width)
        x = x + mixed @ self.out
        gate, up = (norm(x, self.mlp_norm) @ self.gate_up).chunk(2, dim=-1)
        return x + (F.silu(gate) * up) @ self.down


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + Config.norm_epsilon) * weight


class Transformer(nn.Module):
    """The torch twin of model.Transformer, with the same parameter names."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocabulary, config.width) * 0.05)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_norm = nn.Parameter(torch.ones(config.width))

    def forward(self, tokens):
        length = tokens.shape[1]
        cos, sin = rotary_table(self.config, length)
        mask = torch.full((length, length), -math.inf).triu(1)
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return norm(x, self.final_norm) @ self.embedding.T


def export(model, path):
    """Writes the float16 checkpoint in the layout that model.Transformer.load reads."""
    arrays = {name: value.detach().numpy().astype(np.float16) for name, value in model.named_parameters()}
    np.savez(path, **arrays)


def sample_batch(data, rows, length, generator):
    starts = torch.randint(len(data) - length - 1, (rows,), generator=generator)
    pieces = torch.stack([data[s : s + length + 1] for s in starts])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model, tokens, targets):
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(model, data, context):
    rows = data[: len(data) // context * context + 1]
    tokens = rows[:-1].view(-1, context)[:32]
    targets = rows[1:].view(-1, context)[:32]
    return loss_of(model, tokens, targets).item()


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal; learns far more per step than Adam at this size."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.02):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.lerp_(p.grad, 1 - group["momentum"])
                direction = orthogonal(p.grad.lerp(average, group["momentum"]))
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["decay"]).sub_(direction, alpha=group["lr"] * scale)


def orthogonal(matrix, iterations=5):
    """Drives every singular value towards 1 with a quintic Newton-Schulz iteration."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def optimizers_of(model):
    matrices = [p for layer in model.layers for p in layer.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    return [Muon(matrices, lr=MUON_RATE), torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.98))]


def train(model, data, minutes, report):
    optimizers = optimizers_of(model)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    generator = torch.Generator().manual_seed(1)
    start, step, done = time.monotonic(), 0, 0.0
    while done < 1.0:
        context = SHORT_CONTEXT if done < SHORT_SHARE else model.config.context
        rate = max(0.02, min(1.0, done / WARMUP_SHARE, (1 - done) / DECAY_SHARE))
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for group, peak in zip(groups, peaks):
            group["lr"] = peak * rate
        loss = loss_of(model, *sample_batch(data, TOKENS_PER_STEP // context, context, generator))
        model.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        done = (time.monotonic() - start) / (minutes * 60)
        if step % 100 == 0:
            report(step, done, loss.item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rdb", default=corpus.DEFAULT_RDB, help="the novels (see corpus.py)")
    parser.add_argument("--out", default="model.npz")
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = torch.frombuffer(bytearray(corpus.load(args.rdb)), dtype=torch.uint8).long()
    held_out, training = text[-100_000:], text[:-100_000]
    model = Transformer(Config())
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(training)} bytes of text")

    def report(step, done, loss):
        print(f"step {step}  {done:4.0%}  loss {loss:.3f}", flush=True)

    train(model, training, args.minutes, report)
    print(f"held-out loss {held_out_loss(model, held_out, model.config.context):.3f} nats per byte")
    export(model, args.out)


if __name__ == "__main__":
    main()
