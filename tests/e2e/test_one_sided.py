"""The verbs by hand, on lone engines: one-sided writes, leases, mismatches, members that are missing."""
import random
import signal
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
    tokens, end = prompt(500, hash(verbs) % 1000), 496
    room = d.ok("prep_recv", prompt=tokens, end=end)
    assert d.metric("baton_kv_blocks", state="leased") == 32 and d.metric("baton_leases", state="active") == 1
    connection = None
    if "remote_send" in verbs:
        p.ok("remote_send", id="3", prompt=tokens, begin=0, end=end, to=room["address"])
    if "start_generate" in verbs:
        connection = d.connect("start_generate", {"id": "3", "prompt": tokens, "leased": {"lease": room["lease"], "begin": end},
                                                  **greedy(10)})
        time.sleep(0.1)
        connection.close()
    engines.wait_for(lambda: p.free() and d.free(), 4, "the lease did not run out")
    # Nothing that never arrived may be matched.
    again = d.ok("prep_recv", prompt=tokens, end=end)
    assert again["n_matched"] == 0
    d.ok("release", lease=again["lease"])
    assert d.free()
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


def test_engines_that_differ_are_refused_with_both_values():
    place = engines.world(2)
    with engines.Engine("prefill", "--kv-dtype", "bf16", "--join-timeout", "20s", env=place(0)) as p, \
         engines.Engine("decode", "--kv-dtype", "f32", "--join-timeout", "20s", env=place(1)) as d:
        for engine in (p, d):
            said = engine.ready_pipe.readline()
            assert "bf16" in said and "f32" in said, said
            assert engine.process.wait(30) in (1, 2)  # their flags do not fit together
