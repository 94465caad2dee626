"""The arithmetic of `mmspec bench fastv`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from mmspec.bench.fastv import Setting, answers_by_share
from mmspec.bench.fastv_time import WIDTHS, Shape, _eager_tail, _ratios, _tail_ratio, operations


def test_operations_are_those_that_torch_counts() -> None:
    """On one layer without data; torch counts pairs of tokens that the mask hides, which need no work."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import Qwen2Config, Qwen2Model

    tokens = 50
    config = Qwen2Config(**WIDTHS, num_hidden_layers=1, vocab_size=8, attn_implementation="eager")
    with torch.device("meta"):
        layer = Qwen2Model(config).layers[0]
        states = torch.empty(1, tokens, WIDTHS["hidden_size"])
        angles = torch.empty(1, tokens, WIDTHS["hidden_size"] // WIDTHS["num_attention_heads"])
    with FlopCounterMode(display=False) as counter:
        layer(states, position_embeddings=(angles, angles))

    pairs = 2 * WIDTHS["hidden_size"] * tokens**2
    assert operations(Shape(layers=3, layer=1), tokens, tokens) == 3 * (counter.get_total_flops() - pairs)


def test_dropped_tokens_save_work_behind_the_layer_only() -> None:
    shape = Shape(layers=12, layer=2)

    assert operations(shape, 1050, 0) == pytest.approx(operations(shape, 1050, 1050) * 2 / 12)


def test_ratios_are_of_the_same_round_and_the_worst_is_the_farthest_from_one() -> None:
    shape = Shape(columns=40, rows=25)
    whole = operations(shape, 1050, 1050)
    half, quarter = operations(shape, 1050, 550) / whole, operations(shape, 1050, 300) / whole
    times = {
        1.0: [(2.0, 0.1), (2.0, 0.1), (9.0, 0.9)],
        0.5: [(2.0 * half, 0.08)] * 3,
        0.25: [(2.0 * quarter * 1.2, 0.05)] * 3,
    }

    result = _ratios(shape, 1050, times)

    prefill = result["prefill"]
    assert prefill["0.5"]["measured_over_theory"] == pytest.approx(1)
    assert prefill["0.25"]["measured_over_theory"] == prefill["worst"] == pytest.approx(1.2)
    assert prefill["0.5"]["spread"] == pytest.approx((half * 2 / 9, half))
    assert result["decode_ratio"] == {"0.5": pytest.approx(0.8), "0.25": pytest.approx(0.5)}
    assert result["decode_spread"]["0.5"] == pytest.approx((0.08 / 0.9, 0.8))


def test_a_compiled_prefill_is_compared_with_the_eager_one_beside_it() -> None:
    result = _tail_ratio([1.0, 4.0, 3.0], [2.0, 4.0, 4.0])

    assert result == {"seconds": 3.0, "eager_seconds": 4.0, "ratio": 0.75, "least": 0.5, "most": 1.0}


def test_the_tail_is_left_out_for_a_while_and_missed_where_there_is_none() -> None:
    from mmspec.errors import MmspecError

    tail = SimpleNamespace(ready=True)
    pruner = SimpleNamespace(tail=tail)
    model = SimpleNamespace(mmspec_pruner=pruner)
    llm = SimpleNamespace(apply_model=lambda call: [call(model)])

    with _eager_tail(llm):
        assert pruner.tail is None
    assert pruner.tail is tail
    tail.ready = False
    with pytest.raises(MmspecError, match="not compiled"), _eager_tail(llm):
        pass


def test_answers_by_share_are_drawn(tmp_path: Path) -> None:
    from PIL import Image

    from mmspec.bench.fastv_plot import plot

    pytest.importorskip("matplotlib")
    figures = {"last": {"1.0": 0.9, "0.5": 0.8}, "random": {"1.0": 0.9, "0.5": 0.6}}
    plot({"accuracy": figures, "recall": figures}, tmp_path / "plot.png")

    assert Image.open(tmp_path / "plot.png").size[0] > 500


def test_answers_with_nothing_dropped_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def evaluate(answer: Any, scenes: int, ratio: Any, *, shuffled: bool) -> Any:
        assert not shuffled
        asked.append(scenes)
        return SimpleNamespace(accuracy=len(asked), object_recall=-len(asked))

    monkeypatch.setattr("mmspec.encoders.pocket.evaluate.evaluate", evaluate)
    monkeypatch.setattr("mmspec.bench.fastv._engine", lambda *arguments: Mock())
    setting = Setting("model", 2, (0.5, 1.0), {})

    found = answers_by_share(setting, ["last", "random"], 4, lambda line: None)

    assert found["accuracy"] == {"last": {"0.5": 1, "1.0": 2}, "random": {"0.5": 3, "1.0": 2}}
    assert found["recall"]["random"] == {"0.5": -3, "1.0": -2}
