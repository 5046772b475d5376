#!/usr/bin/env python3
"""baton beside llama.cpp's server and vLLM for CPUs: same model, same CPUs, same client, in turn.

    bench/compare/compare.py [--rounds 1] [--models smollm2-135m gemma3-270m] [--only CASE …] [--write]

Sets the peers up in the cache folder (once, 25 minutes), then starts one system after another, measures all
cases on each, and does so again for each round. What was measured is kept in the cache folder by machine, commit
(of baton) and case: a run that was interrupted goes on where it stopped, a second one at the same commit prints at
once, --fresh measures again. --write puts the tables into docs/performance.md. Needs the models (`baton pull`), cmake,
ninja and a compiler for llama.cpp, and the network for both peers the first time.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

import cases
import peers
from cases import Client, decode, goodput, interference, prefill
from peers import CACHE, CPUS, MODELS, ROOT, say

SYSTEMS = ["baton 1B", "baton 1P1D", "llama.cpp", "vLLM"]
OPTIONAL = ["baton 1B int8"]  # asked for with --systems; --prefill-activations int8
STORE = CACHE / "compare/results.json"
PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- compare.py writes from here -->", "<!-- to here -->"


def all_cases(model: str, trace: pathlib.Path) -> dict:
    out = {f"prefill {n}": prefill(n, requests) for n, requests in ((512, 5), (2048, 3), (8000, 1))}
    out |= {f"decode {n}": decode(n, 96 if n < 32 else 64) for n in (1, 8, 16, 32)}
    if model == "smollm2-135m":
        # Streams of the slower ones wait for seconds at every token under that load.
        out["interference"] = interference({"default": 200, "vLLM": 60, "llama.cpp": 10})
        if trace.exists():
            out["goodput"] = goodput(trace, 0.33, 40)
    return out


def machine() -> str:
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)[1]
    flags = set(re.search(r"flags\s*: (.*)", text)[1].split())
    has = [flag for flag in ("avx2", "avx512_vnni", "avx512_bf16", "amx_int8") if flag in flags]
    return f"{name}, {len(CPUS)} CPUs ({', '.join(has)}), {platform.system()} {platform.release().split('-')[0]}"


def commit() -> str:
    def git(*command):
        return subprocess.run(["git", "-C", ROOT, *command], capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "-uno", "--", "src") else "")


class Store:
    """Results by a key of strings, on disk after every case."""

    def __init__(self):
        self.results = json.loads(STORE.read_text()) if STORE.exists() else {}

    def get(self, key: list):
        return self.results.get(" / ".join(key))

    def put(self, key: list, value: dict) -> None:
        self.results[" / ".join(key)] = value
        STORE.parent.mkdir(parents=True, exist_ok=True)
        STORE.with_suffix(".part").write_text(json.dumps(self.results, indent=1))
        STORE.with_suffix(".part").rename(STORE)


def server(options, system: str, model: str):
    if system.startswith("baton"):
        engines, *activations = system.split()[1:]
        return peers.baton(options.baton, model, engines, activations=activations[0] if activations else "int16")
    return peers.llama(model) if system == "llama.cpp" else peers.vllm(model, options.vllm_requirements)


def measure(options, store: Store) -> dict:
    """results[model][case][system] = the list of its rounds' numbers."""
    out = {}
    for round_number in range(options.rounds):
        for model in options.models:
            wanted = {name: run for name, run in all_cases(model, options.trace).items()
                      if not options.only or any(name.startswith(only) for only in options.only)}
            for system in options.systems:
                version = {"llama.cpp": peers.LLAMA, "vLLM": peers.VLLM}.get(system, options.commit)
                keys = {name: [machine(), system, version, model, name, str(round_number)] for name in wanted}
                # What isn't committed may have changed since.
                fresh = options.fresh or version.endswith("+")
                missing = [name for name in wanted if fresh or store.get(keys[name]) is None]
                if missing:
                    with server(options, system, model) as running:
                        cases.warm_up(Client(options.baton, model, 99), running)
                        for name in missing:
                            # The same prompts for every system.
                            client = Client(options.baton, model, 100 * (1 + round_number) + list(all_cases(model, options.trace)).index(name))
                            value = wanted[name](client, running)
                            store.put(keys[name], value)
                            say(f"  {model}, round {round_number + 1}: {system}, {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in value.items()))
                for name in wanted:
                    out.setdefault(model, {}).setdefault(name, {}).setdefault(system, []).append(store.get(keys[name]))
    return out


def median(rounds: list, what: str):
    values = [value[what] for value in rounds if value.get(what) is not None]
    return statistics.median(values) if values else None


def cell(value, digits=0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def rate_table(model: str, results: dict, systems: list) -> list:
    if not any(name.startswith(("prefill", "decode")) for name in results):
        return []
    lines = ["", f"{model}, tokens/s:", "", "| | " + " | ".join(systems) + " | 1B ÷ llama.cpp | 1B ÷ vLLM |", "|---" * (len(systems) + 3) + "|"]
    for name, by_system in results.items():
        if not name.startswith(("prefill", "decode")):
            continue
        values = [median(by_system[s], "tokens/s") if s in by_system else None for s in systems]
        row = dict(zip(systems, values))
        ratios = [cell(row["baton 1B"] / row[peer], 2) if row.get("baton 1B") and row.get(peer) else "–" for peer in ("llama.cpp", "vLLM")]
        streams = name.split()[1]
        label = f"prefill, {int(streams):,} tokens" if name.startswith("prefill") else f"decode, {streams} stream{'s' * (streams != '1')}"
        lines.append(f"| {label} | " + " | ".join([cell(v) for v in values] + ratios) + " |")
    return lines


def other_tables(results: dict, systems: list) -> list:
    lines = []
    if "interference" in results:
        lines += ["", "Gaps between the tokens of four streams (ITL, ms), alone and while prompts of 2,000 tokens arrive one after another:", "",
                  "| | p50 alone | p99 alone | p50 loaded | p99 loaded | p99 ratio |", "|---|---|---|---|---|---|"]
        for system in systems:
            rounds = results["interference"].get(system, [])
            a, b, c, d = (median(rounds, what) for what in ("p50 alone", "p99 alone", "p50 loaded", "p99 loaded"))
            if a is not None:
                lines.append(f"| {system} | {a:,.1f} | {b:,.1f} | {c:,.1f} | {d:,.1f} | {d / b:.1f} |")
    if "goodput" in results:
        lines += ["", f"Azure's conversation trace (2023), its first 40 requests a third as fast as recorded; good = {cases.SLO} (ms):", "",
                  "| | good | goodput, requests/s | p50 TTFT, ms | p99 TTFT, ms | p50 TPOT, ms |", "|---|---|---|---|---|---|"]
        for system in systems:
            rounds = results["goodput"].get(system, [])
            if rounds:
                good, rate, p50, p99, tpot = (median(rounds, what) for what in ("good", "good/s", "p50 ttft", "p99 ttft", "p50 tpot"))
                lines.append(f"| {system} | {good:.0f} of {rounds[0]['of']} | {rate:.2f} | {cell(p50)} | {cell(p99)} | {cell(tpot)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/release/src/cli/baton")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS + OPTIONAL)
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="cases that begin so: prefill, 'decode 16', interference, goodput")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    shared = pathlib.Path(os.environ.get("BATON_SHARED") or ROOT.parent / "shared")
    parser.add_argument("--trace", type=pathlib.Path, default=shared / "data/traces/azure_2023_conv.csv.gz", help="Azure's conversation trace")
    requirements = shared / "data/peers/vllm-requirements.txt"
    parser.add_argument("--vllm-requirements", type=pathlib.Path, default=requirements if requirements.exists() else None)
    options = parser.parse_args()
    if len(CPUS) < 2:
        sys.exit("two CPUs are needed")
    if not options.trace.exists():
        say(f"skipped: goodput (no trace at {options.trace})")
    options.commit = commit()
    results = measure(options, Store())
    lines = [f"{machine()}; baton {options.commit}, {peers.LLAMA.replace('==', ' ')}, {peers.VLLM.replace('==', ' ')}; "
             f"{datetime.date.today()}; median of {options.rounds} round{'s' * (options.rounds > 1)} of `bench/compare/compare.py`."]
    if not results:
        sys.exit(f"--only {' '.join(options.only)}: no case of {', '.join(options.models)} begins so")
    for model in results:
        lines += rate_table(model, results[model], options.systems) + other_tables(results[model], options.systems)
    text = "\n".join(lines)
    print(text)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
