"""The processes of a server: engines of every mix, ends of every kind, and nothing left behind."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

import baton


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.05)


def shared_memory():
    """What is in /dev/shm, and the sockets of symmetric heaps."""
    sockets = re.findall(r"@baton/heap/\S+", pathlib.Path("/proc/net/unix").read_text())
    return set(os.listdir("/dev/shm")), {name.split("/")[2] for name in sockets}


def world_of(pid):
    """The uid of the symmetric world of an engine process; None if it has none."""
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    for entry in environment:
        name, _, value = entry.partition(b"=")
        if name == b"BATON_SHMEM_INIT_CONFIG_JSON_STR":
            return json.loads(value)["uid"]
    return None


def assert_gone(pids, uid=None, seconds=5):
    # A process that has just ended may have threads that are still ending, with its descriptors.
    gone = lambda: not any(map(baton.alive, pids)) and uid not in shared_memory()[1]
    wait_for(gone, seconds, lambda: f"still there: {[p for p in pids if baton.alive(p)]} of {pids}")


def answer(server, prompt="The capital of France is", **fields):
    return server.post("/v1/completions", prompt=prompt, temperature=0, max_tokens=8, ignore_eos=True, **fields)["choices"][0]["text"]


LONG = "word " * 300


@pytest.fixture(scope="module")
def expected(smollm2):
    return [answer(smollm2), answer(smollm2, LONG)]


@pytest.mark.parametrize("engines", ["1P1D", "2P1D", "1P2D", "2P2D", "1P1D1B"])
def test_every_mix_of_engines_serves(engines, expected):
    with baton.Server("--engines", engines, "--oversubscribe", "--kv-memory", "256MiB") as server:
        assert [answer(server), answer(server, LONG)] == expected
        listed = server.engines()
        roles = "".join({"prefill": "P", "decode": "D", "both": "B"}[e["role"]] for e in listed)
        assert roles == "".join(letter * int(n) for n, letter in re.findall(r"(\d)(\w)", engines))
        assert [e["id"] for e in listed] == [str(i) for i in range(len(listed))]
        assert all(e["state"] == "ready" and e["restarts"] == 0 and e["cpus"] for e in listed)
        assert sorted(e["pid"] for e in listed) == sorted(baton.children(server.process.pid))
        version = json.loads(server.request("GET", "/version")[2])
        assert len(version["engines"]) == len(listed)
        pids, uid = server.pids(), world_of(listed[0]["pid"])
        assert uid and {world_of(e["pid"]) for e in listed} == {uid} and uid in shared_memory()[1]
        status, errors = server.stop()
        assert status == 0, errors
        assert_gone(pids, uid)


def test_the_default_is_by_cores():
    n_cores = len(os.sched_getaffinity(0))
    with baton.Server.launch("serve", "--port", 0) as server:
        assert [e["role"] for e in server.engines()] == (["both"] if n_cores == 1 else ["prefill", "decode"])
        cpus = [cpu for e in server.engines() for cpu in e["cpus"]]
        assert sorted(cpus) == sorted(set(cpus)) == sorted(os.sched_getaffinity(0))


def test_a_killed_server_takes_everything_along():
    before = shared_memory()
    server = baton.Server("--engines", "1P1D", "--oversubscribe", "--kv-memory", "256MiB")
    pids, uid = server.pids(), world_of(server.engines()[0]["pid"])
    assert len(pids) == 3
    events = server.events("/v1/completions", prompt=LONG, max_tokens=2000, ignore_eos=True)
    next(events)
    server.process.kill()
    server.process.wait()
    assert_gone(pids, uid)
    assert shared_memory()[0] <= before[0]


def test_a_server_killed_while_it_starts_takes_everything_along():
    process = subprocess.Popen([baton.BATON, "serve", "--port", "0", "--engines", "1P1D", "--oversubscribe"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(baton.children(process.pid)) == 2, 30, "no engines")
    pids = [process.pid, *baton.children(process.pid)]
    process.kill()
    process.wait()
    assert_gone(pids)


@pytest.mark.parametrize("role", ["prefill", "decode", "both"])
def test_a_killed_engine_comes_back(role, expected):
    engines = "1B" if role == "both" else "1P1D"
    with baton.Server("--engines", engines, "--oversubscribe", "--kv-memory", "256MiB") as server:
        assert answer(server, LONG) == expected[1]
        victim = next(e for e in server.engines() if e["role"] == role)
        os.kill(victim["pid"], signal.SIGKILL)

        def back():
            now = server.engines()[int(victim["id"])]
            return now["state"] == "ready" and now["pid"] != victim["pid"]
        wait_for(back, 15, server.engines)
        now = server.engines()[int(victim["id"])]
        assert now["restarts"] == 1 and now["incarnation"] != victim["incarnation"] and now["role"] == role
        assert now["cpus"] == victim["cpus"] and now["last_error"]
        assert server.metric("baton_engine_restarts_total") == 1
        assert [answer(server), answer(server, LONG)] == expected
        if role != "both":
            before = server.metric("baton_router_plan_total", plan="disaggregated")
            answer(server, "again and " + LONG)
            assert server.metric("baton_router_plan_total", plan="disaggregated") == before + 1
        status, errors = server.stop()
        assert status == 0 and "signal 9" in errors


def start_that_fails(*flags, env=None):
    process = subprocess.Popen([baton.BATON, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=dict(os.environ, **(env or {})))
    pids = set()
    while process.poll() is None:
        pids |= set(baton.children(process.pid))
        time.sleep(0.02)
    out, errors = process.communicate()
    assert_gone([process.pid, *pids])
    return process.returncode, out, errors


def test_an_engine_that_cannot_start_is_named_with_the_reason():
    status, out, errors = start_that_fails("--engines", "1P1D", "--oversubscribe", "--kv-memory", "900TiB")
    assert (status, out) == (1, "")
    assert errors.count("\n") == 1 and re.search(r"engine [01] \((prefill|decode)\): --kv-memory 900TiB", errors), errors


def test_too_little_kv_memory_for_the_context_is_a_bad_command_line():
    status, _, errors = start_that_fails("--engines", "1P1D", "--oversubscribe", "--kv-memory", "1KiB")
    assert status == 2 and errors.count("\n") == 1 and "engine " in errors and "kv" in errors, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it(number):
    process = subprocess.Popen([baton.BATON, "serve", "--port", "0", "--engines", "1P1D", "--oversubscribe"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(baton.children(process.pid)) == 2, 30, "no engines")
    pids = baton.children(process.pid)
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, ""), errors
    assert_gone(pids)


def test_a_drain_finishes_streams_on_a_pair():
    server = baton.Server("--engines", "1P1D", "--oversubscribe", "--kv-memory", "256MiB")
    pids = server.pids()
    events = server.events("/v1/completions", prompt=LONG, max_tokens=60, ignore_eos=True, return_token_ids=True)
    first = next(events)
    server.process.send_signal(signal.SIGTERM)
    ids = [i for event in [first, *events] for choice in event["choices"] for i in choice.get("token_ids") or []]
    assert len(ids) == 60
    status, errors = server.wait()
    assert status == 0, errors
    assert_gone(pids)


def test_logs_and_trace_name_the_engines(tmp_path):
    trace = tmp_path / "trace.json"
    with baton.Server("--engines", "1P1D", "--oversubscribe", "--kv-memory", "256MiB", "--trace", trace) as server:
        answer(server, LONG)
        status, errors = server.stop()
    assert status == 0
    assert "engine 0 (prefill): ready on" in errors and "engine 1 (decode): ready on" in errors
    events = json.loads(trace.read_text())
    names = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert set(names) == {"router", "engine 0 (prefill)", "engine 1 (decode)"}
    of = lambda name: {e["name"] for e in events if e["pid"] == names[name]}
    assert {"prefill", "put"} <= of("engine 0 (prefill)") and "decode" in of("engine 1 (decode)")


def test_engines_ask_for_the_internal_key():
    """Clients have no business on the engines' ports: only the supervisor's router has the key."""
    with baton.Server("--api-key", "sesame") as server:
        status, _, data = server.request("GET", "/engines", headers={"Authorization": "Bearer sesame"})
        assert status == 200
        port = int(json.loads(data)[0]["url"].rsplit(":", 1)[1])
        for key in ("", "sesame"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
            assert connection.getresponse().status == 401
            connection.close()
        assert server.request("GET", "/engines")[0] == 401


def test_router_and_engine_run_alone(expected):
    """Processes of their own, as on other hosts: `baton engine` with a port, `baton router` with its URL."""
    engine = subprocess.Popen([baton.BATON, "engine", "--port", "0", "--kv-memory", "256MiB"], stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, BATON_INTERNAL_KEY="between us"))
    try:
        url = re.search(r"http://[\d.]+:\d+", engine.stderr.readline()).group()
        with baton.Server.launch("router", "--port", 0, "--engine", url, env={"BATON_INTERNAL_KEY": "between us"}) as router:
            assert [answer(router), answer(router, LONG)] == expected
            maps = pathlib.Path(f"/proc/{router.process.pid}/status").read_text()
            assert int(re.search(r"VmHWM:\s+(\d+) kB", maps).group(1)) < 150_000  # no weights
            assert router.stop()[0] == 0
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(30) == 0
    finally:
        engine.kill()
        engine.wait()
        engine.stderr.close()
