#!/usr/bin/env python3
"""The goldens of the real models through the public API, teacher-forced; prints a table.

For each position that the reference generated: our log probability of the reference's best token (mean |Δ|) and
whether our best is the reference's, by the reference's margin. `prefill`: every prompt runs in the prefill class;
`decode`: every position runs in the decode class; `generated`: the answers are really generated (decode class,
after a prompt in its default class), begun again with the reference's tokens where the two part.

    tests/e2e/goldens.py [--models smollm2 gemma3] [--kernels default portable reference] [--classes …] [--limit TOKENS]
                          [--engines 1P1D]
"""
import argparse
import dataclasses

import baton

# golden/README.md: arithmetic → (mean Δ at most, margin above which the arg-max must agree)
FLOAT32, BF16, INT8 = (0.001, 0.01), (0.02, 0.25), (0.035, 0.5)
BOUNDS = {
    ("reference", "prefill"): FLOAT32, ("reference", "decode"): FLOAT32, ("reference", "generated"): FLOAT32,
    ("default", "prefill"): BF16, ("default", "decode"): INT8, ("default", "generated"): INT8,
    ("portable", "prefill"): BF16, ("portable", "decode"): INT8, ("portable", "generated"): INT8,
    ("avx2", "prefill"): BF16, ("avx2", "decode"): INT8, ("avx2", "generated"): INT8,
}
# llama.cpp 11434 on the same files: mean Δ, largest margin at which it misses the arg-max (golden/README.md).
LLAMA_CPP = {"smollm2": (0.034, 0.55), "gemma3": (0.035, 0.55)}


@dataclasses.dataclass
class Score:
    n: int = 0
    delta: float = 0.0
    n_misses: int = 0
    worst_margin: float = 0.0

    def add(self, reference_top, logprob, best_id):
        self.n += 1
        self.delta += abs(logprob - reference_top[0][1])
        if best_id != reference_top[0][0]:
            self.n_misses += 1
            self.worst_margin = max(self.worst_margin, reference_top[0][1] - reference_top[1][1])

    @property
    def mean(self):
        return self.delta / max(self.n, 1)

    def within(self, bound):
        return self.n > 0 and self.mean <= bound[0] and self.worst_margin <= bound[1]


def token_id(key):
    return int(key.removeprefix("token_id:"))


def logprob_entries(choice):
    """[(logprob, id of the best)] of a legacy logprobs object whose tokens are token_id:N."""
    logprobs = choice["logprobs"]
    return [(logprob, token_id(max(top, key=top.get)) if top else None)
            for logprob, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"])]


def ask(server, prompt, **fields):
    return server.post("/v1/completions", prompt=prompt, temperature=0, logprobs=1, ignore_eos=True,
                       return_tokens_as_token_ids=True, return_token_ids=True, **fields)["choices"][0]


def score_echo(server, entries):
    score = Score()
    for entry in entries:
        n = len(entry["prompt_ids"])
        found = logprob_entries(ask(server, entry["prompt_ids"] + entry["greedy_ids"], echo=True, max_tokens=0))
        for step, top in enumerate(entry["top5"][: len(entry["greedy_ids"])]):
            score.add(top, *found[n + step])
    return score


def score_generated(server, entries):
    score = Score()
    for entry in entries:
        greedy, step = entry["greedy_ids"], 0
        while step < len(greedy):
            choice = ask(server, entry["prompt_ids"] + greedy[:step], max_tokens=len(greedy) - step)
            for found_id, (logprob, best) in zip(choice["token_ids"], logprob_entries(choice)):
                if found_id != greedy[step]:  # parted: how we rate the reference's token, then on from it
                    forced = ask(server, entry["prompt_ids"] + greedy[: step + 1], echo=True, max_tokens=0)
                    score.add(entry["top5"][step], logprob_entries(forced)[-1][0], best)
                    step += 1
                    break
                score.add(entry["top5"][step], logprob, best)
                step += 1
    return score


def prompt_ids_differ(server, entries):
    """Names of the entries whose prompt we tokenise otherwise."""
    differ = []
    for entry in entries:
        body = {"messages": entry["messages"]} if entry["kind"] == "chat" else {"prompt": entry["prompt_text"]}
        if server.post("/tokenize", **body)["tokens"] != entry["prompt_ids"]:
            differ.append(entry["name"])
    return differ


CLASSES = {"prefill": 1, "decode": 1 << 20, "generated": "auto"}  # and its --remote-prefill-min-tokens


def chosen(model, limit):
    """All; or those of at most `limit` prompt tokens, and one over several KV blocks, where there is one of middle length."""
    entries = baton.goldens(model)
    if limit is None:
        return entries
    length = lambda e: len(e["prompt_ids"])
    blocks = sorted((e for e in entries if max(limit, 48) < length(e) <= 128), key=length)
    return [e for e in entries if length(e) <= limit] + blocks[:1]


def run(model, kernels, limit=None, classes=tuple(CLASSES), engines="1B"):
    """{class: Score} and the names of prompts that tokenise otherwise."""
    entries = chosen(model, limit)
    kernel_set = None if kernels == "default" else kernels
    scores = {}
    for kind in classes:
        with baton.Server("--engines", engines, "--oversubscribe", "--remote-prefill-min-tokens", CLASSES[kind], "--log-level", "warn",
                          model=baton.MODELS[model], kernels=kernel_set, timeout=300) as server:
            scores[kind] = score_generated(server, entries) if kind == "generated" else score_echo(server, entries)
            differ = prompt_ids_differ(server, entries)
    return scores, differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["smollm2", "gemma3"])
    parser.add_argument("--kernels", nargs="+", default=["default", "portable", "reference"])
    parser.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--limit", type=int, help="only goldens with at most so many prompt tokens")
    parser.add_argument("--engines", default="1B", help="as of `baton serve`")
    options = parser.parse_args()
    print(f"{'model':9}{'kernels':11}{'class':11}{'positions':>10}{'mean Δ':>9}{'bound':>7}{'misses':>8}"
          f"{'at margin ≤':>12}{'bound':>7}  verdict   llama.cpp: mean Δ, margin")
    failures = 0
    for model in options.models:
        for kernels in options.kernels:
            scores, differ = run(model, kernels, options.limit, options.classes, options.engines)
            for kind, score in scores.items():
                bound = BOUNDS[kernels, kind]
                good = score.within(bound) and not differ
                failures += not good
                print(f"{model:9}{kernels:11}{kind:11}{score.n:10}{score.mean:9.4f}{bound[0]:7.3f}{score.n_misses:8}"
                      f"{score.worst_margin:12.3f}{bound[1]:7.2f}  {'ok' if good else 'FAILED'}"
                      f"{'' if not differ else ' prompt ids differ: ' + str(differ)}   {LLAMA_CPP[model]}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
