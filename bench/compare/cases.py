"""What is measured of a server, each by `baton bench` as the client: one small process, the same for all."""
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from peers import Server

# Ordinary words' ids of both vocabularies; every prompt is new, so that no cache helps anyone.
IDS = ["--token-ids", "--id-range", "1000-20000"]


class Client:
    """Runs `baton bench` against servers; every load has a seed of its own."""

    def __init__(self, binary: pathlib.Path, model: str, seed: int):
        self.binary, self.model, self.seed = str(binary), model, seed * 1000

    def command(self, server: Server, flags: list) -> list:
        self.seed += 1
        return [self.binary, "bench", server.url, "--model", self.model, "--seed", str(self.seed), "--warmup", "0", *map(str, flags)]

    def load(self, server: Server, *flags, timeout: float = 900) -> dict:
        """One run's report."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            run = subprocess.run(self.command(server, [*flags, "--json", report]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, timeout=timeout)
            if not report.exists():
                sys.exit(f"{server.name}: baton bench failed:\n{run.stdout[-2000:]}")
            out = json.loads(report.read_text())
            if out["failed"] and "--trace" not in flags:
                sys.exit(f"{server.name}: {out['failed']} requests failed:\n{run.stdout[-2000:]}")
            return out

    @contextlib.contextmanager
    def background(self, server: Server, *flags):
        """The same load for as long as the block runs."""
        process = subprocess.Popen(self.command(server, list(flags)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process
            if process.poll() is not None:
                sys.exit(f"{server.name}: the load beside the measurement ended (exit status {process.returncode})")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def warm_up(client: Client, server: Server) -> None:
    client.load(server, *IDS, "--prompt-tokens", 128, "--output-tokens", 4, "--requests", 2, "--concurrency", 1)


def prefill(n_tokens: int, n_requests: int):
    """Prompt tokens/s: prompts one after another, a token each; the median of their TTFTs."""

    def measure(client: Client, server: Server) -> dict:
        report = client.load(server, *IDS, "--prompt-tokens", n_tokens, "--output-tokens", 1, "--requests", n_requests, "--concurrency", 1)
        return {"tokens/s": n_tokens / report["median_ttft_ms"] * 1e3}

    return measure


def decode(n_streams: int, n_tokens: int):
    """Output tokens/s of all streams, while all of them generate."""

    def measure(client: Client, server: Server) -> dict:
        report = client.load(server, *IDS, "--prompt-tokens", 32, "--output-tokens", n_tokens, "--requests", n_streams)
        if "steady_output_throughput" not in report:
            sys.exit(f"{server.name}: {n_streams} streams of {n_tokens} tokens never ran all at once")
        return {"tokens/s": report["steady_output_throughput"]}

    return measure


def interference(tokens: dict):
    """p99 of the gaps between tokens (ITL) of four streams, alone and while prompts of 2,000 tokens arrive one after another."""

    def measure(client: Client, server: Server) -> dict:
        n_tokens = tokens.get(server.name, tokens["default"])
        streams = [*IDS, "--prompt-tokens", 32, "--requests", 4, "--output-tokens"]
        alone = client.load(server, *streams, tokens["default"])
        prompts = [*IDS, "--prompt-tokens", 2000, "--output-tokens", 1, "--concurrency", 1, "--requests", 100000]
        with client.background(server, *prompts):
            time.sleep(1)
            loaded = client.load(server, *streams, n_tokens)
        return {"p50 alone": alone["p50_itl_ms"], "p99 alone": alone["p99_itl_ms"], "p50 loaded": loaded["p50_itl_ms"],
                "p99 loaded": loaded["p99_itl_ms"]}

    return measure


SLO = "ttft=2000,tpot=100"


def goodput(trace: pathlib.Path, speed: float, n_requests: int):
    """Requests/s that keep SLO, of a conversation trace that is replayed `speed` times as fast as it was recorded."""

    def measure(client: Client, server: Server) -> dict:
        report = client.load(server, "--token-ids", "--id-range", "1000-20000", "--trace", trace, "--speed", speed, "--requests", n_requests,
                             "--slo", SLO, "--timeout", "5m")
        return {"good/s": report["request_goodput"], "good": report["good"], "of": n_requests, "p50 ttft": report["p50_ttft_ms"],
                "p99 ttft": report["p99_ttft_ms"], "p50 tpot": report["p50_tpot_ms"]}

    return measure
