"""The OpenAI server that `mmspec serve` starts, asked by the OpenAI client."""

import base64
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from PIL import Image

from tests.serve.conftest import Server
from tests.unit.test_deploy import dashboard_expressions

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


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

    pruned = client.chat.completions.create(**asked, extra_body={"vllm_xargs": {"fastv_keep": 0.25}})
    whole = client.chat.completions.create(**asked)

    visual = [one.model_dump()["ec_transfer_params"]["mmspec"]["visual_tokens"] for one in (pruned, whole)]
    assert visual == [{"seen": 12, "kept": 3}, {"seen": 12, "kept": 12}]


@pytest.mark.parametrize("keep", [0, -1, 1.5, "half"])
def test_a_share_that_means_nothing_is_refused_and_the_server_lives(
    keep: object, client: OpenAI, question: list[Any]
) -> None:
    with pytest.raises(BadRequestError, match=r"fastv_keep: .* give a number above 0 and up to 1"):
        client.chat.completions.create(
            model="tiny", messages=question, extra_body={"vllm_xargs": {"fastv_keep": keep}}
        )

    assert client.models.list().data[0].id == "tiny"


@pytest.mark.parametrize("name", ["fastv_kep", "fast_keep", "fastv"])
def test_a_misspelt_argument_is_refused_and_those_of_others_pass(
    name: str, client: OpenAI, question: list[Any]
) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": question, "max_tokens": 2}

    with pytest.raises(
        BadRequestError, match=f"{name}: unknown argument of a request; did you mean 'fastv_keep'"
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
