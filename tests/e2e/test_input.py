"""Bad input: requests, headers, model files. The right error, and the server goes on."""
import concurrent.futures
import json
import random
import socket
import subprocess

import pytest

import baton

TABLE = json.loads((baton.ROOT / "tests/data/api/malformed.json").read_text())


def test_the_table_is_large_enough():
    assert len(TABLE) >= 60


def expanded(value):
    """{"$repeat_list": [x, n]} → [x] * n, {"$repeat_text": [s, n]} → s * n."""
    if isinstance(value, dict):
        if "$repeat_list" in value:
            return [value["$repeat_list"][0]] * value["$repeat_list"][1]
        if "$repeat_text" in value:
            return value["$repeat_text"][0] * value["$repeat_text"][1]
        return {k: expanded(v) for k, v in value.items()}
    return [expanded(v) for v in value] if isinstance(value, list) else value


def body_of(row):
    if "body_hex" in row:
        return bytes.fromhex(row["body_hex"])
    if "body_text" in row:
        return row["body_text"].encode()
    return json.dumps(expanded(row["body"])).encode() if "body" in row else None


def test_malformed_requests(smollm2):
    wrong = []
    for row in TABLE:
        headers = {"Content-Type": "application/json", **row.get("headers", {})}
        status, got, data = smollm2.request(row["method"], row["path"], body_of(row), headers)
        error = json.loads(data)["error"]
        good = (status == row["status"] and row.get("message", "") in error["message"]
                and ("param" not in row or error["param"] == row["param"])
                and all(got.get(k) == v for k, v in row.get("headers_expected", {}).items()))
        if not good:
            wrong.append((row["name"], status, data[:200]))
    assert not wrong
    assert smollm2.post("/v1/completions", prompt="Hi", max_tokens=2)["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("raw", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n", b"\0" * 1000,
])
def test_bytes_that_are_no_request(smollm2, raw):
    with socket.create_connection(("127.0.0.1", smollm2.port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
        assert answer == b"" or answer.split(b" ")[1][:1] == b"4", answer[:200]
    assert smollm2.request("GET", "/health")[0] == 200


def test_garbage_from_many_clients_disturbs_nobody(smollm2):
    expected = smollm2.post("/v1/completions", prompt="The moon", max_tokens=60, temperature=0)["choices"][0]["text"]
    rng = random.Random(1)

    def garbage(i):
        with socket.create_connection(("127.0.0.1", smollm2.port), timeout=10) as connection:
            body = bytes(rng.randrange(256) for _ in range(rng.randrange(2000)))
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                               % len(body) + body)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answer = pool.submit(smollm2.post, "/v1/completions", prompt="The moon", max_tokens=60, temperature=0)
        list(pool.map(garbage, range(200)))
        assert answer.result()["choices"][0]["text"] == expected


def corrupted(data, i):
    """The i-th way to break a model file: cut it, or change bytes in its header."""
    rng = random.Random(i)
    broken = bytearray(data)
    if i % 4 == 0:
        return broken[: rng.randrange(len(data))]
    limit = 200 if i % 4 == 1 else len(data) // (1 if i % 4 == 2 else 8)
    for _ in range(rng.choice([1, 1, 4, 32])):
        at = rng.randrange(limit)
        broken[at] = rng.choice([0, 0xFF, 0x7F, 0x80, rng.randrange(256)])
    return broken


def test_200_corrupted_model_files(tmp_path):
    tiny = baton.ROOT / "tests/data/golden/tiny/llama/model-bf16.gguf"
    data = tiny.read_bytes()
    path = tmp_path / "broken.gguf"
    refused = 0
    for i in range(200):
        path.write_bytes(corrupted(data, i))
        done = subprocess.run([baton.BATON, "inspect", path], capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode in (0, 1), (i, done.returncode, done.stderr[-500:])
        if done.returncode == 1:
            refused += 1
            assert done.stderr.count("\n") == 1 and "broken.gguf" in done.stderr, (i, done.stderr)
    assert refused > 60  # a changed weight or name is still a model
