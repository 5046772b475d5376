"""`baton bench`: a model in this process, and load on real servers and broken ones."""
import contextlib
import gzip
import http.server
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time

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
    (["--json", "/nowhere/report"], 1, "--json '/nowhere/report'"),
    (["--rate", 1], 2, "--rate: is for servers"),
    (["http://127.0.0.1:1"], 1, "http://127.0.0.1:1/v1/models: can't connect"),
    (["http://127.0.0.1"], 2, "'http://127.0.0.1' is not of the form http://HOST:PORT"),
    (["https://127.0.0.1:1"], 2, "'https://127.0.0.1:1' is not of the form"),
    (["http://127.0.0.1:1", "--prompt", 5], 2, "--prompt: is for models"),
    (["http://127.0.0.1:1", "--rate", "nan"], 2, "--rate nan"),
    (["http://127.0.0.1:1", "--arrival", "never"], 2, "--arrival 'never'"),
    (["http://127.0.0.1:1", "--prompt-tokens", "5-3"], 2, "--prompt-tokens '5-3'"),
    (["http://127.0.0.1:1", "--slo", "ttft=soon"], 2, "--slo 'ttft=soon'"),
    (["http://127.0.0.1:1", "--chat", "--token-ids"], 2, "--token-ids"),
    (["http://127.0.0.1:1", "--trace", "/nowhere/trace"], 1, "/nowhere/trace: No such file"),
    (["http://127.0.0.1:1", "--html", "/nowhere/report"], 1, "--html '/nowhere/report'"),
])
def test_a_bad_command_line_is_one_clear_line(arguments, status, words):
    done = bench(*arguments)
    assert done.returncode == status
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def load(server, tmp_path, *arguments, status=0):
    """The JSON report of a run against `server`."""
    report = tmp_path / "report.json"
    done = bench(server.url, "--json", report, *arguments)
    assert done.returncode == status, (done.stdout, done.stderr)
    return json.loads(report.read_text()), done


COUNTERS = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count",
            "vllm:e2e_request_latency_seconds_count", "vllm:inter_token_latency_seconds_count"]


@pytest.mark.parametrize("fixture", ["smollm2", "pair"])
def test_counts_are_the_servers_own(request, fixture, tmp_path):
    server = request.getfixturevalue(fixture)
    before = [server.metric(name) for name in COUNTERS]
    found, done = load(server, tmp_path, "--requests", 9, "--rate", 30, "--prompt-tokens", "20-60", "--output-tokens", "1-9",
                       "--token-ids", "--warmup", 0, "--seed", time.time_ns() % 2**60, "--slo", "ttft=1e9", "--html", tmp_path / "report.html")
    prompt, output, n_first, n_requests, gaps = (server.metric(name) - b for name, b in zip(COUNTERS, before))
    requests = found["requests"]
    assert found["completed"] == found["good"] == n_requests == n_first == len(requests) == 9
    assert found["failed"] == found["without_usage"] == 0 and found["errors"] == {}
    assert found["total_input_tokens"] == prompt == sum(r["prompt_tokens"] for r in requests)
    assert found["total_output_tokens"] == output == sum(r["output_tokens"] for r in requests)
    assert gaps == output - 9
    assert all(20 <= r["prompt_tokens"] <= 60 and 1 <= r["output_tokens"] <= 9 for r in requests)
    assert 9 <= sum(r["chunks"] for r in requests) <= output
    for r in requests:
        assert 0 < r["ttft_ms"] <= r["e2e_ms"]
        assert r["tpot_ms"] == pytest.approx((r["e2e_ms"] - r["ttft_ms"]) / max(1, r["output_tokens"] - 1), rel=1e-3, abs=1e-3)
    assert found["mean_ttft_ms"] == pytest.approx(sum(r["ttft_ms"] for r in requests) / 9, rel=1e-3)
    assert found["output_throughput"] == pytest.approx(output / found["duration"], rel=1e-3)
    assert "9 requests complete, 0 failed" in done.stdout and done.stderr == ""
    html = (tmp_path / "report.html").read_text()
    assert html.count("<svg") == 6 and not re.search(r"src=|href=|url\(|<script", html)


@pytest.mark.parametrize("flags", [[], ["--chat"]])
def test_words_are_about_as_many_tokens(smollm2, tmp_path, flags):
    found, _ = load(smollm2, tmp_path, "--requests", 4, "--concurrency", 2, "--prompt-tokens", 200, "--output-tokens", 5, "--warmup", 0, *flags)
    template = 31 if flags else 0
    assert found["completed"] == 4 and found["total_output_tokens"] == 20 and found["max_concurrent_requests"] <= 2
    assert 4 * 195 <= found["total_input_tokens"] - 4 * template <= 4 * 215


def test_a_seed_is_a_workload(smollm2, tmp_path):
    arguments = ["--requests", 5, "--rate", 50, "--prompt-tokens", "lognormal:40:0.6", "--output-tokens", "1-6", "--warmup", 0]
    shape = lambda found: [(r["prompt_tokens"], r["output_tokens"]) for r in found["requests"]]
    first, again, other = (shape(load(smollm2, tmp_path, *arguments, "--seed", seed)[0]) for seed in (5, 5, 6))
    assert first == again != other


def test_a_trace_shares_prefixes_and_is_cut_to_fit(smollm2, tmp_path):
    rows = [(0, 1100, 20, [71, 72, 73]), (40, 1200, 10, [71, 72, 74]), (80, 60_000, 9, [75])]
    trace = tmp_path / "trace.jsonl.gz"
    with gzip.open(trace, "wt") as file:
        for time_ms, n_in, n_out, ids in rows:
            file.write(json.dumps({"timestamp": time_ms, "input_length": n_in, "output_length": n_out, "hash_ids": ids}) + "\n")
    hits = smollm2.metric("vllm:prefix_cache_hits_total")
    found, _ = load(smollm2, tmp_path, "--trace", trace, "--speed", 2, "--length-scale", "0.25", "--max-prompt-tokens", 320, "--token-ids",
                    "--concurrency", 1, "--warmup", 0, "--seed", time.time_ns() % 2**60)
    assert [(r["prompt_tokens"], r["output_tokens"]) for r in found["requests"]] == [(275, 5), (300, 3), (320, 2)]
    assert found["cut"] == 1
    # A quarter of the 1,024 tokens that the first two have in common.
    assert smollm2.metric("vllm:prefix_cache_hits_total") - hits == 256
    trace.write_text('{"timestamp":0,"input_length":1,"output_length":1}\n{"timestamp":0}\n')
    done = bench(smollm2.url, "--trace", trace)
    assert done.returncode == 1 and f"{trace}:2: 'input_length'" in done.stderr
    trace.write_text("")
    done = bench(smollm2.url, "--trace", trace)
    assert done.returncode == 1 and "no request in it" in done.stderr


def test_what_a_server_refuses_is_said(smollm2, tmp_path):
    done = bench(smollm2.url, "--model", "nobody")
    assert done.returncode == 1 and "http_404" in done.stderr and "nobody" in done.stderr
    found, done = load(smollm2, tmp_path, "--requests", 3, "--warmup", 0, "--token-ids", "--id-range", "60000-60001", status=1)
    assert found["errors"] == {"http_400": 3} and found["completed"] == 0
    assert "3 x http_400" in done.stdout


def test_ctrl_c_prints_what_was_measured(smollm2, tmp_path):
    report = tmp_path / "report.json"
    process = subprocess.Popen([baton.BATON, "bench", smollm2.url, "--requests", "1000", "--concurrency", "2", "--prompt-tokens", "8",
                                "--output-tokens", "20", "--warmup", "0", "--json", str(report)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before = smollm2.metric(COUNTERS[3])
    deadline = time.monotonic() + 60
    while smollm2.metric(COUNTERS[3]) - before < 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors == ""
    found = json.loads(report.read_text())
    assert found["interrupted"] and found["completed"] >= 3 and found["failed"] == 0
    assert found["cancelled"] + found["completed"] == len(found["requests"]) < 1000
    assert "(interrupted)" in out
    assert smollm2.wait_idle(20)


def test_progress_is_for_terminals(smollm2):
    terminal, other_end = pty.openpty()
    done = subprocess.run([baton.BATON, "bench", smollm2.url, "--requests", "3", "--prompt-tokens", "8", "--output-tokens", "2"],
                          stdout=subprocess.PIPE, stderr=other_end, timeout=120)
    os.close(other_end)
    drawn = ""
    with contextlib.suppress(OSError):  # EIO when all is read
        while piece := os.read(terminal, 1 << 16):
            drawn += piece.decode()
    os.close(terminal)
    assert done.returncode == 0
    assert re.search(r"\r\[[# ]{30}\] [0-3]/3", drawn), drawn
    assert drawn.endswith("\r\x1b[K")


class Broken(http.server.BaseHTTPRequestHandler):
    """Answers in turn with all that can go wrong."""
    protocol_version = "HTTP/1.1"
    counter = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = Broken.counter % 6
        Broken.counter += 1
        if kind == 0:
            self.close_connection = True  # without a word
            return
        if kind == 1:
            self.send_response(503)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"busy")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        token = b'data: {"choices":[{"text":"a"}]}\n\n'
        self.wfile.write({2: token + b"data: {broken\n\n", 3: token, 4: b'data: {"error":{"message":"out of luck"}}\n\ndata: [DONE]\n\n',
                          5: token + token + b"data: [DONE]\n\n"}[kind])
        self.close_connection = True


def test_broken_servers_do_no_harm(tmp_path):
    broken = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=broken.serve_forever, daemon=True).start()
    report = tmp_path / "report.json"
    done = bench(f"http://127.0.0.1:{broken.server_address[1]}", "--requests", 12, "--concurrency", 1, "--warmup", 0, "--json", report)
    broken.shutdown()
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["errors"] == {"no_answer": 2, "http_503": 2, "broken_stream": 4, "error_event": 2}
    assert found["completed"] == 2 and found["total_output_tokens"] == 4 and found["without_usage"] == 2
    assert "out of luck" in done.stdout and "busy" in done.stdout
