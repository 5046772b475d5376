"""Engines and routers killed under load: the rest of the answer or a proper error, never wrong text, never silence; the
engine is back, and nothing stays behind.

BATON_KILLS sets how often each role is killed (default 6; a few minutes for 20, because restarts back off)."""
import concurrent.futures
import json
import os
import random
import signal
import socket
import threading
import time

import pytest

import baton
import engines

KILLS = int(os.environ.get("BATON_KILLS", 6))


def prompt(n, seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(n)]


def request(i):
    rng = random.Random(i)
    return dict(prompt=prompt(rng.choice([20, 150, 300, 600]), i), max_tokens=rng.choice([5, 30, 80]), seed=i,
                temperature=[0, 1.0][i % 2], ignore_eos=True, return_token_ids=True)


def engine_list(server):
    return json.loads(server.request("GET", "/engines")[2])


def all_ready(server):
    return all(e["state"] == "ready" for e in engine_list(server))


def nothing_left(server):
    busy = lambda e: [e["running"], e["waiting"], e["kv_blocks_used"], e["kv_blocks_leased"]]
    return all(busy(e) == [0, 0, 0, 0] for e in engine_list(server)) and server.metric("baton_leases") == 0


def streamed(server, body):
    """(ids, error): what a streaming client got; a stream without [DONE] fails."""
    connection = server.connection(60)
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        error = json.loads(response.read())["error"]
        assert response.status == 503 and error["message"], (response.status, error)
        return [], error
    ids, error, done = [], None, False
    for line in response:
        if line.startswith(b"data: [DONE]"):
            done = True
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            error = event.get("error") or error
            ids += [t for c in event.get("choices", []) for t in c.get("token_ids") or []]
    connection.close()
    assert done, "the stream ended without [DONE]"
    return ids, error


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_killed_under_load(role):
    requests = [request(i) for i in range(24)]
    rng = random.Random(role)
    with baton.Server("--engines", "1P1D", "--exact-prefix", "--log-level", "error") as server:
        alone = [streamed(server, r)[0] for r in requests]
        assert [len(ids) for ids in alone] == [r["max_tokens"] for r in requests]
        stop, results, lock = threading.Event(), {"whole": 0, "error": 0, "wrong": []}, threading.Lock()

        def client(k):
            i = k
            while not stop.is_set():
                i = (i + 5) % len(requests)
                ids, error = streamed(server, requests[i])
                with lock:
                    if error is None and ids == alone[i]:
                        results["whole"] += 1
                    elif error is not None and ids == alone[i][: len(ids)]:
                        results["error"] += 1
                    else:
                        results["wrong"].append((i, ids, alone[i], error))
                if error is not None:
                    time.sleep(0.1)

        slowest = 0.0
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(client, k) for k in range(6)]
            try:
                for _ in range(KILLS):
                    time.sleep(rng.uniform(0.05, 1.0))
                    victim = next(e for e in engine_list(server) if e["role"] == role)
                    os.kill(victim["pid"], signal.SIGKILL)
                    killed = time.monotonic()

                    def back():
                        now = next(e for e in engine_list(server) if e["role"] == role)
                        return now["state"] == "ready" and now["incarnation"] != victim["incarnation"]

                    engines.wait_for(back, 15, "the engine did not come back")
                    slowest = max(slowest, time.monotonic() - killed)
            finally:
                stop.set()
            for c in clients:
                c.result(120)
        assert not results["wrong"], results["wrong"][0]
        # Only a request under which three decode engines have died may end with an error.
        assert results["whole"] > 0 and (role == "decode" or results["error"] == 0), results
        engines.wait_for(lambda: nothing_left(server), 10, engine_list(server))
        assert next(e for e in engine_list(server) if e["role"] == role)["restarts"] == KILLS
        assert streamed(server, requests[0]) == (alone[0], None)
        print(f"{role}: {KILLS} kills, {results['whole']} answers whole, {results['error']} with an error; "
              f"back within {slowest:.1f} s")


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_that_hangs_is_killed_and_comes_back(role):
    """Stopped, it is silent: left out after 10 s, killed after the time-out. What it was doing goes on all the same."""
    running, *later = [dict(prompt=prompt(600, seed), max_tokens=n, temperature=0, ignore_eos=True, return_token_ids=True)
                       for seed, n in ((4, 200), (5, 30), (6, 30))]
    find = lambda server: next(e for e in engine_list(server) if e["role"] == role)
    with baton.Server("--engines", "1P1D", "--exact-prefix", "--hang-timeout", "4s", "--log-level", "warn") as server:
        victim = find(server)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(streamed, server, running)]
            engines.wait_for(lambda: server.metric("vllm:generation_tokens_total") > 3, 60, "no tokens")
            os.kill(victim["pid"], signal.SIGSTOP)
            answers += [pool.submit(streamed, server, r) for r in later]
            found = [a.result(180) for a in answers]
        now = find(server)
        assert now["state"] == "ready" and now["incarnation"] != victim["incarnation"] and now["restarts"] == 1
        assert "hung and was killed: nothing was heard of it for 10 s" in now["last_error"]
        assert not baton.alive(victim["pid"])
        assert sum(e["restarts"] for e in engine_list(server)) == 1
        engines.wait_for(lambda: nothing_left(server), 10, engine_list(server))
        assert found == [streamed(server, r) for r in (running, *later)]
        assert [len(ids) for ids, _ in found] == [200, 30, 30]
        _, errors = server.stop()
        assert f"({role}) hung and was killed: " in errors, errors


def test_an_engine_that_is_told_to_end_finishes_what_it_has():
    request = dict(prompt=prompt(300, 9), max_tokens=200, temperature=0, ignore_eos=True, return_token_ids=True)
    find = lambda server: next(e for e in engine_list(server) if e["role"] == "decode")
    with baton.Server("--engines", "1P1D", "--exact-prefix", "--log-level", "warn") as server:
        right = streamed(server, request)
        before = server.metric("vllm:generation_tokens_total")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(streamed, server, request)
            engines.wait_for(lambda: server.metric("vllm:generation_tokens_total") > before + 3, 60, "no tokens")
            os.kill(find(server)["pid"], signal.SIGTERM)
            assert answer.result(60) == right
        engines.wait_for(lambda: (find(server)["restarts"], find(server)["state"]) == (1, "ready"), 30, "the engine is not back")
        assert "signal" not in find(server)["last_error"], find(server)


def test_a_router_killed_between_any_two_verbs():
    """Engines on their own, a router that dies at random moments: both are free within one lease, the next router serves."""
    place = engines.world(2)
    rng = random.Random(9)
    flags = ["--lease", "3s", "--kv-memory", "512MiB"]
    with engines.Engine("prefill", *flags, env=place(0)) as p, engines.Engine("decode", *flags, env=place(1)) as d:
        p.ready(), d.ready()
        check = dict(prompt=prompt(300, 88), max_tokens=8, temperature=0, ignore_eos=True, return_token_ids=True)
        right = None
        for round_number in range(8):
            with baton.Server.launch("router", "--model", "smollm2-135m", "--engine", p.said["url"], "--engine", d.said["url"],
                                     "--port", 0, "--log-level", "error") as router:
                engines.wait_for(lambda: router.request("GET", "/ready")[0] == 200, 10, "no path")
                if right is None:
                    right = streamed(router, check)[0]
                assert streamed(router, check) == (right, None)
                for i in range(6):
                    data = json.dumps({"prompt": prompt(rng.choice([60, 300, 600]), 1000 + round_number * 10 + i), "max_tokens": 200}).encode()
                    s = socket.create_connection(("127.0.0.1", router.port))
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                              b"Content-Length: %d\r\n\r\n" % len(data) + data)
                time.sleep(rng.random() * 0.6)
                router.process.kill()
                router.process.wait()
            engines.wait_for(lambda: p.free() and d.free(), 4, "something is held after the router's death")
