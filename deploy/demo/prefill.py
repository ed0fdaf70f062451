#!/usr/bin/env python3
"""Prefill side: reads the prompt, keeps its KV cache in registered memory, serves one decoder."""

import argparse
import signal
import sys
import zlib

import measure
from model import Transformer, prefill
from node import open_engine, registered_buffer
from paged_cache import BLOCK_TOKENS, PagedCache, Sequence, blocks_for
from side_channel import SideChannel

CACHE_BLOCKS = 128
TIMEOUT_S = 600


def block_checksums(cache, sequence):
    """CRC-32 of every used block over all layers, so that the other side can check what it read."""
    return [zlib.crc32(cache.data[:, :, block].tobytes()) for block in sequence.used_blocks()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True, help="ip:port of this engine")
    parser.add_argument("--side-port", type=int, default=26500, help="port of the metadata channel")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--bench-mib", type=int, default=128, help="memory for the measurement; 0: none")
    args = parser.parse_args()
    host = args.engine.rsplit(":", 1)[0].strip("[]")

    # End through the finally clauses when the process is told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = Transformer.load()
    prompt = args.prompt.encode("ascii")
    with open_engine(args.engine) as engine:
        buffer = registered_buffer(engine, PagedCache.bytes_needed(model.config, CACHE_BLOCKS))
        cache = PagedCache(model.config, CACHE_BLOCKS, buffer)
        table = cache.shuffled_blocks(blocks_for(len(prompt)), seed=1)
        sequence = Sequence(cache, table)
        first = prefill(model, prompt, sequence)
        print(f"prefill: {len(prompt)} tokens in {len(table)} blocks of {BLOCK_TOKENS}, "
              f"physical blocks {table[:6]}...", flush=True)

        bench = registered_buffer(engine, args.bench_mib << 20) if args.bench_mib else None
        if bench:
            bench.numpy()[:] = 7
        with SideChannel.accept(host, args.side_port, TIMEOUT_S) as channel:
            channel.send({
                "engine": args.engine,
                "prompt": args.prompt,
                "address": buffer.address,
                "blocks": CACHE_BLOCKS,
                "table": sequence.used_blocks(),
                "length": sequence.length,
                "checksums": block_checksums(cache, sequence),
                "first": first,
                "bench": {"address": bench.address, "bytes": bench.nbytes} if bench else None,
            })
            serve(channel, host)


def serve(channel, host):
    """Answers the decoder's wishes until it says that it is done; reads need no help from here."""
    server = None
    try:
        while (request := channel.receive())["want"] != "nothing more":
            server = measure.start_iperf_server(host, request["port"])
            channel.send({"iperf": server is not None})
    finally:
        if server is not None:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
