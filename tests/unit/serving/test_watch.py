"""Following an answer: outputs go on unchanged, and the statistics of all of them come together."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.serving.trace import Step
from mmspec.serving.watch import Watch, watch, watching
from mmspec.stats import EncoderCacheStats, VisualTokenStats, encode_report

REPORT = encode_report(
    EncoderCacheStats(1, 0, "device"), VisualTokenStats(4, 2), [Step((), 0, 1), Step((98, 120), 1, 2)]
)


class Engine:
    """An engine with a tokenizer whose tokens are bytes."""

    renderer = SimpleNamespace(
        tokenizer=SimpleNamespace(decode=lambda ids, skip_special_tokens: bytes(ids).decode())
    )

    def __init__(self, told: Any = None) -> None:
        self.vllm_config = SimpleNamespace(additional_config={"mmspec": {"fastv": {}}})
        self.told, self.asked = told, ""

    async def collective_rpc(self, method: str, args: tuple[str]) -> list[Any]:
        assert method == "mmspec_kept"
        (self.asked,) = args
        if isinstance(self.told, Exception):
            raise self.told
        return [None, self.told]


def params(**arguments: Any) -> Any:
    return SimpleNamespace(n=1, extra_args=arguments, skip_special_tokens=True)


def output(text: bytes, index: int = 0, *, report: Any = None, end: bool = False) -> Any:
    metrics = SimpleNamespace(histogram=[0, 1], num_draft_tokens=2) if end else None
    answer = SimpleNamespace(
        index=index, token_ids=list(text), finish_reason="stop" if end else None, spec_decode_metrics=metrics
    )
    extra = None if report is None else {"mmspec": report}
    return SimpleNamespace(outputs=[answer], ec_transfer_params=extra, metrics=None)


async def stream(*outputs: Any) -> AsyncGenerator[Any, None]:
    for one in outputs:
        yield one


def follow(watched: Watch, outputs: list[Any], *, delta: bool = True) -> list[Any]:
    async def run() -> list[Any]:
        return [one async for one in watched.follow(stream(*outputs), delta=delta)]

    return asyncio.run(run())


def begin(engine: Any = None, **arguments: Any) -> tuple[Any, Any]:
    """The watch over a generation with these extra arguments, and its parameters."""
    given = params(**arguments)
    with watching() as watches:
        found = watch(engine or Engine(), given)
        assert watches == ([found] if found else [])
    return found, given


def test_nobody_is_watched_who_did_not_ask() -> None:
    assert watch(Engine(), params(mmspec_stats=True)) is None, "outside of a request to the server"
    assert begin()[0] is None
    assert begin(mmspec_stats="nonsense")[0] is None, "refused later"


@pytest.mark.parametrize("delta", [True, False])
def test_an_answer_is_followed_to_its_end(delta: bool) -> None:
    outputs = [output(b"a"), output(b"bc" if delta else b"abc", report=REPORT, end=True)]
    watched, _ = begin(mmspec_stats=["tokens"])

    assert follow(watched, outputs, delta=delta) == outputs

    assert outputs[-1].ec_transfer_params is None
    result = watched.result
    assert (result["drafts"], result["accepted_tokens"], result["encoder_cache"]["tier"]) == (1, 1, "device")
    assert [step["texts"] for step in result["tokens"]] == [["a"], ["b", "c"]]
    assert "kept" not in result


def test_several_answers_are_summed_up() -> None:
    watched, _ = begin(mmspec_stats=True)

    follow(watched, [output(b"a", 0, report=REPORT, end=True), output(b"b", 1, report=REPORT, end=True)])

    assert watched.result["drafts"] == 2
    assert watched.result["encoder_cache"]["hits"] is None


def test_what_was_kept_is_fetched_by_the_name_that_was_given_for_it() -> None:
    told = [{"seen": 4, "kept": [1, 2]}]
    engine = Engine(told)
    watched, given = begin(engine, mmspec_stats=["kept"], fastv_keep=0.5)

    follow(watched, [output(b"a", report=REPORT, end=True)])

    assert watched.result["kept"] == told
    assert engine.asked == given.extra_args["fastv_tell"] and given.extra_args["fastv_keep"] == 0.5


def test_an_answer_goes_out_without_what_cannot_be_fetched() -> None:
    watched, _ = begin(Engine(RuntimeError("no such method")), mmspec_stats=["kept"])

    follow(watched, [output(b"a", report=REPORT, end=True)])

    assert watched.result["kept"] is None


def test_leaving_early_closes_what_is_followed() -> None:
    closed = []

    async def endless() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield output(b"a")
        finally:
            closed.append(True)

    async def run() -> None:
        following = watched.follow(endless(), delta=True)
        await anext(following)
        await following.aclose()

    watched, _ = begin(mmspec_stats=True)
    asyncio.run(run())

    assert closed and watched.result is None
