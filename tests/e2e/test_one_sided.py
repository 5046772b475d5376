"""The verbs by hand, on lone engines: one-sided writes, leases, mismatches, members that are missing."""
import json
import random
import signal
import socket
import time

import pytest

import baton
import engines


def prompt(n, seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(n)]


@pytest.fixture(scope="module")
def two():
    place = engines.world(2)
    with engines.Engine("prefill", "--lease", "2s", env=place(0)) as p, engines.Engine("decode", "--lease", "2s", env=place(1)) as d:
        p.ready(), d.ready()
        yield p, d


def greedy(n):
    return {"sampling": {"temperature": 0}, "max_tokens": n, "ignore_eos": True}


def alone(tokens, n):
    with baton.Server("--engines", "1B", "--log-level", "warn") as server:
        return server.post("/v1/completions", prompt=tokens, return_token_ids=True, temperature=0, max_tokens=n,
                           ignore_eos=True)["choices"][0]["token_ids"]


def test_a_stopped_decode_engine_receives_all_the_same(two):
    p, d = two
    tokens, end = prompt(700, 1), 688
    room = d.ok("prep_recv", prompt=tokens, end=end, lease_ns=30_000_000_000)
    assert room["n_matched"] == 0
    d.process.send_signal(signal.SIGSTOP)
    engines.wait_for(lambda: d.process.pid and "T" in open(f"/proc/{d.process.pid}/stat").read().rsplit(")", 1)[1][:3], 5, "not stopped")
    before = d.cpu_ticks()
    sent = p.ok("remote_send", id="1", prompt=tokens, begin=0, end=end, to=room["address"])
    assert int(sent["n_bytes"]) == end * 30 * 2 * 3 * 64 * 2
    assert d.cpu_ticks() == before
    d.process.send_signal(signal.SIGCONT)
    ids = d.generate(id="1", prompt=tokens, leased={"lease": room["lease"], "begin": end}, **greedy(20))
    assert ids == alone(tokens, 20)
    engines.wait_for(lambda: p.free() and d.free(), 5, "something is still held")


def test_start_generate_may_come_before_the_send(two):
    import threading
    p, d = two
    tokens, end = prompt(300, 2), 288
    room = d.ok("prep_recv", prompt=tokens, end=end, lease_ns=30_000_000_000)
    found = []
    thread = threading.Thread(target=lambda: found.extend(
        d.generate(id="2", prompt=tokens, leased={"lease": room["lease"], "begin": end}, **greedy(10))))
    thread.start()
    time.sleep(0.3)
    assert not found
    p.ok("remote_send", id="2", prompt=tokens, begin=0, end=end, to=room["address"])
    thread.join(30)
    assert found == alone(tokens, 10)


@pytest.mark.parametrize("verbs", ["prep_recv", "prep_recv remote_send", "prep_recv start_generate"])
def test_what_a_dead_router_left_is_free_within_one_lease(two, verbs):
    p, d = two
    tokens, end = prompt(500, 100 + len(verbs)), 496
    room = d.ok("prep_recv", prompt=tokens, end=end)
    engines.wait_for(lambda: d.metric("baton_kv_blocks", state="leased") == 32 and d.metric("baton_leases", state="active") == 1,
                     4, "the metrics know nothing of the lease")
    connection = None
    if "remote_send" in verbs:
        p.ok("remote_send", id="3", prompt=tokens, begin=0, end=end, to=room["address"])
    if "start_generate" in verbs:
        connection = d.connect("start_generate", {"id": "3", "prompt": tokens, "leased": {"lease": room["lease"], "begin": end},
                                                  **greedy(10)})
        time.sleep(0.1)
        connection.close()
    engines.wait_for(lambda: p.free() and d.free(), 3, "the lease did not run out")
    # Nothing that never arrived may be matched.
    again = d.ok("prep_recv", prompt=tokens, end=end)
    assert again["n_matched"] == 0
    d.ok("release", lease=again["lease"])
    engines.wait_for(d.free, 4, "the lease was not given back")
    # And the address of a lease that ended is refused.
    status, body = p.call("remote_send", id="4", prompt=tokens, begin=0, end=end, to=room["address"])
    assert status >= 400 and body["error"]["message"]


def test_a_restarted_decode_engine_refuses_old_addresses():
    place = engines.world(2)
    with engines.Engine("prefill", env=place(0)) as p, engines.Engine("decode", env=place(1)) as d:
        p.ready(), d.ready()
        tokens = prompt(200, 4)
        room = d.ok("prep_recv", prompt=tokens, end=192)
        d.process.kill()
        d.process.wait()
        status, body = p.call("remote_send", id="1", prompt=tokens, begin=0, end=192, to=room["address"])
        assert status == 503, body
        with engines.Engine("decode", env=place(1, join="later")) as d2:
            d2.ready()
            status, body = p.call("remote_send", id="2", prompt=tokens, begin=0, end=192, to=room["address"])
            assert status in (409, 503) and body["error"]["message"], body
            room = d2.ok("prep_recv", prompt=tokens, end=192)
            p.ok("remote_send", id="3", prompt=tokens, begin=0, end=192, to=room["address"])
            ids = d2.generate(id="3", prompt=tokens, leased={"lease": room["lease"], "begin": 192}, **greedy(5))
            assert len(ids) == 5


def test_a_withheld_engine_is_named():
    place = engines.world(3)
    with engines.Engine("prefill", "--join-timeout", "3s", env=place(0)) as p, \
         engines.Engine("decode", "--join-timeout", "3s", env=place(2)) as d:
        for engine in (p, d):
            said = engine.ready_pipe.readline()
            assert "PE 1" in said and "error" in said, said
            assert engine.process.wait(10) == 1


def refused(first, second, words):
    """Both of these engines, [(model, environment, flags)], end at once and say all of `words`."""
    place = engines.world(2)
    def start(role, pe, what):
        model, env, flags = what
        return engines.Engine(role, *flags, "--join-timeout", "20s", model=model, env={**place(pe), **env})
    with start("prefill", 0, first) as p, start("decode", 1, second) as d:
        for engine in (p, d):
            said = engine.ready_pipe.readline()
            assert "error" in said and all(word in said for word in words), said
            assert engine.process.wait(30) in (1, 2)  # they do not fit together


def test_engines_that_differ_are_refused_with_both_values(tmp_path):
    smollm2 = "smollm2-135m"
    refused((smollm2, {}, ["--kv-dtype", "bf16"]), (smollm2, {}, ["--kv-dtype", "f32"]), ["dtype", "bf16", "f32"])
    refused((smollm2, {}, []), ("gemma3-270m", {}, []), ["layers", "is 30 in", "but 18 in"])
    refused((smollm2, {"BATON_KERNELS": "portable"}, []), (smollm2, {"BATON_KERNELS": "reference"}, ["--kv-dtype", "bf16"]),
            ["model is", "portable kernels", "reference kernels"])
    # Another fine-tune: the same shapes, other weights.
    weights = bytearray((baton.CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes())
    weights[-1000] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(weights)
    refused((smollm2, {}, []), (str(other), {}, []), ["model is", "but llama"])


class StandInMember:
    """The place of PE 1 of 2: hears the Hello of the engine that dials it, answers with one that differs in one field.
    The format is in src/shmem/shm/wire.h."""

    def __init__(self, uid):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"\0baton/heap/{uid}/1")
        self.listener.listen()
        self.listener.settimeout(60)

    def differ(self, field):
        """Changes `field`; (the engine's own value, what the engine says to that)."""
        self.connection = self.listener.accept()[0]
        hello = self.connection.recv(1 << 16)
        at = 16  # after magic, version, kind

        def number(size):
            nonlocal at
            at += size
            return int.from_bytes(hello[at - size:at], "little")

        def text():
            nonlocal at
            n = number(4)
            at += n
            return hello[at - n:at].decode()
        uid, npes, _, n_pes, incarnation, n_bytes, n_windows, _ = (
            text(), number(4), number(4), number(4), number(8), number(8), number(4), text())
        fields = {text(): text() for _ in range(number(4))}
        info = text()
        own = fields[field]
        fields[field] = own + "9"
        pack = lambda value, size: value.to_bytes(size, "little")
        string = lambda value: pack(len(value.encode()), 4) + value.encode()
        answer = (hello[:16] + string(uid) + pack(npes, 4) + pack(1, 4) + pack(n_pes, 4) + pack(incarnation, 8) + pack(n_bytes, 8) +
                  pack(n_windows, 4) + string("stand-in") + pack(len(fields), 4) +
                  b"".join(string(name) + string(value) for name, value in fields.items()) + string(info))
        self.connection.send(answer)
        return own, self.connection.recv(1 << 16)


@pytest.mark.parametrize("field", ["block size", "dtype", "layers", "kv heads", "head_dim", "model"])
def test_every_field_of_the_layout_counts(field):
    """Row 23 of the failure list, on a real engine: what no flag can change is changed by a stand-in."""
    place = engines.world(2)
    member = StandInMember(json.loads(place(1)["BATON_SHMEM_INIT_CONFIG_JSON_STR"])["uid"])
    with engines.Engine("prefill", "--name", "P", "--join-timeout", "20s", env=place(0)) as engine:
        own, refusal = member.differ(field)
        said = engine.ready_pipe.readline()
        text = f"{field} is {own} in P at PE 0, but {own}9 in stand-in at PE 1"
        assert text in json.loads(said)["error"], said
        assert text.encode() in refusal, refusal
        assert engine.process.wait(30) == 2
