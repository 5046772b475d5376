"""Start, stop, command lines, trace."""
import json
import os
import signal
import socket
import subprocess
import time

import pytest

import baton


def run(*arguments, stdin=None):
    return subprocess.run([baton.BATON, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments, status, words", [
    (["serve", "--frobnicate"], 2, ["--frobnicate"]),
    (["serve", "--port", "99999"], 2, ["--port", "99999"]),
    (["serve", "--port", "x"], 2, ["--port", "x"]),
    (["serve", "--engines", "1P"], 2, ["--engines", "1P"]),
    (["serve", "--engines", "1P1D", "--cpus", "0"], 2, ["--engines", "2 engines", "--oversubscribe"]),
    (["serve", "--lease", "never"], 2, ["--lease", "never"]),
    (["serve", "--hang-timeout", "never"], 2, ["--hang-timeout", "never"]),
    (["serve", "--kv-memory", "lots"], 2, ["--kv-memory", "lots"]),
    (["serve", "--kv-memory", "900TiB"], 1, ["--kv-memory", "900TiB"]),
    (["serve", "--kv-memory", "1KiB"], 2, ["kv"]),
    (["serve", "--policy", "prefix"], 2, ["--policy", "prefix"]),
    (["serve", "--policy", "auto"], 2, ["--policy", "auto"]),
    (["engine", "--role", "chief"], 2, ["--role", "chief"]),
    (["engine", "--kv-memory", "lots"], 2, ["--kv-memory", "lots"]),
    (["engine", "--kv-memory", "900TiB"], 1, ["--kv-memory", "900TiB"]),
    (["engine", "--port", "x"], 2, ["--port", "x"]),
    (["engine", "--cpus", "9999"], 2, ["--cpus", "9999"]),
    (["engine", "--ready-fd", "77"], 2, ["--ready-fd", "77"]),
    (["engine", "--model", "no-such-model"], 1, ["no-such-model", "smollm2-135m"]),
    (["engine", "--engines", "1B"], 2, ["--engines"]),
    (["router"], 2, ["--engine"]),
    (["router", "--engine", "nonsense"], 2, ["nonsense"]),
    (["router", "--engine", "http://127.0.0.1:1", "--attach-timeout", "200ms"], 1, ["http://127.0.0.1:1"]),
    (["router", "--engine", "http://127.0.0.1:1", "--policy", "prefix"], 2, ["--policy", "prefix"]),
    (["router", "--engine", "http://127.0.0.1:1", "--model", "no-such-model"], 1, ["no-such-model"]),
    (["serve", "no-such-model"], 1, ["no-such-model", "smollm2-135m"]),
    (["serve", "/dev/null"], 1, ["/dev/null"]),
    (["serve", "--log-level", "loud"], 2, ["--log-level", "loud"]),
    (["serve", "--trace", "/no/such/dir/t.json"], 1, ["/no/such/dir/t.json"]),
    (["pull", "nothing"], 1, ["nothing"]),
    (["frobnicate"], 2, ["frobnicate"]),
    ([], 2, []),
])
def test_bad_command_lines_are_one_clear_line(arguments, status, words):
    done = run(*arguments)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_kernels_that_do_not_exist_are_refused():
    done = subprocess.run([baton.BATON, "serve"], env=dict(os.environ, BATON_KERNELS="abacus"), capture_output=True, text=True)
    assert done.returncode in (1, 2) and "abacus" in done.stderr and done.stderr.count("\n") == 1


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", "--port", taken.getsockname()[1])
        assert done.returncode == 1 and str(taken.getsockname()[1]) in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(number):
    server = baton.Server()
    events = server.events("/v1/completions", prompt="Once", max_tokens=60, ignore_eos=True)
    next(events)
    server.process.send_signal(number)
    assert sum(1 for _ in events) >= 50
    status, _ = server.wait()
    assert status == 0
    with pytest.raises(OSError):
        server.request("GET", "/health")


def test_the_drain_timeout_ends_what_is_left_with_an_error():
    server = baton.Server("--drain-timeout", "300ms")
    events = server.events("/v1/completions", prompt="Once", max_tokens=8000, ignore_eos=True)
    next(events)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    last = [e for e in events][-1]  # and [DONE] came, or events() would have complained
    assert "error" in last
    assert server.wait()[0] == 0 and time.monotonic() - start < 10


def test_a_second_signal_ends_it_at_once():
    server = baton.Server()
    events = server.events("/v1/completions", prompt="Once", max_tokens=8000, ignore_eos=True)
    next(events)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(5)


def test_an_idle_server_uses_no_cpu(smollm2):
    def ticks():
        return sum(int(ticks) for pid in smollm2.pids() for ticks in baton.stat_fields(pid)[11:13])
    assert len(smollm2.pids()) == 2
    time.sleep(0.5)
    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 5  # of 100 a second and CPU


def test_trace_is_complete_after_a_stop_and_loads_after_a_kill(tmp_path):
    path = tmp_path / "trace.json"
    server = baton.Server("--trace", path)
    server.post("/v1/completions", prompt="word " * 400, max_tokens=20)
    assert server.stop()[0] == 0
    events = json.loads(path.read_text())
    assert {"queue", "prefill", "decode"} <= {e["name"] for e in events}
    assert any(e["name"] == "process_name" for e in events)
    assert all(e["args"]["requests"] for e in events if e["name"] in ("queue", "prefill", "decode"))

    server = baton.Server("--trace", path)
    server.post("/v1/completions", prompt="word " * 400, max_tokens=300, ignore_eos=True)
    server.process.kill()
    server.process.wait()
    text = path.read_text().rstrip().rstrip(",")  # as the viewers do: the closing bracket may be missing
    assert len(json.loads(text if text.endswith("]") and text.count("\n]") else text + "]")) > 1


def test_tokenize_inspect_and_render_commands():
    lines = '{"text":"Hello world"}\nnonsense\n{"text":"<|im_end|>","parse_special":true}\n'
    answers = [json.loads(line) for line in run("tokenize", "smollm2-135m", stdin=lines).stdout.splitlines()]
    assert len(answers) == 3 and answers[0]["ids"] and "error" in answers[1] and len(answers[2]["ids"]) == 1
    back = run("tokenize", "smollm2-135m", "--decode", stdin=json.dumps({"ids": answers[0]["ids"]}) + "\n")
    assert json.loads(back.stdout) == {"text": "Hello world"}
    shown = run("inspect", "smollm2-135m").stdout
    assert "llama" in shown and "Q4_1" in shown and "49152" in shown
    rendered = run("render", "smollm2-135m", stdin='{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true}\n')
    assert json.loads(rendered.stdout)["text"].endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_version_names_kernels_and_every_gemm(smollm2):
    version = json.loads(smollm2.request("GET", "/version")[2])
    assert version["kernels"] in ("portable", "avx2", "avx512", "amx")
    assert {g["phase"] for g in version["gemms"]} == {"prefill", "decode"}
    assert all(g["implementation"] for g in version["gemms"])


def test_the_second_start_finds_packed_weights(tmp_path):
    model = baton.CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    starts = []

    def start(*flags):
        env = {"BATON_CACHE": str(tmp_path)}
        with baton.Server("--engines", "1P1D", "--packed-cache", *flags, model=str(model), env=env) as server:
            engines = json.loads(server.request("GET", "/version")[2])["engines"]
            text = server.post("/v1/completions", prompt="The capital of France is", max_tokens=8, temperature=0)
            starts.append(text["choices"][0]["text"])
            status, errors = server.stop()
        assert status == 0
        return {engine["weights"] for engine in engines}, errors.count("packing anew")

    weights, warnings = start("on")  # an engine may find what the other one has just written
    assert "packed" in weights and warnings == 0
    files = sorted(tmp_path.glob("packed/*.packed"))
    assert files and sorted(tmp_path.glob("packed/*")) == files
    assert start("on") == ({"from the cache"}, 0)
    assert start("off") == ({"packed"}, 0)
    for file in files:
        with open(file, "r+b") as out:
            out.truncate(file.stat().st_size - 1)
    weights, warnings = start("on")
    assert "packed" in weights and warnings >= 1
    assert start("on") == ({"from the cache"}, 0)
    assert len(set(starts)) == 1
