#!/usr/bin/env python3
"""Decode side: reads the prompt's KV blocks out of the prefill side's memory and goes on from there."""

import argparse
import sys
import time
import zlib

import hixl
import measure
import numpy as np
from model import Transformer, decode, prefill
from node import expect, open_engine, read_pieces, registered_buffer
from paged_cache import PagedCache, Sequence, blocks_for
from side_channel import SideChannel

CACHE_BLOCKS = 96  # not the prefill side's number: only the blocks' shape must agree
TIMEOUT_S = 600


def pieces_of(local_cache, local_address, local_blocks, remote):
    """(local address, remote address, length) of every chunk that has to move."""
    remote_shape = PagedCache.chunk_bytes(local_cache.config) * remote["blocks"]
    size = PagedCache.chunk_bytes(local_cache.config)
    pieces = []
    for local_block, remote_block in zip(local_blocks, remote["table"]):
        for plane, offset in enumerate(local_cache.chunk_offsets(local_block)):
            source = remote["address"] + plane * remote_shape + remote_block * size
            pieces.append((local_address + offset, source, size))
    return pieces


def check_blocks(cache, sequence, checksums):
    """The blocks must be those that the prefill side wrote, byte for byte."""
    for number, (block, expected) in enumerate(zip(sequence.used_blocks(), checksums)):
        if zlib.crc32(cache.data[:, :, block].tobytes()) != expected:
            raise SystemExit(f"block {number} (physical {block}) arrived damaged")


def fetch_cache(engine, remote, cache, address, tokens_to_come):
    """Moves the prompt's blocks here. Returns the sequence and what the move cost."""
    table = cache.shuffled_blocks(blocks_for(remote["length"] + tokens_to_come), seed=2)
    sequence = Sequence(cache, table, remote["length"])
    pieces = pieces_of(cache, address, sequence.used_blocks(), remote)
    start = time.perf_counter()
    read_pieces(engine, remote["engine"], pieces)
    seconds = time.perf_counter() - start
    check_blocks(cache, sequence, remote["checksums"])
    moved = sum(length for _, _, length in pieces)
    print(f"moved: {moved} bytes in {len(pieces)} scattered pieces with one-sided READs, "
          f"{seconds * 1e3:.2f} ms ({moved / seconds / 1e9:.2f} GB/s), every block checked")
    return sequence


def single_process_tokens(model, prompt, count):
    """The same text from a cache in this process's own memory, for comparison."""
    blocks = blocks_for(len(prompt) + count)
    cache = PagedCache(model.config, blocks, bytearray(PagedCache.bytes_needed(model.config, blocks)))
    sequence = Sequence(cache, range(blocks))
    return decode(model, prefill(model, prompt, sequence), count, sequence)


def report_speed(engine, remote, channel, args):
    """Prints the speed of a big transfer and, from the same run, of memcpy and iperf3."""
    nbytes = remote["bench"]["bytes"]
    buffer = registered_buffer(engine, nbytes)
    rates = measure.transfer_rates(lambda pieces: read_pieces(engine, remote["engine"], pieces),
                                   buffer.address, remote["bench"]["address"], nbytes)
    if not np.all(buffer.numpy() == 7):
        raise SystemExit("the measured transfer left wrong bytes")
    print(f"{nbytes >> 20} MiB, one block:          {rates['one_block']:6.2f} GB/s")
    print(f"{nbytes >> 20} MiB, 16 KiB scattered:   {rates['scattered']:6.2f} GB/s")
    print(f"memcpy, one thread:          {measure.memcpy_rate(nbytes):6.2f} GB/s")
    channel.send({"want": "iperf3", "port": args.side_port + 1})
    if channel.receive()["iperf"]:
        rate = measure.iperf_rate(args.prefill_host, args.side_port + 1, args.streams)
        print(f"iperf3, {args.streams} TCP streams:       {rate:6.2f} GB/s")
    else:
        print("iperf3 is not installed on the prefill side")
    buffer.free()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True, help="ip:port of this engine")
    parser.add_argument("--prefill-host", required=True)
    parser.add_argument("--side-port", type=int, default=26500, help="port of the metadata channel")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--streams", type=int, default=4, help="TCP streams for iperf3")
    args = parser.parse_args()

    model = Transformer.load()
    with SideChannel.connect(args.prefill_host, args.side_port, TIMEOUT_S) as channel, \
            open_engine(args.engine) as engine:
        remote = channel.receive()
        buffer = registered_buffer(engine, PagedCache.bytes_needed(model.config, CACHE_BLOCKS))
        cache = PagedCache(model.config, CACHE_BLOCKS, buffer)
        expect(engine.connect(remote["engine"], 5000), f"connect to {remote['engine']}")
        sequence = fetch_cache(engine, remote, cache, buffer.address, args.tokens)
        tokens = decode(model, remote["first"], args.tokens, sequence)
        print(f"text:  {remote['prompt']}|{bytes(tokens).decode('ascii', 'replace')}")

        same = tokens == single_process_tokens(model, remote["prompt"].encode("ascii"), args.tokens)
        print(f"tokens equal those of a single-process run: {'yes' if same else 'NO'}")
        if remote["bench"]:
            report_speed(engine, remote, channel, args)
        channel.send({"want": "nothing more"})
        expect(engine.disconnect(remote["engine"]), "disconnect")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
