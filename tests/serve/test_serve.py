"""The OpenAI server that `mmspec serve` starts, asked by the OpenAI client."""

import base64
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from PIL import Image

from mmspec.stats import RequestStats
from tests.serve.conftest import Server
from tests.serve.served_statistics import chunks, post, text
from tests.unit.test_deploy import dashboard_expressions

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
NEW = re.compile(rb'"id":"[^"]*"|"created":\d+')  # with every response


@pytest.fixture
def client(server: Server) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300)


@pytest.fixture
def question(tmp_path: Path) -> list[Any]:
    """One picture, by data URL, and a text that repeats itself so that there is something to look up."""
    path = tmp_path / "picture.png"
    Image.radial_gradient("L").convert("RGB").resize((112, 84)).save(path)
    url = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    picture = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [picture, {"type": "text", "text": "abcd abcd abcd abcd"}]}]


def test_a_question_about_a_picture_is_answered(client: OpenAI, question: list[Any]) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=question, temperature=0, max_tokens=24, extra_body={"ignore_eos": True}
    )

    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    # 84 x 112 pixels are 12 visual tokens of 28 x 28.
    assert answer.usage.prompt_tokens > 12


def test_the_stream_says_the_same(client: OpenAI, question: list[Any]) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 24}
    whole = client.chat.completions.create(**asked).choices[0].message.content

    pieces = [
        part.choices[0].delta.content or "" for part in client.chat.completions.create(**asked, stream=True)
    ]

    assert "".join(pieces) == whole
    assert len([piece for piece in pieces if piece]) > 1


def test_drafting_is_on_and_counted(client: OpenAI, question: list[Any]) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=question, temperature=0, max_tokens=48, extra_body={"ignore_eos": True}
    )

    metrics = answer.model_dump()["metrics"]["speculative_decoding"]
    assert metrics["num_spec_tokens"] == 3
    assert metrics["mean_acceptance_length"] >= 1


def test_the_feature_cache_is_in_the_metrics(server: Server, client: OpenAI, question: list[Any]) -> None:
    """The picture of the tests before was looked up in vain, encoded once, and stored."""
    found: dict[str, float] = {}
    for _ in range(50):  # what is stored beside a step is counted with the next
        client.chat.completions.create(model="tiny", messages=question, max_tokens=2)
        found = cache_metrics(server)
        if found.get("stores_total disk") and found.get("entries disk"):
            break
        time.sleep(0.2)

    for tier in ("host", "disk"):
        assert found[f"misses_total {tier}"] == found[f"stores_total {tier}"] == found[f"entries {tier}"] == 1
    assert found["bytes disk"] >= 4096 and found["corrupt disk"] == 0
    assert "encoder_runs_avoided_total" in found


def cache_metrics(server: Server) -> dict[str, float]:
    """Values by name and tier."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    rows = re.findall(r"^vllm:mmspec_encoder_cache_(\w+)\{([^}]*)\} (\S+)$", page, re.MULTILINE)
    tiers = [(name, re.search('tier="([^"]*)"', labels), value) for name, labels, value in rows]
    return {f"{name} {tier[1]}" if tier else name: float(value) for name, tier, value in tiers}


def test_too_long_an_answer_is_refused_and_the_server_lives(client: OpenAI, question: list[Any]) -> None:
    with pytest.raises(BadRequestError, match="max_tokens"):
        client.chat.completions.create(model="tiny", messages=question, max_tokens=10**6)

    assert client.models.list().data[0].id == "tiny"


def test_a_request_chooses_how_much_of_its_picture_is_kept(client: OpenAI, question: list[Any]) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 8}

    def statistics(**arguments: Any) -> Any:
        xargs = {"mmspec_stats": "kept", **arguments}
        return client.chat.completions.create(**asked, extra_body={"vllm_xargs": xargs}).model_dump()[
            "mmspec"
        ]

    pruned, whole = statistics(fastv_keep=0.25), statistics()

    visual = [one["visual_tokens"] for one in (pruned, whole)]
    assert visual == [{"seen": 12, "kept": 3}, {"seen": 12, "kept": 12}]
    (picture,) = pruned["kept"]
    assert picture["seen"] == 12 and len(set(picture["kept"])) == 3 and max(picture["kept"]) < 12
    assert whole["kept"] is None, "nothing was pruned"


@pytest.mark.parametrize("keep", [0, -1, 1.5, "half"])
def test_a_share_that_means_nothing_is_refused_and_the_server_lives(
    keep: object, client: OpenAI, question: list[Any]
) -> None:
    with pytest.raises(BadRequestError, match=r"fastv_keep: .* give a number above 0 and up to 1"):
        client.chat.completions.create(
            model="tiny", messages=question, extra_body={"vllm_xargs": {"fastv_keep": keep}}
        )

    assert client.models.list().data[0].id == "tiny"


def test_statistics_come_with_the_answer_when_asked(
    server: Server, client: OpenAI, question: list[Any]
) -> None:
    """The same in a stream and without; each token's origin fits the counts, and the texts are the answer."""
    asked = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    wants = {"vllm_xargs": {"mmspec_stats": ["tokens"]}, "return_token_ids": True}

    whole = json.loads(post(server.url, {**asked, **wants}))
    parts = chunks(post(server.url, {**asked, **wants, "stream": True}))

    (answer,), stats = whole["choices"], whole["mmspec"]
    assert stats.keys() == {*RequestStats().to_dict(), "tokens"}
    assert stats["visual_tokens"] == {"seen": 12, "kept": 12} and stats["ttft_ms"] > 0
    steps = stats["tokens"]
    assert [token for step in steps for token in step["ids"]] == answer["token_ids"]
    assert "".join(piece for step in steps for piece in step["texts"]) == answer["message"]["content"]
    assert sum(step["drafted"] for step in steps) == stats["draft_tokens"] > 0
    assert sum(bool(step["drafted"]) for step in steps) == stats["drafts"]
    assert all(step["accepted"] + len(step["rejected"]) == step["drafted"] for step in steps[:-1])
    assert [parts[-1]["choices"], "mmspec" in parts[-2]] == [[], False]
    assert text(parts) == answer["message"]["content"]
    assert parts[-1]["mmspec"]["tokens"] == steps
    assert parts[-1]["mmspec"]["encoder_cache"]["hits"] == 1


def test_nothing_is_added_unasked(server: Server, question: list[Any]) -> None:
    asked = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 8}
    wants = {"vllm_xargs": {"mmspec_stats": True}}

    plain, whole = post(server.url, asked), post(server.url, {**asked, **wants})
    stream, parts = [chunks(post(server.url, {**asked, **more, "stream": True})) for more in ({}, wants)]

    assert json.loads(plain)["ec_transfer_params"] is None and json.loads(whole)["ec_transfer_params"] is None
    assert b"mmspec" not in plain and b'"mmspec":{' in whole
    # In front of the statistics there is what the server says without them, down to the byte.
    expected, found = (NEW.sub(b"", one) for one in (plain, whole.partition(b',"mmspec":{')[0] + b"}"))
    assert found == expected
    assert text(parts) == text(stream)
    assert {*parts[0]} == {*stream[0]} and not any("mmspec" in part for part in [*stream, *parts[:-1]])


def test_a_request_can_do_without_drafting(client: OpenAI, question: list[Any]) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 24}

    def answer(**arguments: Any) -> tuple[str | None, int]:
        xargs = {"mmspec_stats": True, **arguments}
        found = client.chat.completions.create(**asked, extra_body={"vllm_xargs": xargs, "ignore_eos": True})
        return found.choices[0].message.content, found.model_dump()["mmspec"]["draft_tokens"]

    (drafted, many), (plain, none) = answer(), answer(mmspec_draft=False)

    assert drafted == plain
    assert many > 0 and none == 0


def test_several_answers_are_summed_up(client: OpenAI, question: list[Any]) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "n": 2, "seed": 0, "max_tokens": 6}

    found = client.chat.completions.create(**asked, extra_body={"vllm_xargs": {"mmspec_stats": True}})
    *_, last = client.chat.completions.create(
        **asked, stream=True, extra_body={"vllm_xargs": {"mmspec_stats": True}}
    )
    with pytest.raises(BadRequestError, match="leave n at 1"):
        client.chat.completions.create(**asked, extra_body={"vllm_xargs": {"mmspec_stats": "tokens"}})

    for one in (found, last):
        stats = one.model_dump()["mmspec"]
        assert stats["encoder_cache"]["hits"] is None and stats["visual_tokens"]["seen"] == 12


@pytest.mark.parametrize("name", ["mmspec_stats", "mmspec_draft"])
def test_what_means_nothing_is_refused(name: str, client: OpenAI, question: list[Any]) -> None:
    with pytest.raises(BadRequestError, match=f"{name}: 'perhaps' is not known; give true"):
        client.chat.completions.create(
            model="tiny", messages=question, extra_body={"vllm_xargs": {name: "perhaps"}}
        )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fastv_kep", "fastv_keep"),
        ("fast_keep", "fastv_keep"),
        ("mmspec_stat", "mmspec_stats"),
        ("mmspec_drafts", "mmspec_draft"),
    ],
)
def test_a_misspelt_argument_is_refused_and_those_of_others_pass(
    name: str, meant: str, client: OpenAI, question: list[Any]
) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "max_tokens": 2}

    with pytest.raises(
        BadRequestError, match=f"{name}: unknown argument of a request; did you mean '{meant}'"
    ):
        client.chat.completions.create(**asked, extra_body={"vllm_xargs": {name: 0.5}})

    assert client.chat.completions.create(**asked, extra_body={"vllm_xargs": {"somebody_elses": 1}}).choices


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://127.0.0.1:9/x.png", "this server fetches no addresses; send the picture as a data URL"),
        ("HTTPS://example.com/x.png", "--allowed-media-domains"),
        ("file:///etc/hostname", "--allowed-local-media-path"),
        ("file://localhost/etc/hostname", "--allowed-local-media-path"),
    ],
)
def test_neither_addresses_nor_files_are_read_unless_allowed(client: OpenAI, url: str, named: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": url}}
    messages: list[Any] = [{"role": "user", "content": [picture, {"type": "text", "text": "abcd"}]}]

    with pytest.raises(BadRequestError, match=named):
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=2)


def test_the_dashboard_asks_for_what_the_server_exports(
    server: Server, client: OpenAI, question: list[Any]
) -> None:
    client.chat.completions.create(model="tiny", messages=question, max_tokens=2)
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        # A series whose labels have not occurred yet has only its type.
        exported = set(re.findall(r"^(?:# TYPE )?([\w:]+)[{ ]", answer.read().decode(), re.MULTILINE))

    asked = {name for expression in dashboard_expressions() for name in re.findall(r"vllm:\w+", expression)}
    assert len(asked) > 20
    assert asked <= exported


def from_page(name: str, language: str, start: str, server: Server) -> str:
    """A block of a page, about the server of these tests and with short answers."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if start in block]
    changes = {"http://localhost:8000": server.url, '"pocket"': '"tiny"'}
    changes |= {
        '"temperature": 0': '"temperature": 0, "max_tokens": 8',
        "temperature=0": "temperature=0, max_tokens=8",
    }
    for old, new in changes.items():
        assert old in block or "max_tokens" in new
        block = block.replace(old, new)
    return block


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=600).stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@pytest.mark.parametrize("page", ["README.md", "docs/serving.md"])
def test_the_curl_of_the_pages_streaming_and_not(server: Server, page: str) -> None:
    line = from_page(page, "bash", "IMAGE=", server)

    whole = json.loads(run("bash", "-c", line))["choices"][0]["message"]["content"]
    streamed = run("bash", "-c", line.replace('"temperature"', '"stream": true, "temperature"'))

    events = [event.removeprefix("data: ") for event in streamed.splitlines() if event.startswith("data: {")]
    pieces = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events]
    assert "".join(pieces) == whole and whole


def test_the_client_of_the_page_streaming_and_not(server: Server) -> None:
    answers = run(sys.executable, "-c", from_page("docs/serving.md", "python", "OpenAI(", server))

    length = (len(answers) - 1) // 2
    assert answers == f"{answers[:length]}\n{answers[:length]}" and length > 1


def test_sigterm_ends_the_server(server: Server) -> None:
    """Stands last: the server of this module is gone afterwards."""
    server.process.send_signal(signal.SIGTERM)

    server.process.wait(timeout=60)
    assert "Traceback" not in server.tail()
