#!/usr/bin/env python3
"""bench/compare/builds.py on programs that only claim to measure."""
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("builds", ROOT / "bench/compare/builds.py")
builds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(builds)

# Prints the next of its times (µs) for each benchmark that the filter matches; the last one again and again.
FAKE = """#!{python}
import json, pathlib, re, sys
folder = pathlib.Path(__file__).parent
plan = json.loads((folder / "plan.json").read_text())
pattern = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--benchmark_filter=")), "")
runs = []
for name, times in plan.items():
    if not re.search(pattern, name):
        continue
    clock = "real_time" if "/real_time" in name else "cpu_time"
    other = "cpu_time" if clock == "real_time" else "real_time"
    runs.append({{"name": name, clock: times[0], other: 777.0, "time_unit": "us"}})
    plan[name] = times[1:] or times
(folder / "plan.json").write_text(json.dumps(plan))
if runs:
    print(json.dumps({{"benchmarks": runs}}))
else:
    print("nothing matches", file=sys.stderr)
"""


class Builds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def compare(self, base: dict, other: dict, *flags: str) -> tuple[int, str]:
        for name, plan in (("base", base), ("other", other)):
            folder = pathlib.Path(self.folder.name) / name / "src"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "x_bench").write_text(FAKE.format(python=sys.executable))
            (folder / "x_bench").chmod(0o755)
            (folder / "plan.json").write_text(json.dumps(plan))
        out = io.StringIO()
        folders = [str(pathlib.Path(self.folder.name) / name) for name in ("base", "other")]
        with contextlib.redirect_stdout(out):
            status = builds.main([*folders, "x_bench", *flags])
        return status, out.getvalue()

    def test_equal_ones_pass(self):
        status, out = self.compare({"a": [100], "b/real_time": [5]}, {"a": [100], "b/real_time": [5]})
        self.assertEqual(status, 0)
        self.assertIn("2 benchmarks, 0 slower", out)
        self.assertNotIn("SLOWER", out)

    def test_a_slower_one_fails(self):
        status, out = self.compare({"a": [100], "b/real_time": [50]}, {"a": [100], "b/real_time": [60]})
        self.assertEqual(status, 1)
        self.assertRegex(out, r"b/real_time .* 1\.200 .*SLOWER")
        self.assertIn("1 slower", out)

    def test_the_threshold_is_a_flag(self):
        self.assertEqual(self.compare({"a": [100]}, {"a": [108]})[0], 0)
        self.assertEqual(self.compare({"a": [100]}, {"a": [108]}, "--threshold", "5")[0], 1)

    def test_faster_is_no_fault(self):
        self.assertEqual(self.compare({"a": [100]}, {"a": [50]})[0], 0)

    def test_noise_passes(self):
        # The median is 20 % up, but rounds went both ways.
        noisy = {"a": [120, 80, 125, 90, 122]}
        self.assertEqual(self.compare({"a": [100]}, noisy)[0], 0)

    def test_a_disturbance_that_does_not_come_back_passes(self):
        status, out = self.compare({"a": [100]}, {"a": [150] * 5 + [100]})
        self.assertEqual(status, 0)
        self.assertIn("at first 1.500", out)

    def test_a_few_good_rounds_hide_nothing(self):
        self.assertEqual(self.compare({"a": [100]}, {"a": [100, 130, 130, 130, 130, 100] + [130]})[0], 1)

    def test_filter_and_lone_ones(self):
        status, out = self.compare({"a": [1], "old": [1]}, {"a": [1], "new": [9]})
        self.assertEqual(status, 0)
        self.assertRegex(out, r"new +only in one")
        self.assertRegex(out, r"old +only in one")
        status, out = self.compare({"a": [1], "b": [1]}, {"a": [1], "b": [9]}, "--filter", "^a")
        self.assertEqual(status, 0)
        with self.assertRaises(SystemExit):
            self.compare({"a": [1]}, {"a": [1]}, "--filter", "^z")

    def test_exact_patterns(self):
        import re
        name = "X/a.b:1/(x)"
        self.assertTrue(re.search(builds.exactly([name, "c"]), name))
        self.assertFalse(re.search(builds.exactly(["X/a.b"]), "X/a_b"))


if __name__ == "__main__":
    unittest.main()
