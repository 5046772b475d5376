#!/usr/bin/env python3
"""Perplexity of a fixed text with every kernel set this CPU has, beside the float32 reference of the same weights.

The text (tests/data/perplexity) is cut into windows of --window tokens, each a prompt of its own (after BOS where the model has one), and
`baton serve` says what it thinks of each token: echo with logprobs, over the public API. Perplexity = exp(mean negative log likelihood) of
all tokens but the first of a prompt. Each set runs in both classes (docs/architecture.md): `prefill`: the window but its last 1 to 16
tokens in the prefill class; `decode`: all of it in the decode class. `reference` has one arithmetic for both, and a float32 KV cache.
The prefill class is measured once more with --prefill-activations int8 ("avx512 int8") where the set has that.

The reference's plain loops are slow. --reference FILE keeps its log probabilities, window by window: a second run, or one that goes on
where another was interrupted, reads them.

    bench/perplexity.py [--models smollm2 gemma3] [--kernels reference portable …] [--classes prefill decode] [--tokens 20480]
                        [--activations int16 int8] [--window 1024] [--reference FILE]

Exit status 1 if a perplexity is more than 0.5 % from the reference's.
"""
import argparse
import gzip
import hashlib
import json
import math
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import baton  # noqa: E402

TEXT = ROOT / "tests/data/perplexity/alice.txt.gz"
BOUND = 0.005  # of the ratio to the reference's perplexity
CLASSES = {"prefill": 1, "decode": 1 << 20}  # and its --remote-prefill-min-tokens
INT8_SETS = ("portable", "avx512")  # that have --prefill-activations int8
NEEDS = {"avx2": "avx2", "avx512": "avx512_vnni", "amx": "amx_bf16"}  # kernel set → flag in /proc/cpuinfo


def kernel_sets():
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":", 1)[1].split())
            break
    return ["reference", "portable", *(name for name, flag in NEEDS.items() if flag in flags)]


def windows(server, text, n_tokens, size):
    """The prompts, as lists of token ids: BOS where the model has one, then `size` tokens of the text."""
    ids = server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    n_special = server.post("/tokenize", prompt=text[:100])["count"] - server.post("/tokenize", prompt=text[:100], add_special_tokens=False)["count"]
    bos = server.post("/tokenize", prompt=text[:100])["tokens"][:n_special]
    assert len(ids) >= n_tokens, f"the text has only {len(ids)} tokens"
    return [bos + ids[begin:min(begin + size, n_tokens)] for begin in range(0, n_tokens, size)]


def logprobs(server, prompt):
    """Of prompt[1:], each given all tokens before it."""
    choice = server.post("/v1/completions", prompt=prompt, max_tokens=0, echo=True, logprobs=0, temperature=0)["choices"][0]
    values = choice["logprobs"]["token_logprobs"]
    assert len(values) == len(prompt) and values[0] is None and None not in values[1:]
    return values[1:]


class Kept:
    """Log probabilities by prompt, in a file if it has a name."""

    def __init__(self, path):
        self.path = pathlib.Path(path) if path else None
        self.values = json.loads(self.path.read_text()) if self.path and self.path.exists() else {}

    def get(self, model, prompt, compute):
        key = f"{model} {hashlib.sha256(json.dumps(prompt).encode()).hexdigest()}"
        if key not in self.values:
            self.values[key] = compute()
            if self.path:
                self.path.write_text(json.dumps(self.values))
        return self.values[key]


def paths(options):
    """(kernel set, activations, class) of each line."""
    for kernels in options.kernels:
        for kind in ["prefill"] if kernels == "reference" else options.classes:
            for activations in options.activations:
                if activations == "int16" or (kind == "prefill" and kernels in INT8_SETS):
                    yield kernels, activations, kind


def run(options, model, path, text, kept):
    """All log probabilities of the text, and tokens/s of what was computed."""
    kernels, activations, kind = path
    found, seconds, n_computed = [], 0.0, 0
    with baton.Server("--engines", "1B", "--remote-prefill-min-tokens", CLASSES[kind], "--log-level", "warn", "--kv-dtype",
                      "f32" if kernels == "reference" else "auto", "--prefill-activations", activations, model=baton.MODELS[model], kernels=kernels, timeout=300) as server:
        prompts = windows(server, text, options.tokens, options.window)
        for i, prompt in enumerate(prompts):
            def compute():
                nonlocal seconds, n_computed
                start = time.monotonic()
                values = logprobs(server, prompt)
                seconds += time.monotonic() - start
                n_computed += len(prompt)
                return values
            found.append(kept.get(model, prompt, compute) if kernels == "reference" else compute())
            if sys.stderr.isatty():
                print(f"\r{model} {kernels} {kind}: window {i + 1} of {len(prompts)} ", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return [value for values in found for value in values], n_computed / seconds if seconds else math.nan


def perplexity(values):
    return math.exp(-math.fsum(values) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(baton.MODELS), choices=list(baton.MODELS))
    parser.add_argument("--kernels", nargs="+", default=kernel_sets())
    parser.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--activations", nargs="+", default=["int16", "int8"], choices=["int16", "int8"])
    parser.add_argument("--tokens", type=int, default=20480, help="of the text, from its beginning")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--reference", metavar="FILE", help="where the reference's log probabilities are kept")
    options = parser.parse_args()
    text = gzip.decompress(TEXT.read_bytes()).decode()
    kept, failures = Kept(options.reference), 0
    print(f"{'model':9}{'kernels':15}{'class':9}{'tokens':>8}{'perplexity':>12}{'to reference':>14}{'mean |Δ|':>10}{'tokens/s':>10}")
    for model in options.models:
        reference = None
        for path in paths(options):
            kernels, activations, kind = path
            values, rate = run(options, model, path, text, kept)
            if kernels == "reference":
                reference = values
            ratio = delta = math.nan
            if reference and kernels != "reference":
                ratio = perplexity(values) / perplexity(reference)
                delta = math.fsum(abs(a - b) for a, b in zip(values, reference, strict=True)) / len(values)
            failed = abs(ratio - 1) > BOUND
            failures += failed
            name = kernels + (" int8" if activations == "int8" else "")
            print(f"{model:9}{name:15}{'both' if kernels == 'reference' else kind:9}{len(values):8}{perplexity(values):12.4f}"
                  f"{'' if math.isnan(ratio) else f'{100 * (ratio - 1):+.3f} %':>14}{'' if math.isnan(delta) else f'{delta:.4f}':>10}"
                  f"{'' if math.isnan(rate) else f'{rate:.0f}':>10}{'  FAILED' if failed else ''}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
