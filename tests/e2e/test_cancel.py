"""A client that closes its connection, in each state of its request: every block is free soon.

How soon is printed (pytest -s): at most a step, 0.03 to 0.16 s on a quiet machine."""
import json
import random
import socket
import time

import pytest

import baton


def prompt(n, seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(n)]


def send(server, **body):
    """A socket whose request is sent and not yet answered."""
    data = json.dumps({"temperature": 0, "ignore_eos": True, "stream": True, **body}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return connection


def assert_freed(server):
    start = time.monotonic()
    assert server.wait_idle(10)
    free_s = time.monotonic() - start
    print(f"free after {free_s:.2f} s")
    assert free_s <= 1.0


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the state was not reached"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def small():
    """One running sequence at a time, small steps: every state lasts long enough to be seen."""
    with baton.Server("--max-batch", 1, "--max-batched-tokens", 64, "--log-level", "warn") as server:
        yield server


def running(server):
    return server.metric("vllm:num_requests_running")


def test_while_decoding(small):
    connection = send(small, prompt=prompt(40, 1), max_tokens=5000)
    got = b""
    while got.count(b"data:") < 3:
        got += connection.recv(4096)
    assert running(small) == 1 and small.blocks_used() > 0
    connection.close()
    assert_freed(small)


def test_while_prefilling(small):
    # 64 tokens a step: 4,000 take dozens of steps, and no token can have come yet.
    tokens = small.metric("vllm:generation_tokens_total")
    connection = send(small, prompt=prompt(4000, 2), max_tokens=10)
    wait_for(lambda: running(small) == 1 and small.blocks_used() > 0)
    connection.close()
    assert_freed(small)
    assert small.metric("vllm:generation_tokens_total") == tokens


def test_while_queued(small):
    first = send(small, prompt=prompt(40, 3), max_tokens=5000)
    wait_for(lambda: running(small) == 1)
    second = send(small, prompt=prompt(200, 4), max_tokens=10)
    wait_for(lambda: small.metric("vllm:num_requests_waiting") == 1)
    second.close()
    wait_for(lambda: small.metric("vllm:num_requests_waiting") == 0)
    assert running(small) == 1
    first.close()
    assert_freed(small)


def test_while_decoding_though_more_was_sent(small):
    """Bytes after the request don't hide that the client has gone."""
    connection = send(small, prompt=prompt(40, 6), max_tokens=5000, stream=False)
    wait_for(lambda: running(small) == 1)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
    time.sleep(0.2)
    connection.close()
    assert_freed(small)


def test_while_preempted():
    """Two sequences that don't fit together: one is preempted and waits; both clients go."""
    with baton.Server("--kv-memory", "45MiB", "--context", "1500", "--log-level", "warn") as server:
        connections = [send(server, prompt=prompt(700, i), max_tokens=790) for i in range(3)]
        wait_for(lambda: server.metric("vllm:num_preemptions_total") > 0, 60)
        for connection in connections:
            connection.close()
        assert_freed(server)


def test_closing_at_random_moments_leaks_nothing(smollm2):
    rng = random.Random(5)
    for i in range(60):
        connection = send(smollm2, prompt=prompt(rng.choice([3, 100, 900]), i), max_tokens=rng.choice([1, 20, 400]), n=rng.choice([1, 3]))
        time.sleep(rng.random() * 0.15)
        connection.close()
    assert_freed(smollm2)
    assert smollm2.post("/v1/completions", prompt="Hi", max_tokens=3)["usage"]["completion_tokens"] == 3
