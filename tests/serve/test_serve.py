"""The OpenAI server that `mmspec serve` starts, asked by the OpenAI client."""

import base64
import re
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from PIL import Image

from tests.serve.conftest import Server

pytestmark = [pytest.mark.engine, pytest.mark.slow]


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


def test_sigterm_ends_the_server(server: Server) -> None:
    """Stands last: the server of this module is gone afterwards."""
    server.process.send_signal(signal.SIGTERM)

    server.process.wait(timeout=60)

    assert "Traceback" not in server.tail()
