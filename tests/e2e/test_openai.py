"""The openai package against a server of the real model: one engine, and a prefill and a decode engine."""
import openai
import pytest

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module", params=["smollm2", "pair"], ids=["1B", "1P1D"])
def server(request):
    server = request.getfixturevalue(request.param)
    yield server
    assert server.wait_idle(20)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["smollm2-135m"]
    assert models[0].max_model_len >= 2048
    assert client.models.retrieve("smollm2-135m").id == "smollm2-135m"


def test_chat(client):
    answer = client.chat.completions.create(model="smollm2-135m", messages=MESSAGES, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.id.startswith("chatcmpl-")


def test_chat_stream_is_the_whole_answer(client):
    whole = client.chat.completions.create(model="smollm2-135m", messages=MESSAGES, temperature=0)
    chunks = list(client.chat.completions.create(model="smollm2-135m", messages=MESSAGES, temperature=0, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_two_choices_differ_and_a_seed_repeats_them(client):
    def ask(seed):
        answer = client.chat.completions.create(model="smollm2-135m", messages=[{"role": "user", "content": "Tell me a story."}],
                                                n=2, seed=seed, max_tokens=30, extra_body={"ignore_eos": True})
        assert [c.index for c in answer.choices] == [0, 1]
        assert answer.usage.completion_tokens == 60
        return [c.message.content for c in answer.choices]
    first = ask(7)
    assert first[0] != first[1]
    assert ask(7) == first
    assert ask(8) != first


def test_streamed_choices_are_interleaved_but_whole(client):
    kwargs = dict(model="smollm2-135m", messages=MESSAGES, n=3, seed=3, max_tokens=20)
    whole = client.chat.completions.create(**kwargs)
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**kwargs, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [c.message.content for c in whole.choices]


def test_chat_logprobs(client):
    answer = client.chat.completions.create(model="smollm2-135m", messages=MESSAGES, temperature=0, logprobs=True,
                                            top_logprobs=3, max_tokens=5)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 5
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy: the best is what was taken
        assert bytes(entry.bytes).decode() == entry.token
    assert "".join(e.token for e in entries) == answer.choices[0].message.content


def test_completions_logprobs_and_echo(client):
    answer = client.completions.create(model="smollm2-135m", prompt="Once upon a time", max_tokens=4, temperature=0,
                                       logprobs=2, echo=True)
    choice = answer.choices[0]
    assert choice.text.startswith("Once upon a time")
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None and all(x <= 0 for x in choice.logprobs.token_logprobs[1:])
    assert [choice.text[o:o + len(t)] for o, t in zip(choice.logprobs.text_offset, choice.logprobs.tokens)] \
        == choice.logprobs.tokens


def test_stop_strings_end_the_text_before_them(client):
    full = client.completions.create(model="smollm2-135m", prompt="Count: one, two, three,", max_tokens=40, temperature=0)
    text = full.choices[0].text
    stop = text[10:14]  # lies across tokens, whatever they are
    answer = client.completions.create(model="smollm2-135m", prompt="Count: one, two, three,", max_tokens=40, temperature=0,
                                       stop=[stop, "never this"])
    assert answer.choices[0].text == text[:text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    streamed = "".join(c.choices[0].text for c in client.completions.create(
        model="smollm2-135m", prompt="Count: one, two, three,", max_tokens=40, temperature=0, stop=stop, stream=True))
    assert streamed == text[:text.index(stop)]


def test_a_list_of_prompts_and_token_ids(client, server):
    texts = ["The sky is", "Two plus two is"]
    ids = [server.post("/tokenize", prompt=t)["tokens"] for t in texts]
    kwargs = dict(model="smollm2-135m", max_tokens=6, temperature=0)
    alone = [client.completions.create(prompt=t, **kwargs).choices[0].text for t in texts]
    together = client.completions.create(prompt=texts, **kwargs)
    assert [c.text for c in together.choices] == alone
    assert [c.index for c in together.choices] == [0, 1]
    assert together.usage.prompt_tokens == sum(map(len, ids))
    assert [c.text for c in client.completions.create(prompt=ids, **kwargs).choices] == alone
    assert client.completions.create(prompt=ids[0], **kwargs).choices[0].text == alone[0]


def test_token_ids_and_penalties_and_bias(client, server):
    answer = client.completions.create(model="smollm2-135m", prompt="The", max_tokens=8, temperature=0,
                                       extra_body={"return_token_ids": True})
    choice = answer.choices[0]
    assert len(choice.token_ids) == 8
    assert server.post("/detokenize", tokens=choice.token_ids)["prompt"] == choice.text
    banned = client.completions.create(model="smollm2-135m", prompt="The", max_tokens=8, temperature=0,
                                       logit_bias={str(choice.token_ids[0]): -100},
                                       extra_body={"return_token_ids": True})
    assert choice.token_ids[0] not in banned.choices[0].token_ids


@pytest.mark.parametrize("change, kind, word", [
    (dict(model="gpt-4"), openai.NotFoundError, "gpt-4"),
    (dict(temperature=9), openai.BadRequestError, "temperature"),
    (dict(max_tokens=10**7), openai.BadRequestError, "10000000"),
    (dict(messages=[]), openai.BadRequestError, "messages"),
    (dict(tools=[{"type": "function", "function": {"name": "f"}}]), openai.BadRequestError, "tools"),
    (dict(logit_bias={"999999": 1}), openai.BadRequestError, "logit_bias"),
])
def test_errors_have_their_class_and_name_the_thing(client, change, kind, word):
    with pytest.raises(kind) as error:
        client.chat.completions.create(**{"model": "smollm2-135m", "messages": MESSAGES, "max_tokens": 4, **change})
    assert word in str(error.value)


def test_the_prompts_were_handed_over(server):
    """The last of them all: the pair did what it is for."""
    if len(server.engines()) == 1:
        assert server.metric("baton_router_plan_total", plan="both") > 0
    else:
        assert server.metric("baton_router_plan_total", plan="disaggregated") > 0
        assert server.metric("baton_kv_transfer_bytes_total") > 0


def test_api_key():
    import baton
    with baton.Server("--api-key", "sesame") as server:
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
        assert openai.OpenAI(base_url=server.url + "/v1", api_key="sesame").models.list().data
        for path in ("/health", "/ready", "/metrics"):
            assert server.request("GET", path)[0] == 200
        assert server.request("GET", "/version")[0] == 401
