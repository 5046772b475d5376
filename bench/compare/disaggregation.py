#!/usr/bin/env python3
"""What prefill and decode on engines of their own cost and bring, in one run on the same CPUs:

  handoff       GB/s of the puts of 1P1D, beside memcpy of the same bytes in this process
  TTFT          1P1D with one core each beside 1B on one core, 512 and 2,048 tokens, nothing cached (A B A B)
  interference  p99 of the gaps between the tokens of four streams, alone and while 2,000-token prompts keep arriving:
                1P1D and 1B on both cores, and llama-server if --llama-server names one

    bench/compare/disaggregation.py [--rounds 5] [--llama-server BINARY] [--only handoff ttft interference]
"""
import argparse
import ctypes
import os
import pathlib
import statistics
import sys
import threading
import time

from llama_cpp import CACHE, ROOT, Server, free_port, random_prompt

KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2  # SmolLM2, bf16


def baton(options, engines, cpus):
    command = [options.baton, "serve", options.model, "--engines", engines, "--cpus", ",".join(map(str, cpus)),
               "--log-level", "warn"]
    port = free_port()
    return Server(f"baton-{engines}", command + ["--port", port], port)


def metrics(server):
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name.split("{")[0]] = out.get(name.split("{")[0], 0.0) + float(value)
    return out


def memcpy_rate(n_bytes: int):
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


def handoff(options):
    with baton(options, "1P1D", options.cpus) as server:
        server.generate(random_prompt(512, 1), 1)
        rates = []
        for i in range(options.rounds):
            before = metrics(server)
            for k in range(4):
                server.generate(random_prompt(2048, 100 * i + k), 1)
            after = metrics(server)
            n_bytes = after["baton_kv_transfer_bytes_total"] - before["baton_kv_transfer_bytes_total"]
            seconds = after["baton_kv_transfer_seconds_sum"] - before["baton_kv_transfer_seconds_sum"]
            rates.append((n_bytes / seconds, memcpy_rate(int(n_bytes) // 4)))
    put, copy = (statistics.median(r[i] for r in rates) for i in (0, 1))
    print(f"handoff (median of {options.rounds}): puts {put / 1e9:.2f} GB/s, memcpy {copy / 1e9:.2f} GB/s, ratio "
          f"{put / copy:.2f}; {2048 * KV_BYTES_PER_TOKEN / 2**20:.0f} MiB of 2,048 tokens take {2048 * KV_BYTES_PER_TOKEN / put * 1e3:.1f} ms",
          flush=True)


def ttft(options):
    with baton(options, "1B", options.cpus[:1]) as one, baton(options, "1P1D", options.cpus[:2]) as two:
        for server in (one, two):
            server.generate(random_prompt(256, 1), 2)
        print(f"{'TTFT, one core for prefill':28}{'1B':>9}{'1P1D':>9}{'ratio':>8}")
        for n in (512, 2048):
            times = {"1B": [], "1P1D": []}
            for i in range(options.rounds):
                for name, server in (("1B", one), ("1P1D", two)):
                    times[name].append(server.generate(random_prompt(n, 1000 * n + i), 1)[0])
            a, b = (statistics.median(times[name]) for name in times)
            pairs = statistics.median(y / x for x, y in zip(times["1B"], times["1P1D"]))
            print(f"  {n:5} tokens (median of {options.rounds}) {a * 1e3:7.0f} ms{b * 1e3:6.0f} ms{pairs:8.3f}", flush=True)


def gaps(server, n_tokens, seed, with_prompts):
    """The gaps (s) between tokens of four streams, between the first token of the last stream and the first end."""
    times, starts = [None] * 4, [0.0] * 4
    origin, stop = time.perf_counter(), threading.Event()

    def stream(i):
        starts[i] = time.perf_counter() - origin
        times[i] = server.generate(random_prompt(32, seed + i), n_tokens)

    def prompts():
        k = 0
        while not stop.is_set():
            server.generate(random_prompt(2000, seed + 100 + k), 1)
            k += 1
        counts.append(k)

    counts = []
    threads = [threading.Thread(target=stream, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    feeder = threading.Thread(target=prompts) if with_prompts else None
    if feeder:
        time.sleep(0.3)
        feeder.start()
    [t.join() for t in threads]
    stop.set()
    if feeder:
        feeder.join()
    absolute = [[starts[i] + t for t in times[i]] for i in range(4)]
    begin, end = max(t[0] for t in absolute), min(t[-1] for t in absolute)
    out = [b - a for ts in absolute for a, b in zip(ts, ts[1:]) if begin <= a and b <= end]
    return sorted(out), counts[0] if counts else 0


def percentile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def interference(options):
    def servers():
        yield "baton 1P1D", baton(options, "1P1D", options.cpus)
        yield "baton 1B", baton(options, "1B", options.cpus)
        if options.llama_server:
            port = free_port()
            n = len(options.cpus)
            yield "llama-server", Server("llama", ["taskset", "-c", ",".join(map(str, options.cpus)), options.llama_server, "-m", options.model,
                                                   "--port", port, "-t", n, "-tb", n, "-np", 6, "-c", 6 * 2304, "-ub", 512, "-b", 2048, "-fa",
                                                   "on", "--no-webui"], port)

    print(f"{'four streams, ITL in ms':24}{'p50 alone':>10}{'p99 alone':>10}{'p50 loaded':>11}{'p99 loaded':>11}{'p99 ratio':>10}{'prompts':>9}")
    for name, server in servers():
        with server:
            server.generate(random_prompt(256, 1), 2)
            alone, loaded, n_prompts = [], [], 0
            for i in range(max(1, options.rounds // 2)):
                alone += gaps(server, options.tokens, 5000 * i + 1, False)[0]
                values, n = gaps(server, options.tokens, 5000 * i + 2001, True)
                loaded += values
                n_prompts += n
            alone.sort(), loaded.sort()
            a, b = percentile(alone, 0.99), percentile(loaded, 0.99)
            print(f"{name:24}{percentile(alone, 0.5) * 1e3:10.2f}{a * 1e3:10.2f}{percentile(loaded, 0.5) * 1e3:11.2f}{b * 1e3:11.2f}"
                  f"{b / a:10.1f}{n_prompts:9}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", default=ROOT / "build/release/src/cli/baton")
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--model", default=CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each stream of the interference case")
    parser.add_argument("--only", nargs="+", default=["handoff", "ttft", "interference"])
    options = parser.parse_args()
    options.cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(options.cpus) < 2:
        sys.exit("two CPUs are needed")
    for name in options.only:
        {"handoff": handoff, "ttft": ttft, "interference": interference}[name](options)


if __name__ == "__main__":
    main()
