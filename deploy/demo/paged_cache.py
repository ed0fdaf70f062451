"""A paged KV cache over a buffer that the caller owns, laid out as inference engines do it.

One buffer serves all layers: [layer][keys, values][physical block][16 tokens][kv head][head_dim]
of float16. A sequence owns physical blocks in any order; its block table lists them.
"""

import numpy as np

BLOCK_TOKENS = 16
_ELEMENT = np.dtype(np.float16)


class PagedCache:
    def __init__(self, config, blocks, buffer):
        """`buffer`: any writable buffer of at least bytes_needed(config, blocks) bytes."""
        self.config = config
        self.blocks = blocks
        shape = (config.layers, 2, blocks, BLOCK_TOKENS, config.kv_heads, config.head_dim)
        flat = np.frombuffer(buffer, dtype=_ELEMENT, count=int(np.prod(shape)))
        self.data = flat.reshape(shape)

    @staticmethod
    def chunk_bytes(config):
        """Bytes of one block's keys (or values) in one layer: the unit that is contiguous."""
        return BLOCK_TOKENS * config.kv_heads * config.head_dim * _ELEMENT.itemsize

    @classmethod
    def bytes_needed(cls, config, blocks):
        return config.layers * 2 * blocks * cls.chunk_bytes(config)

    def chunk_offsets(self, block):
        """Byte offsets, from the start of the buffer, of all chunks of a physical block."""
        size = self.chunk_bytes(self.config)
        return [(plane * self.blocks + block) * size for plane in range(self.config.layers * 2)]

    def shuffled_blocks(self, count, seed):
        """`count` distinct physical blocks in scattered order, as a busy engine would hand out."""
        if count > self.blocks:
            raise ValueError(f"{count} blocks asked, the cache has {self.blocks}")
        return [int(b) for b in np.random.default_rng(seed).permutation(self.blocks)[:count]]


class Sequence:
    """One sequence: its block table and how many tokens of it are cached."""

    def __init__(self, cache, table, length=0):
        self.cache = cache
        self.table = list(table)
        self.length = length
        if length > self.capacity:
            raise ValueError(f"{length} tokens do not fit into {len(self.table)} blocks")

    @property
    def capacity(self):
        return len(self.table) * BLOCK_TOKENS

    def used_blocks(self):
        """Physical blocks that hold cached tokens, in logical order."""
        return self.table[: blocks_for(self.length)]

    def append_position(self):
        """Takes the next position; the layers then write their keys and values there."""
        if self.length == self.capacity:
            raise ValueError(f"the sequence is full: {self.capacity} tokens")
        self.length += 1
        return self.length - 1

    def write(self, layer, position, key, value):
        block, slot = self.table[position // BLOCK_TOKENS], position % BLOCK_TOKENS
        self.cache.data[layer, 0, block, slot] = key
        self.cache.data[layer, 1, block, slot] = value

    def read(self, layer):
        """Keys and values of all cached tokens, [tokens, kv_heads, head_dim], in float32."""
        shape = (-1,) + self.cache.data.shape[-2:]
        blocks = self.cache.data[layer][:, self.used_blocks()].astype(np.float32)
        keys, values = blocks.reshape((2,) + shape)[:, : self.length]
        return keys, values


def blocks_for(tokens):
    return -(-tokens // BLOCK_TOKENS)
