"""The measurement's arithmetic, with engines whose times are known."""

from pathlib import Path
from typing import Any

import pytest

from mmspec.bench import encoder_cache
from mmspec.bench.cache_engine import Answer, Ask, Job

ROUNDS = {56: 3, 112: 3}


class Engines:
    """Encodes a picture that nobody has, in 1,000 ms times its number; loads it in 30 ms; features take 20 ms."""

    def __init__(self, wrong: bool = False) -> None:
        self.jobs: list[Job] = []
        self.wrong = wrong
        self.seen: list[str] = []

    def run(self, job: Job, folder: Path) -> tuple[list[Answer], int]:
        self.jobs.append(job)
        device: set[str] = set()
        encoded = 0
        answers = []
        for ask in [*job.warm_up, *job.asks]:
            new = ask.features is None and ask.picture not in self.seen
            encoded += new
            answers.append(Answer(self._time(ask, device), self._said(ask), None))
            if ask.features is None:
                self.seen += [ask.picture] if new else []
                device.add(ask.picture)
        return answers[len(job.warm_up) :], encoded

    def _time(self, ask: Ask, device: set[str]) -> float:
        if ask.features is not None:
            return 20.0
        if ask.picture in device:
            return 10.0
        number = int(Path(ask.picture).name.partition("-")[0])
        return 30.0 if ask.picture in self.seen else 1000.0 * number

    def _said(self, ask: Ask) -> list[int]:
        loaded = ask.features is None and len(self.jobs) > 1
        return [1 if self.wrong and loaded else 0, int(Path(ask.picture).name.partition("-")[0])]


def measured(
    engines: Engines, server: str | None, monkeypatch: pytest.MonkeyPatch, rounds: dict[int, int] = ROUNDS
) -> dict[str, Any]:
    from contextlib import nullcontext

    monkeypatch.setattr(encoder_cache, "run", engines.run)
    monkeypatch.setattr(encoder_cache, "_redis", lambda: nullcontext(server))
    return encoder_cache.measure({"model": "m"}, rounds).to_dict()


def test_times_and_ratios_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines()
    result = measured(engines, "redis://host", monkeypatch)

    assert result["encoder_runs"] == result["different_pictures"] == 7
    assert (result["cold"], result["second_request"]) == (5000.0, 10.0)  # pictures 4 to 6
    assert result["sides"]["56"]["cold"] == 2000.0
    assert result["new_process_over_floor"] == result["second_engine_over_floor"] == 1.5
    assert result["answers_equal"]
    assert [job.cache.keys() for job in engines.jobs] == [
        {"directory", "remote"},
        {"directory"},
        {"remote", "memory_size"},
    ]


def test_there_may_be_fewer_large_pictures_than_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(Engines(), None, monkeypatch, {56: 4, 112: 1})

    assert result["different_pictures"] == 6
    assert result["sides"]["56"]["cold"] == 2500.0 and result["sides"]["112"]["cold"] == 5000.0


def test_pictures_and_features_take_turns_in_going_first(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines()
    measured(engines, "redis://host", monkeypatch)

    firsts = [ask.features is None for ask in engines.jobs[1].asks[::2]]
    assert firsts == [True, False] * 3


def test_without_a_redis_server_there_is_no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines()
    result = measured(engines, None, monkeypatch)

    assert result["second_engine_over_floor"] is None and len(engines.jobs) == 2


def test_another_answer_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not measured(Engines(wrong=True), "redis://host", monkeypatch)["answers_equal"]
