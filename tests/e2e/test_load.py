"""Many requests at once, the prefix cache, preemption: same answers, nothing left."""
import concurrent.futures
import random
import time

import pytest

import baton


def mixed_requests(n):
    """5 to 1,500 prompt tokens, 1 to 200 out, mostly short; greedy and sampled."""
    rng = random.Random(11)
    requests = []
    for i in range(n):
        n_prompt = rng.choice([5, 9, 17, 40, 60, 60, 130, 300]) if i % 8 else [1500, 700, 200, 450][i // 8 % 4]
        n_out = rng.choice([1, 2, 7, 16, 30]) if i % 16 != 3 else 200
        requests.append(dict(prompt=[rng.randrange(1000, 40000) for _ in range(n_prompt)], max_tokens=n_out,
                             temperature=rng.choice([0, 0, 1.0]), seed=i, ignore_eos=True, return_token_ids=True))
    return requests


def streamed_ids(server, request):
    ids, text = [], ""
    for event in server.events("/v1/completions", **request):
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
            text += choice["text"]
    return ids, text


def check_concurrent_equals_alone(server, requests):
    alone = [streamed_ids(server, r) for r in requests]
    assert [len(ids) for ids, _ in alone] == [r["max_tokens"] for r in requests]
    assert server.wait_idle(10)
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        together = list(pool.map(lambda r: streamed_ids(server, r), requests))
    wrong = [i for i, (a, b) in enumerate(zip(alone, together)) if a != b]
    assert not wrong
    assert server.wait_idle(10)


def test_64_streams_equal_their_one_by_one_runs():
    # Exact prefix: the runs come one after the other, so without it the cache of the first would be matched by the second
    # and its last bits differ where an answer's own blocks are matched.
    with baton.Server("--exact-prefix", "--log-level", "warn") as server:
        check_concurrent_equals_alone(server, mixed_requests(64))
        total = server.metric("baton_kv_blocks")
        assert server.metric("baton_kv_blocks", state="free") + server.metric("baton_kv_blocks", state="cached") == total


@pytest.mark.parametrize("engines", ["1B", "1P1D"])
def test_the_same_with_preemption(engines):
    # 45 MiB are about 125 blocks of SmolLM2: eight sequences are admitted with 8 blocks each and grow to 19, whatever
    # the machine's pace.
    with baton.Server("--engines", engines, "--exact-prefix", "--kv-memory", "45MiB", "--context", "1800", "--log-level", "error") as server:
        requests = [dict(request, prompt=request["prompt"][:1] * 120, max_tokens=180, seed=100 + i)
                    for i, request in enumerate(mixed_requests(8))] + mixed_requests(24)
        check_concurrent_equals_alone(server, requests)
        assert server.metric("vllm:num_preemptions_total") > 0


def test_prefix_cache_saves_the_second_prefill(smollm2):
    rng = random.Random(time.time_ns())
    prompt = [rng.randrange(1000, 40000) for _ in range(2000)]

    def timed():
        start = time.perf_counter()
        answer = smollm2.post("/v1/completions", prompt=prompt, max_tokens=1, temperature=0, return_token_ids=True)
        return time.perf_counter() - start, answer

    first_s, first = timed()
    second_s, second = timed()
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 1984
    assert second["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    print(f"TTFT of 2,000 tokens: {first_s * 1e3:.0f} ms, again {second_s * 1e3:.0f} ms ({second_s / first_s:.1%})")
    assert second_s <= 0.2 * first_s


def test_a_long_prompt_does_not_stop_running_streams(smollm2):
    """While a 2,000-token prompt is prefilled, a running stream still gets tokens: chunks and decode steps mix."""
    events = smollm2.events("/v1/completions", prompt="Once", max_tokens=300, ignore_eos=True, temperature=0)
    for _ in range(5):
        next(events)
    before = smollm2.metric("vllm:generation_tokens_total")
    rng = random.Random(3)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(smollm2.post, "/v1/completions", max_tokens=1,
                           prompt=[rng.randrange(1000, 40000) for _ in range(2000)])
        n_while = 0
        for _ in events:
            n_while += not long.done()
        long.result()
    assert n_while >= 2, before


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_counters_count_what_clients_saw(smollm2, path):
    names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count",
             "vllm:e2e_request_latency_seconds_count"]
    before = [smollm2.metric(n) for n in names]
    body = {"prompt": "Hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hello"}]}
    usage = smollm2.post(path, max_tokens=7, ignore_eos=True, **body)["usage"]
    after = [smollm2.metric(n) for n in names]
    assert [a - b for a, b in zip(after, before)] == [usage["prompt_tokens"], 7, 1, 1]
