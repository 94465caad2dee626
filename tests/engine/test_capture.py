"""Captured data is what a draft gets to see while serving: compared with what a head's `propose` is given."""

import base64
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL.Image import Image

from mmspec.heads.capture import CapturedDataset, CaptureSettings, CaptureTarget, capture, describe_target
from mmspec.heads.capture.engine import CaptureEngine
from mmspec.heads.capture.start import engine_arguments
from tests.conftest import Checkpoints
from tests.engine.runners import in_process_environment, runner_environment
from tests.long import LONG
from tests.oracle import Oracle
from tests.tiny import FAMILIES
from tests.tiny.heads import AUX_LAYERS
from tests.tiny.tokenizer import QWEN_CHAT_TEMPLATE

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 16
ASKED = [
    ("What is in the picture?", ()),
    ("What is in the picture?", ("red_square",)),
    ("Compare the first picture with the second.", ("red_square", "blue_disc")),
    ("Count the apples in both.", ("stripes", "stripes")),
]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # float32; kernels for prefill and for decode steps round differently


@dataclass
class Seen:
    """What a head's `propose`, and for features the target, was given in one conversation, by sequence index."""

    states: dict[int, torch.Tensor] = field(default_factory=dict)
    positions: dict[int, torch.Tensor] = field(default_factory=dict)
    features: list[torch.Tensor] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


@pytest.fixture(scope="module", params=[*FAMILIES, "llama"])
def name(request: pytest.FixtureRequest) -> str:
    checkpoint: str = request.param
    return checkpoint


@pytest.fixture(scope="module", autouse=True)
def _one_process() -> Iterator[None]:
    torch.set_num_threads(1)  # vLLM forbids a later change
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in in_process_environment().items():
            patch.setenv(variable, value)
        yield


@pytest.fixture(scope="module")
def target(name: str, tiny: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint; the text-only one gets a chat template."""
    if name != "llama":
        return tiny[name]
    folder = shutil.copytree(tiny[name], tmp_path_factory.mktemp("chat") / name)
    (folder / "chat_template.jinja").write_text(QWEN_CHAT_TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def prompts(name: str, pictures: dict[str, Image], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The questions as a prompts file; a text-only target gets those without pictures, and a follow-up."""
    path = tmp_path_factory.mktemp(name) / "prompts.jsonl"
    asked = [one for one in ASKED if name != "llama" or not one[1]]
    lines = [{"messages": [_user(text, [pictures[one] for one in images])]} for text, images in asked]
    if name == "llama":
        said = {"role": "assistant", "content": "two"}
        lines.append({"messages": [_user("How many?", []), said, _user("And dogs?", [])]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def dataset(target: Path, prompts: Path) -> CapturedDataset:
    return CapturedDataset(_capture(target, _greedy(prompts, prompts.parent / "data")))


@pytest.fixture(scope="module")
def seen(target: Path, prompts: Path, tiny: Checkpoints) -> list[Seen]:
    """The same conversations, greedily, one by one, with a random head drafting."""
    from vllm import SamplingParams

    from tests.engine.in_process import running_engine

    drafting = {"method": "eagle3", "model": str(tiny["eagle3"]), "num_speculative_tokens": 2}
    found = []
    with running_engine(
        str(target), speculative_config=drafting, async_scheduling=False, enable_prefix_caching=False
    ) as llm:
        record = _recorder(llm)
        for line in prompts.read_text().splitlines():
            record.append(Seen())
            messages = json.loads(line)["messages"]
            output = llm.chat(messages, SamplingParams(temperature=0, max_tokens=TOKENS), use_tqdm=False)[0]
            record[-1].token_ids = [*output.prompt_token_ids, *output.outputs[0].token_ids]
            found.append(record[-1])
    return found


def test_the_draft_sees_the_captured_states(dataset: CapturedDataset, seen: list[Seen]) -> None:
    assert len(dataset) == len(seen)
    for index, served in enumerate(seen):
        sample = dataset[index]
        assert sample["input_ids"].tolist() == served.token_ids
        # The last token of an answer is never an input while serving.
        given = torch.stack([served.states[place] for place in range(len(served.token_ids) - 1)])
        torch.testing.assert_close(sample["hidden_states"][:-1], given, **CLOSE)


def test_the_draft_sees_the_captured_positions_and_features(
    dataset: CapturedDataset, seen: list[Seen]
) -> None:
    for index, served in enumerate(seen):
        sample = dataset[index]
        given = torch.stack([served.positions[place] for place in range(len(served.token_ids) - 1)], dim=-1)
        positions = sample["positions"] if sample["mrope_positions"] is None else sample["mrope_positions"]
        assert torch.equal(positions[..., :-1], given)
        if sample["features"] is None:
            assert not served.features
            continue
        width = dataset.manifest.hidden_size
        features = torch.cat(served.features)[:, :width]
        torch.testing.assert_close(sample["features"], features, **CLOSE)
        assert sample["is_visual"].sum() == len(features)


def test_the_output_layer_on_the_last_states_says_the_targets_own_tokens(
    name: str, dataset: CapturedDataset, oracles: Callable[[str], Oracle]
) -> None:
    model = oracles(name).model
    language_model = getattr(model.model, "language_model", model.model)
    for sample in (dataset[index] for index in range(len(dataset))):
        with torch.inference_mode():
            logits = model.get_output_embeddings()(language_model.norm(sample["last_hidden"]))
        answered = sample["loss_mask"].nonzero().flatten()
        assert len(answered) == TOKENS
        assert answered.tolist() == list(range(int(answered[0]), len(sample["input_ids"])))
        assert torch.equal(logits.argmax(-1)[answered - 1], sample["input_ids"][answered])


def test_auxiliary_states_are_the_inputs_of_their_layers_in_transformers(
    name: str, dataset: CapturedDataset, oracles: Callable[[str], Oracle], pictures: dict[str, Image]
) -> None:
    """No engine on either side of the definition: the states of a text, which need no processor."""
    model = oracles(name).model
    sample = next(dataset[index] for index in range(len(dataset)) if dataset[index]["features"] is None)
    with torch.inference_mode():
        hidden = model(input_ids=sample["input_ids"][None], output_hidden_states=True).hidden_states
    expected = torch.cat([hidden[layer][0] for layer in AUX_LAYERS], dim=-1)
    torch.testing.assert_close(sample["hidden_states"], expected, rtol=1e-3, atol=1e-3)


def test_chunked_prefill_and_recomputed_states_change_nothing(
    name: str, dataset: CapturedDataset, prompts: Path, target: Path
) -> None:
    """Without prefix caching the states of answers come from a prefill, here in chunks of 24 tokens."""
    if name in ("llava", "llama"):
        pytest.skip("nothing of theirs depends on chunks that the Qwens' M-RoPE and DeepStack do not")
    folder = prompts.parent / "chunked"
    again = CapturedDataset(
        _capture(target, _greedy(prompts, folder), enable_prefix_caching=False, max_num_batched_tokens=24)
    )
    _assert_same(dataset, again)


@pytest.mark.v2
@pytest.mark.parametrize(
    "name", ["qwen2_5_vl", pytest.param("llama", marks=LONG)], indirect=True, scope="module"
)
def test_the_command_captures_the_same_on_the_v2_runner(
    name: str, dataset: CapturedDataset, prompts: Path, target: Path
) -> None:
    out = prompts.parent / "v2"
    start = "from tests.engine.runners import prepare_runner; prepare_runner('v2'); "
    command = f"{start}from mmspec.cli.main import main; main()"
    layers = ",".join(map(str, AUX_LAYERS))
    options = ["--model", str(target), "--engine-dtype", "float32", "--aux-layers", layers, "--json"]
    options += ["--max-tokens", str(TOKENS), "--max-model-len", "512"]
    ended = subprocess.run(
        [sys.executable, "-c", command, "head", "capture", str(prompts), str(out), *options],
        env=runner_environment("v2"),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["samples"] == len(dataset)
    _assert_same(dataset, CapturedDataset(out))


def _assert_same(left: CapturedDataset, right: CapturedDataset) -> None:
    assert len(left) == len(right)
    for index in range(len(left)):
        ours, theirs = left[index], right[index]
        assert torch.equal(ours["input_ids"], theirs["input_ids"])
        for name in ("hidden_states", "last_hidden", "features", "mrope_positions", "is_visual"):
            if ours[name] is not None:
                torch.testing.assert_close(ours[name], theirs[name], **CLOSE)


def _user(text: str, images: list[Image]) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _data_url(image: Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def test_sampled_answers_are_drawn_as_asked(
    name: str, target: Path, prompts: Path, dataset: CapturedDataset, tmp_path: Path
) -> None:
    if name != "qwen2_5_vl":
        pytest.skip("sampling knows no families")
    # With the likeliest token alone left to draw from, drawing is greedy, whatever the temperature.
    narrow = CaptureSettings(prompts, tmp_path / "data", temperature=1.0, top_p=1e-6, max_tokens=TOKENS)
    sampled = CapturedDataset(_capture(target, narrow))
    assert len(sampled) == len(dataset)
    for index in range(len(dataset)):
        assert torch.equal(sampled[index]["input_ids"], dataset[index]["input_ids"])


def _capture(model: Path, settings: CaptureSettings, **engine: Any) -> Path:
    from tests.engine.in_process import running_engine

    @contextmanager
    def start(target: CaptureTarget, spool: Path) -> Iterator[CaptureEngine]:
        with running_engine(target.model, **(engine_arguments(target, spool) | engine)) as llm:
            yield CaptureEngine(llm, target, spool)

    described = describe_target(str(model), AUX_LAYERS, "float32")
    capture(settings, described, start)
    return settings.folder


def _greedy(prompts: Path, folder: Path) -> CaptureSettings:
    return CaptureSettings(prompts, folder, max_tokens=TOKENS)


def _recorder(llm: Any) -> list[Seen]:
    """Looks over the shoulder of the proposer and of the target's embedding, into the last of the returned list."""
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    runner = executor.driver_worker.worker.model_runner
    propose, record = runner.drafter.propose, []

    def look(*arguments: Any, **given: Any) -> Any:
        first = int(runner.input_batch.num_computed_tokens_cpu[0])
        for row, state in enumerate(given["target_hidden_states"].clone()):
            record[-1].states[first + row] = state
            record[-1].positions[first + row] = given["target_positions"][..., row].clone()
        return propose(*arguments, **given)

    def look_at_embeddings(ids: Any, multimodal_embeddings: Any = None, **given: Any) -> Any:
        record[-1].features += [embedding.clone() for embedding in multimodal_embeddings or ()]
        return embed(ids, multimodal_embeddings, **given)

    model = runner.get_model()
    embed = model.embed_input_ids
    runner.drafter.propose, model.embed_input_ids = look, look_at_embeddings
    return record
