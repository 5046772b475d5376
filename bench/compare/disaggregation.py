#!/usr/bin/env python3
"""What prefill and decode on engines of their own cost, in one run on the same CPUs:

  handoff  GB/s of the puts of 1P1D, beside memcpy of the same bytes in this process
  ttft     1P1D with one core each beside 1B on one core, 512 and 2,048 tokens, nothing cached (A B A B)

    bench/compare/disaggregation.py [--rounds 5] [--only handoff ttft]

What they bring: the table of interference that compare.py prints.
"""
import argparse
import ctypes
import pathlib
import statistics
import sys
import time
import urllib.request

import peers
from cases import IDS, Client
from peers import CPUS, ROOT

MODEL = "smollm2-135m"
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2  # of SmolLM2 in bf16


def ttft_s(client: Client, server, n_tokens: int) -> float:
    flags = [*IDS, "--prompt-tokens", n_tokens, "--output-tokens", 1, "--requests", 1]
    return client.load(server, *flags)["median_ttft_ms"] / 1e3


def metric(server, name: str) -> float:
    text = urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def memcpy_rate(n_bytes: int) -> float:
    """Bytes/s of memmove between two buffers, pages touched before: in pieces of one layer of one chunk."""
    source, target = ctypes.create_string_buffer(n_bytes), ctypes.create_string_buffer(n_bytes)
    piece = 512 * KV_BYTES_PER_TOKEN // 30
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        for offset in range(0, n_bytes - piece, piece):
            ctypes.memmove(ctypes.addressof(target) + offset, ctypes.addressof(source) + offset, piece)
        best = max(best, n_bytes / (time.perf_counter() - start))
    return best


def handoff(options, client: Client) -> None:
    names = ("baton_kv_transfer_bytes_total", "baton_kv_transfer_seconds_sum")
    with peers.baton(options.baton, MODEL, "1P1D") as server:
        ttft_s(client, server, 512)
        rates = []
        for _ in range(options.rounds):
            before = [metric(server, name) for name in names]
            for _ in range(4):
                ttft_s(client, server, 2048)
            n_bytes, seconds = (metric(server, name) - old for name, old in zip(names, before))
            rates.append((n_bytes / seconds, memcpy_rate(int(n_bytes) // 4)))
    put, copy = (statistics.median(r[i] for r in rates) for i in (0, 1))
    print(f"handoff (median of {options.rounds}): puts {put / 1e9:.2f} GB/s, memcpy {copy / 1e9:.2f} GB/s, ratio {put / copy:.2f}; "
          f"{2048 * KV_BYTES_PER_TOKEN / 2**20:.0f} MiB of 2,048 tokens take {2048 * KV_BYTES_PER_TOKEN / put * 1e3:.1f} ms", flush=True)


def ttft(options, client: Client) -> None:
    with peers.baton(options.baton, MODEL, "1B", CPUS[:1]) as one, peers.baton(options.baton, MODEL, "1P1D") as two:
        for server in (one, two):
            ttft_s(client, server, 256)
        print(f"{'TTFT, one core for prefill':28}{'1B':>9}{'1P1D':>9}{'ratio':>8}")
        for n in (512, 2048):
            pairs = [(ttft_s(client, one, n), ttft_s(client, two, n)) for _ in range(options.rounds)]
            a, b = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            ratios = sorted(y / x for x, y in pairs)
            print(f"  {n:5} tokens (median of {options.rounds}) {a * 1e3:7.0f} ms{b * 1e3:6.0f} ms{b / a:8.3f}  "
                  f"(rounds: {ratios[0]:.3f} to {ratios[-1]:.3f}, median {statistics.median(ratios):.3f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/release/src/cli/baton")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["handoff", "ttft"], choices=["handoff", "ttft"])
    options = parser.parse_args()
    if len(CPUS) < 2:
        sys.exit("two CPUs are needed")
    for name in options.only:
        {"handoff": handoff, "ttft": ttft}[name](options, Client(options.baton, MODEL, 77))


if __name__ == "__main__":
    main()
