"""A small byte-level transformer in NumPy, one token at a time.

Prompt and generated tokens go through the same `step`, so what a token computes depends only on
the tokens before it and on the cached keys and values, never on which process computed those.
That makes a split run (prefill here, decode there) comparable bit by bit with a single run.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

# One thread: a BLAS that splits its work differently from run to run would round differently.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402  (must come after the line above)

_TEMPERATURE = 0.6
_NOISE_SEED = 7

CHECKPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.npz")


@dataclass(frozen=True)
class Config:
    """Shape of the model: grouped-query attention, rotary positions, SwiGLU."""

    vocabulary: int = 256
    layers: int = 5
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    hidden: int = 336
    context: int = 512
    rope_base: float = 10000.0
    norm_epsilon: ClassVar[float] = 1e-5


def _norm(x, weight):
    return x / np.sqrt(np.mean(x * x) + Config.norm_epsilon) * weight


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Transformer:
    """Weights of a checkpoint, widened to float32."""

    def __init__(self, arrays, config=Config()):
        self.config = config
        self._weights = {name: np.ascontiguousarray(a, np.float32) for name, a in arrays.items()}
        exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / config.head_dim
        angles = np.outer(np.arange(config.context), config.rope_base**-exponents)
        self._cos = np.cos(angles).astype(np.float32)
        self._sin = np.sin(angles).astype(np.float32)

    @classmethod
    def load(cls, path=CHECKPOINT):
        with np.load(path, allow_pickle=False) as arrays:
            return cls(dict(arrays))

    def step(self, token, sequence):
        """Appends `token` to the sequence's cache and returns the logits for the next one."""
        position = sequence.append_position()
        x = self._weights["embedding"][token]
        for index in range(self.config.layers):
            x = x + self._attention(index, x, position, sequence)
            x = x + self._mlp(index, x)
        return self._weights["embedding"] @ _norm(x, self._weights["final_norm"])

    def _layer(self, index, name):
        return self._weights[f"layers.{index}.{name}"]

    def _attention(self, index, x, position, sequence):
        c = self.config
        kv = c.kv_heads * c.head_dim
        mixed = _norm(x, self._layer(index, "attention_norm")) @ self._layer(index, "qkv")
        q, k, v = np.split(mixed, (c.width, c.width + kv))
        q = self._rotate(q.reshape(c.heads, c.head_dim), position)
        k = self._rotate(k.reshape(c.kv_heads, c.head_dim), position)
        sequence.write(index, position, k, v.reshape(c.kv_heads, c.head_dim))
        keys, values = sequence.read(index)
        # Query heads that share a key head are one matrix: [kv_heads, group, head_dim].
        q = q.reshape(c.kv_heads, c.heads // c.kv_heads, c.head_dim) * np.float32(c.head_dim**-0.5)
        weights = _softmax(q @ keys.transpose(1, 2, 0))
        out = weights @ values.transpose(1, 0, 2)
        return out.reshape(c.width) @ self._layer(index, "out")

    def _rotate(self, x, position):
        first, second = np.split(x, 2, axis=-1)
        cos, sin = self._cos[position], self._sin[position]
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)

    def _mlp(self, index, x):
        hidden = _norm(x, self._layer(index, "mlp_norm")) @ self._layer(index, "gate_up")
        gate, up = np.split(hidden, 2)
        return (gate / (1 + np.exp(-gate)) * up) @ self._layer(index, "down")


def next_token(logits, position):
    """Samples with noise that depends on the position alone, so that every run draws the same.

    Always taking the likeliest byte would be as repeatable, but sends a model of this size into
    loops after a few words.
    """
    noise = np.random.default_rng((_NOISE_SEED, position)).gumbel(size=logits.shape)
    return int(np.argmax(logits / _TEMPERATURE + noise))


def prefill(model, prompt, sequence):
    """Feeds the prompt and returns the first generated token."""
    if not prompt:
        raise ValueError("the prompt is empty")
    for token in prompt:
        logits = model.step(token, sequence)
    return next_token(logits, sequence.length)


def decode(model, first, count, sequence):
    """Returns `count` tokens, the first of which is `first`; the cache holds all before it."""
    tokens = [first]
    while len(tokens) < count:
        logits = model.step(tokens[-1], sequence)
        tokens.append(next_token(logits, sequence.length))
    return tokens
