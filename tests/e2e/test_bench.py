"""`baton bench`: a model in this process."""
import json
import subprocess

import pytest

import baton


def bench(*arguments, timeout=300, **more):
    return subprocess.run([baton.BATON, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **more)


def test_offline_measures_every_point_and_the_machine(tmp_path):
    report = tmp_path / "report.json"
    done = bench("--prompt", "64,192", "--batch", "1,4", "--context", 48, "--rounds", 2, "--threads", 1, "--json", report)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no progress bar where there is no terminal"
    found = json.loads(report.read_text())
    points = {(p["phase"], p["streams"], p["tokens"]): p for p in found["points"]}
    assert list(points) == [("prefill", 1, 64), ("prefill", 1, 192), ("decode", 1, 48), ("decode", 4, 48)]
    machine = found["machine"]
    for point in points.values():
        assert len(point["rounds_tokens_per_s"]) == 2 and min(point["rounds_tokens_per_s"]) > 0
        used = point["tokens_per_s"] * point["bytes_per_token"]
        assert point["of_memory_bandwidth"] == pytest.approx(used / machine["memory_read_bytes_per_s"], rel=1e-4)
        rate = point["tokens_per_s"] * point["flops_per_token"]
        assert point["of_gemm_rate"] == pytest.approx(rate / machine["gemm_flops_per_s"], rel=1e-4)
    # SmolLM2: 134.5 M values in matrices, and 4 * 576 operations for each of 30 layers and 49 to 64 positions.
    assert points["decode", 1, 48]["flops_per_token"] == pytest.approx(2 * 134.48e6 + 30 * 4 * 576 * 56.5, rel=1e-3)
    weights = machine["weights_read_bytes"]
    kv = 30 * 2 * 3 * 64 * 2
    assert points["decode", 4, 48]["bytes_per_token"] == pytest.approx(weights / 4 + kv * 57.5, rel=1e-3)
    assert {g["name"]: (g["n_in"], g["n_out"]) for g in machine["gemms"]} == {
        "qkv": (576, 960), "attention_output": (576, 576), "gate_up": (576, 3072), "down": (1536, 576)}
    for phase in ("prefill", "decode"):
        assert f"{phase} " in done.stdout


@pytest.mark.parametrize("arguments, status, words", [
    (["no-such-model"], 1, "no-such-model"),
    (["--prompt", 9000], 2, "--prompt 9000: must be between 1 and 8192"),
    (["--prompt", "12,x"], 2, "--prompt"),
    (["--context", 8190], 2, "--context 8190"),
    (["--batch", 4000, "--context", 8000], 1, "--batch 4000 with --context 8000"),
    (["--batch", -1], 2, "--batch -1"),
    (["--prompt", 0, "--batch", 0], 2, "nothing to measure"),
    (["--rounds", 0], 2, "--rounds 0"),
    (["--threads", 5000], 2, "--threads 5000"),
    (["--kernels", "fast"], 2, "--kernels 'fast'"),
    (["--frequency", 1], 2, "--frequency"),
])
def test_a_bad_command_line_is_one_clear_line(arguments, status, words):
    done = bench(*arguments)
    assert done.returncode == status
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
