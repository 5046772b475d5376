"""Prefill and decode on engines of their own: the same answers, to the bit, and one-sided writes."""
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess

import pytest

import baton

N_TOKENS = 40
# The set that has --prefill-activations int8 here; amx machines have it too.
INT8_KERNELS = "avx512" if "avx512_vnni" in pathlib.Path("/proc/cpuinfo").read_text() else "portable"


def plan_of(server, body):
    """The plan of the request's latest attempt."""
    status, _, data = server.request("GET", f"/requests/{body['id']}/plan")
    assert status == 200, data
    return json.loads(data)["attempts"][-1]


def answers(server, entries):
    """What the API says about each golden prompt: ids and log probabilities of the answer; and the plan of each."""
    out, plans = [], []
    for entry in entries:
        body = server.post("/v1/completions", prompt=entry["prompt_ids"], max_tokens=N_TOKENS, temperature=0, logprobs=5,
                           ignore_eos=True, return_token_ids=True, return_tokens_as_token_ids=True)
        choice = body["choices"][0]
        assert len(choice["token_ids"]) == N_TOKENS
        out.append((choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]))
        plans.append(plan_of(server, body))
    return out, plans


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_same_bits_as_one_engine_on_every_golden(model):
    entries = baton.goldens(model)
    if entries is None:
        pytest.skip("skipped: no goldens of the real models beside the repository (BATON_SHARED)")
    flags = ["--remote-prefill-min-tokens", 1, "--log-level", "warn"]
    with baton.Server(*flags, "--engines", "1B", model=baton.MODELS[model]) as server:
        alone, _ = answers(server, entries)
    for engines in ["1P1D", "2P2D"]:
        with baton.Server(*flags, "--engines", engines, "--oversubscribe", "--kv-memory", "512MiB",
                          model=baton.MODELS[model]) as server:
            found, plans = answers(server, entries)
            wrong = [entry["name"] for entry, a, b in zip(entries, alone, found) if a != b]
            assert not wrong, engines
            # A prompt of one block or less leaves nothing to hand over: its last token is always computed by the decoder.
            for entry, plan in zip(entries, plans):
                if len(entry["prompt_ids"]) > 16:
                    assert plan["plan"] == "disaggregated", (entry["name"], plan)
            assert server.metric("baton_kv_transfer_bytes_total") > 0
            assert server.wait_idle(10)


def test_int8_prefill_has_the_same_bits_in_any_mix():
    entries = baton.goldens("smollm2")
    if entries is None:
        pytest.skip("skipped: no goldens of the real models beside the repository (BATON_SHARED)")
    entries = entries[:6]
    flags = ["--remote-prefill-min-tokens", 1, "--log-level", "warn"]
    found = {}
    for name, more in {"int16": ["--engines", "1B"], "1B": ["--engines", "1B", "--prefill-activations", "int8"],
                       "1P1D": ["--engines", "1P1D", "--oversubscribe", "--prefill-activations", "int8"]}.items():
        with baton.Server(*flags, *more, kernels=INT8_KERNELS) as server:
            found[name], plans = answers(server, entries)
            version = json.loads(server.request("GET", "/version")[2])
            assert {engine["prefill_activations"] for engine in version["engines"]} == {"int16" if name == "int16" else "int8"}
            phases = {gemm["phase"] for gemm in version["gemms"] if gemm["implementation"].endswith("on int8 activations")}
            assert phases == (set() if name == "int16" else {"prefill"})
            if name == "1P1D":
                assert any(plan["plan"] == "disaggregated" for plan in plans)
    assert found["1B"] == found["1P1D"]
    assert found["1B"] != found["int16"], "int8 is another arithmetic"


@pytest.mark.parametrize("command", [["serve"], ["engine"], ["bench"]])
def test_int8_prefill_is_refused_where_kernels_have_none(command):
    result = subprocess.run([baton.BATON, *command, "--prefill-activations", "int8"], env=dict(os.environ, BATON_KERNELS="reference"),
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 2, result.stderr
    assert "--prefill-activations int8: the reference kernels have no such products; use int16" in result.stderr


def prompt(n, seed):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(n)]


def options(i):
    """Every kind of sampling and length; 150 to 900 prompt tokens, so that all are handed over."""
    rng = random.Random(i)
    return dict(prompt=prompt(rng.choice([150, 161, 300, 512, 900]), i), max_tokens=rng.choice([1, 2, 20, 60]), seed=i,
                temperature=[0, 1.0, 0.7][i % 3], n=[1, 1, 3][i % 3], ignore_eos=True, return_token_ids=True,
                presence_penalty=[0, 0.5][i % 2], logprobs=2)


def outcome(server, request):
    return [(c["token_ids"], c["logprobs"]["token_logprobs"]) for c in server.post("/v1/completions", **request)["choices"]]


@pytest.mark.parametrize("engines", ["1P1D", "2P1D", "1P2D"])
def test_many_at_once_equal_one_engine(engines):
    requests = [options(i) for i in range(18)]
    flags = ["--exact-prefix", "--log-level", "warn", "--kv-memory", "512MiB", "--oversubscribe"]
    with baton.Server(*flags, "--engines", "1B") as server:
        alone = [outcome(server, r) for r in requests]
    with baton.Server(*flags, "--engines", engines) as server:
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            together = list(pool.map(lambda r: outcome(server, r), requests))
        wrong = [i for i, (a, b) in enumerate(zip(alone, together)) if a != b]
        assert not wrong
        assert server.metric("baton_router_plan_total", plan="disaggregated") == len(requests)
        assert server.wait_idle(10)
        for engine in json.loads(server.request("GET", "/engines")[2]):
            assert (engine["running"], engine["waiting"], engine["kv_blocks_used"], engine["kv_blocks_leased"]) == (0, 0, 0, 0)


def test_echoed_log_probabilities_come_from_both_engines():
    request = dict(prompt=prompt(333, 5), max_tokens=3, temperature=0, echo=True, logprobs=2, return_token_ids=True)
    found = []
    for engines in ["1B", "1P1D"]:
        with baton.Server("--log-level", "warn", "--engines", engines) as server:
            choice = server.post("/v1/completions", **request)["choices"][0]
            assert choice["logprobs"]["token_logprobs"][0] is None
            found.append(choice["logprobs"]["token_logprobs"])
            again = server.post("/v1/completions", **request)["choices"][0]  # nothing of it comes from a cache
            assert again["logprobs"]["token_logprobs"] == found[-1]
    assert found[0] == found[1] and len(found[0]) == 336


def test_a_chat_that_grows_is_handed_over_from_where_the_decoder_knows_it():
    """The second turn's prefix is matched on the decode engine: only the rest is transferred."""
    with baton.Server("--log-level", "warn", "--engines", "1P1D") as server:
        first = prompt(400, 8)
        answer = server.post("/v1/completions", prompt=first, max_tokens=40, temperature=0, ignore_eos=True, return_token_ids=True)
        before = server.metric("baton_kv_transfer_bytes_total")
        second = first + answer["choices"][0]["token_ids"] + prompt(300, 9)
        body = server.post("/v1/completions", prompt=second, max_tokens=5, temperature=0)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= 400
        moved = server.metric("baton_kv_transfer_bytes_total") - before
        assert 0 < moved < 0.6 * before * len(second) / len(first)
        # … and where little is new, the decode engine does it alone.
        body = server.post("/v1/completions", prompt=second + prompt(20, 10), max_tokens=5, temperature=0)
        plan = plan_of(server, body)
        assert (plan["plan"], plan["reason"]) == ("decode_only", "cached")
