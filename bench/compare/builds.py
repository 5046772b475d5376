#!/usr/bin/env python3
"""Micro-benchmarks of two builds in turn (A B A B): which are slower in the second one. scripts/bench.sh makes the
builds and calls this.

    bench/compare/builds.py BASE_FOLDER OTHER_FOLDER TARGET… [--filter REGEX] [--rounds 5] [--min-time 0.05]
                            [--threshold 10]

Each round runs a target's benchmarks once with BASE, once with OTHER. Of each benchmark the table shows the medians,
their ratio (above 1: OTHER is slower) and, as its spread, the quartiles of the rounds' own ratios. A benchmark is
slower when the ratio exceeds the threshold and the lower quartile exceeds 1. What looks slower is run once more on
its own, with twice the rounds, and only that second look counts. Exit status 1 if any is slower.

Times are the wall clock's where a benchmark asks for that (UseRealTime), else the CPU's.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def executable(folder: pathlib.Path, target: str) -> pathlib.Path:
    """The program of a target, wherever in the build folder it lies."""
    found = [path for path in folder.glob(f"**/{target}") if path.is_file()]
    if len(found) != 1:
        sys.exit(f"error: {folder} has {len(found)} programs {target}")
    return found[0]


def run_once(program: pathlib.Path, pattern: str, min_time: float) -> dict[str, float]:
    """ns an iteration by benchmark; without those that skip themselves or that `pattern` doesn't match."""
    command = [program, "--benchmark_format=json", f"--benchmark_min_time={min_time}"]
    if pattern:
        command.append(f"--benchmark_filter={pattern}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"error: {program} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    if not done.stdout.strip():  # nothing matches
        return {}
    times = {}
    for run in json.loads(done.stdout)["benchmarks"]:
        if run.get("error_occurred") or run.get("run_type") == "aggregate":
            continue
        wall = "/real_time" in run["name"]
        times[run["name"]] = run["real_time" if wall else "cpu_time"] * NS[run["time_unit"]]
    return times


class Samples:
    """The rounds of one benchmark."""

    def __init__(self):
        self.base, self.other = [], []

    def ratio(self) -> float:
        return statistics.median(self.other) / statistics.median(self.base)

    def spread(self) -> tuple[float, float]:
        ratios = [other / base for base, other in zip(self.base, self.other)]
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high

    def is_slower(self, threshold: float) -> bool:
        return self.ratio() > 1 + threshold and self.spread()[0] > 1


def measure(programs: tuple, pattern: str, n_rounds: int, min_time: float) -> tuple[dict[str, Samples], set[str]]:
    """What both programs have, in the order of the second one, and the names that only one has."""
    samples, lonely = {}, set()
    for _ in range(n_rounds):
        base, other = (run_once(program, pattern, min_time) for program in programs)
        lonely |= base.keys() ^ other.keys()
        for name in other:
            if name in base:
                one = samples.setdefault(name, Samples())
                one.base.append(base[name])
                one.other.append(other[name])
    return samples, lonely


def exactly(names) -> str:
    """A pattern for these names; Google Benchmark may be built with any of three regex dialects."""
    return "^(" + "|".join(re.sub(r"([.\[\]{}()*+?^$|\\])", r"\\\1", name) for name in names) + ")$"


def pretty(ns: float) -> str:
    for unit in ("s", "ms", "us"):
        if ns >= NS[unit]:
            return f"{ns / NS[unit]:.3g} {unit}"
    return f"{ns:.3g} ns"


def line(name: str, one: Samples, mark: str) -> str:
    low, high = one.spread()
    return (f"{name:<60} {pretty(statistics.median(one.base)):>9} {pretty(statistics.median(one.other)):>9} "
            f"{one.ratio():6.3f}  {low:.3f} … {high:.3f}{mark}")


def compare(programs: tuple, options) -> tuple[int, int]:
    """Prints one target's table; (benchmarks, slower ones)."""
    samples, lonely = measure(programs, options.filter, options.rounds, options.min_time)
    suspects = [name for name, one in samples.items() if one.is_slower(options.threshold)]
    again = {}
    if suspects:
        again, _ = measure(programs, exactly(suspects), 2 * options.rounds, options.min_time)
    n_slower = 0
    for name, one in samples.items():
        mark = ""
        if name in again:
            first, one = one.ratio(), again[name]
            slower = one.is_slower(options.threshold)
            n_slower += slower
            mark = "  SLOWER" if slower else f"  (at first {first:.3f})"
        print(line(name, one, mark), flush=True)
    for name in sorted(lonely):
        print(f"{name:<60} only in one of the two")
    return len(samples), n_slower


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--filter", default="", help="only benchmarks whose name matches this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds for each benchmark and round")
    parser.add_argument("--threshold", type=float, default=10, help="per cent that pass as noise")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.min_time <= 0 or options.threshold < 0:
        parser.error("--rounds and --min-time must be positive, --threshold at least 0")
    options.threshold /= 100
    n_all = n_slower = 0
    print(f"{'benchmark':<60} {'base':>9} {'other':>9}  ratio  quartiles of {options.rounds} rounds")
    for target in options.targets:
        programs = executable(options.base, target), executable(options.other, target)
        n, slower = compare(programs, options)
        if n > 0:
            print(f"  {target}: {n} benchmarks, {slower} slower", flush=True)
        n_all, n_slower = n_all + n, n_slower + slower
    if n_all == 0:
        sys.exit(f"error: no benchmark matches {options.filter!r}")
    print(f"{n_all} benchmarks, {n_slower} slower by more than {100 * options.threshold:g} %")
    return 1 if n_slower else 0


if __name__ == "__main__":
    sys.exit(main())
