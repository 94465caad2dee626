"""From drafting options to vLLM's speculative_config."""

import json
from pathlib import Path

import pytest

from mmspec import DraftConfig, MmspecError
from mmspec.draft import available_methods, draft_on, require_language_model, speculative_config
from mmspec.heads import pocket
from tests.conftest import Checkpoints


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder that looks like a checkpoint."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def test_none_switches_drafting_off() -> None:
    assert speculative_config(DraftConfig(method="none")) is None


def test_what_drafts_nothing_takes_no_number_and_no_model() -> None:
    with pytest.raises(MmspecError, match=r"leave num_speculative_tokens \(-k\) out"):
        speculative_config(DraftConfig(method="none", num_speculative_tokens=4))
    with pytest.raises(MmspecError, match="none takes no model"):
        speculative_config(DraftConfig(method="none", model="a/model"))


def test_a_name_of_no_method_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(MmspecError, match="choose auto, none, ngram, suffix, draft_model or eagle3"):
        draft_on("a/model", "magic")


@pytest.mark.parametrize("head", ["eagle3", "eagle3_speculators"])
def test_a_head_is_no_draft_model(head: str, tiny: Checkpoints) -> None:
    folder = str(tiny[head])

    with pytest.raises(MmspecError, match=r"is an EAGLE-3 head and no language model.*--draft eagle3"):
        speculative_config(DraftConfig(method="draft_model", model=folder))
    with pytest.raises(MmspecError, match="is an EAGLE-3 head"):
        require_language_model({"method": "draft_model", "model": folder})
    require_language_model({"method": "eagle3", "model": folder})
    require_language_model({"method": "draft_model", "model": str(tiny["llama"])})
    require_language_model({"method": "draft_model", "model": "a/model"})
    require_language_model({})


def test_ngram_looks_up_the_prompt() -> None:
    config = speculative_config(DraftConfig(method="ngram", num_speculative_tokens=5, prompt_lookup_max=3))

    assert config == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 3,
    }


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_a_draft_checkpoint_is_passed_on(method: str, checkpoint: Path) -> None:
    config = speculative_config(DraftConfig(method=method, model=str(checkpoint)))  # type: ignore[arg-type]

    assert config is not None
    assert config["model"] == str(checkpoint)
    assert config["num_speculative_tokens"] > 0


def test_a_hub_name_is_left_to_vllm() -> None:
    config = speculative_config(DraftConfig(method="eagle3", model="someone/a-head"))

    assert config is not None
    assert config["model"] == "someone/a-head"


def test_further_options_reach_vllm(checkpoint: Path) -> None:
    config = speculative_config(DraftConfig(method="ngram", options={"rejection_sample_method": "block"}))

    assert config is not None
    assert config["rejection_sample_method"] == "block"


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
@pytest.mark.parametrize(
    ("model", "named"),
    [
        (None, "needs a model"),
        ("/no/such/folder", "no such folder"),
        ("./head", "no such folder"),
        ("head", "no such folder"),
    ],
)
def test_a_missing_draft_model_is_refused(method: str, model: str | None, named: str) -> None:
    with pytest.raises(MmspecError, match=named):
        speculative_config(DraftConfig(method=method, model=model))  # type: ignore[arg-type]


@pytest.mark.parametrize("config", ["", "{", "[]"])
def test_a_broken_draft_checkpoint_is_refused(checkpoint: Path, config: str) -> None:
    (checkpoint / "config.json").write_text(config)

    with pytest.raises(MmspecError, match="download the checkpoint again"):
        speculative_config(DraftConfig(method="eagle3", model=str(checkpoint)))


def test_a_draft_checkpoint_without_weights_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()

    with pytest.raises(MmspecError, match="no weights"):
        speculative_config(DraftConfig(method="eagle3", model=str(checkpoint)))


def test_a_model_is_refused_where_none_is_used(checkpoint: Path) -> None:
    with pytest.raises(MmspecError, match="takes no model"):
        speculative_config(DraftConfig(method="ngram", model=str(checkpoint)))


def test_suffix_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmspec.draft.find_spec", lambda name: None)

    assert "suffix" not in available_methods()
    with pytest.raises(MmspecError, match="pip install arctic-inference"):
        speculative_config(DraftConfig(method="suffix"))


def test_methods_are_available_with_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmspec.draft.find_spec", lambda name: object())

    assert available_methods() == ["ngram", "suffix"]
    assert available_methods("draft", "head") == ["ngram", "suffix", "draft_model", "eagle3"]


def test_the_pocket_model_drafts_with_the_head_that_comes_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pocket, "head_folder", lambda: tmp_path)

    assert draft_on("pocket", "auto") == DraftConfig(
        method="eagle3", model=str(tmp_path), num_speculative_tokens=pocket.TOKENS
    )
    assert draft_on("pocket", DraftConfig(method="eagle3", num_speculative_tokens=3)).model == str(tmp_path)
    assert draft_on("pocket", DraftConfig(method="eagle3", model="a/head")).model == "a/head"
    assert draft_on("pocket", None).method == "none"
    assert draft_on("a/model", "auto").method == "ngram"
    assert draft_on("a/model", "eagle3").model is None


def test_without_a_packaged_head_the_default_is_prompt_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocket, "head_folder", lambda: None)

    assert draft_on("pocket", "auto") == DraftConfig(method="ngram")
    assert draft_on("pocket", "eagle3").model is None
