"""A head that does not fit ends `mmspec serve`, and any configured engine, before weights load."""

import json
from types import SimpleNamespace

import pytest

from mmspec.cli.main import main
from mmspec.engine_args import fill_engine_args
from mmspec.errors import MmspecError
from tests.unit.heads.conftest import Pair


def engine_args(pair: Pair, **changes: object) -> SimpleNamespace:
    """The fields of vLLM's `EngineArgs` that mmspec reads and writes."""
    draft = {"method": "eagle3", "model": str(pair.head)}
    fields = {
        "additional_config": {"mmspec": {"draft": draft}},
        "model": str(pair.target),
        "speculative_config": None,
        "per_request_spec_decode_metrics": "none",
        "tensor_parallel_size": 1,
        "dtype": "auto",
    }
    return SimpleNamespace(**(fields | changes))


@pytest.fixture(autouse=True)
def every_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


def test_a_configured_engine(pair: Pair) -> None:
    fill_engine_args(engine_args(pair))
    pair.set_text(vocab_size=600)

    with pytest.raises(MmspecError, match=r"does not fit .* vocabulary: .* the target has 600"):
        fill_engine_args(engine_args(pair))


def test_parts_of_the_target_are_those_of_the_head(pair: Pair) -> None:
    """vLLM cuts the layers of a head like those of the target, whatever draft_tensor_parallel_size says."""
    refused = "2 attention heads .*cannot be cut into 4 parts.*take --tensor-parallel-size 2.* --draft none or ngram"
    with pytest.raises(MmspecError, match=refused):
        fill_engine_args(engine_args(pair, tensor_parallel_size=4))

    draft = {"method": "eagle3", "model": str(pair.head), "options": {"draft_tensor_parallel_size": 1}}
    with pytest.raises(MmspecError, match=refused):
        fill_engine_args(
            engine_args(pair, tensor_parallel_size=4, additional_config={"mmspec": {"draft": draft}})
        )


def test_a_speculative_config_of_the_users_own(pair: Pair) -> None:
    pair.change(lambda tensors: tensors.pop("norm.weight"))
    given = {"method": "eagle3", "model": str(pair.head), "num_speculative_tokens": 2}

    with pytest.raises(MmspecError, match=r"norm\.weight is missing"):
        fill_engine_args(engine_args(pair, additional_config={"mmspec": {}}, speculative_config=given))


def test_a_server(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["serve", str(pair.target), "--draft", "eagle3", "--draft-model", str(pair.head), "--dry-run"]
    with pytest.raises(SystemExit) as caught:
        main([*line, "--json"])
    assert caught.value.code == 0
    assert "eagle3" in json.loads(capfd.readouterr().out.splitlines()[-1])["command"]

    pair.set_head(eagle_aux_hidden_state_layer_ids=[2, 4, 9])

    with pytest.raises(SystemExit) as caught:
        main(line)
    out, err = capfd.readouterr()
    assert caught.value.code == 2
    assert out == ""
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["mmspec"]
    assert "layer 9 is not in the target" in err
