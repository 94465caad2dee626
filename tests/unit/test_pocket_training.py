"""The training's shortcuts against what they stand for."""

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec.encoders.pocket.architecture import IMAGE_TOKEN, VIDEO_TOKEN, VISION_END, VISION_START
from mmspec.encoders.pocket.kinds import KINDS
from mmspec.encoders.pocket.scenes import PICTURE_SIZE, Scene, make_scene
from mmspec.errors import MmspecError
from tests.tiny.tokenizer import build_tokenizer


def test_patchify_equals_the_image_processor() -> None:
    from transformers import Qwen2VLImageProcessor

    from mmspec.encoders.pocket.train.pixels import patchify

    area = PICTURE_SIZE**2
    processor = Qwen2VLImageProcessor(size={"shortest_edge": area, "longest_edge": area})
    pictures = [make_scene(seed).draw() for seed in (1, 2)]
    wanted = processor(images=pictures, return_tensors="pt")
    patches, grid = patchify(pictures)
    torch.testing.assert_close(patches, wanted["pixel_values"], atol=1e-5, rtol=0)
    assert grid.tolist() == wanted["image_grid_thw"].tolist()


def test_a_branch_of_a_tree_is_the_conversation_alone() -> None:
    """Hidden states of every answer, against transformers' own pass over that conversation and picture alone."""
    from mmspec.encoders.pocket.train.pixels import patchify
    from mmspec.encoders.pocket.train.tower import GRID
    from mmspec.encoders.pocket.train.tree import TreeMaker, collate, conversations

    model = _tiny_model()
    scenes = [make_scene(5), make_scene(8)]
    talks = [conversations(scene, random.Random(scene.seed), caption_share=1.0) for scene in scenes]
    maker = TreeMaker(build_tokenizer())
    everything = list(range(GRID * GRID))
    batch = collate(
        [maker.make(scene, talk, everything) for scene, talk in zip(scenes, talks, strict=True)], pad=0
    )
    with torch.no_grad():
        patches, grid = patchify([scene.draw() for scene in scenes])
        features = model.visual(patches, grid_thw=grid).pooler_output
        embeddings = model.get_input_embeddings()(batch.ids)
        embeddings = embeddings.masked_scatter((batch.ids == IMAGE_TOKEN).unsqueeze(-1), features)
        tree_states = model.language_model(
            inputs_embeds=embeddings,
            position_ids=batch.positions,
            attention_mask={"full_attention": batch.mask},
            use_cache=False,
        ).last_hidden_state
        for row, (scene, talk) in enumerate(zip(scenes, talks, strict=True)):
            turn = 0
            for conversation in talk:
                alone = collate([maker.make(scene, [conversation], everything)], pad=0)
                states = _alone(model, alone.ids, scene)
                for number in range(len(conversation)):
                    in_tree = tree_states[row][batch.answers[row] == turn]
                    torch.testing.assert_close(
                        in_tree, states[alone.answers[0] == number], atol=2e-5, rtol=1e-4
                    )
                    turn += 1


def test_probes_read_the_last_token_of_each_name_in_a_question() -> None:
    from mmspec.encoders.pocket.train.tree import TreeMaker

    scene = make_scene(5)
    alone = next(thing for thing in scene.things if scene.counts[thing.kind] == 1)
    absent = next(kind for kind in KINDS if kind not in scene.counts)
    tokenizer = build_tokenizer()
    questions = (
        f"Is the {alone.kind.name} above the {absent.name}?",
        f"How many {absent.plural} are there?",
        "How many objects are there?",
    )
    talk = [("relation", question, "No.") for question in questions]
    tree = TreeMaker(tokenizer).make(scene, [talk], [0, 1])
    named = [tokenizer.decode(tree.ids[: token + 1]) for token, *_ in tree.mentions]
    endings = (f"the {alone.kind.name}", f"the {absent.name}", f"many {absent.plural}", "many objects")
    for text, ending in zip(named, endings, strict=True):
        assert text.endswith(ending)
    known = [tuple(known) for _, *known in tree.mentions]
    assert known == [
        (1, alone.row, alone.column),
        (0, -1, -1),
        (0, -1, -1),
        (len(scene.things), -1, -1),
    ]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = _train_until(tmp_path / "whole", 8)
    _train_until(tmp_path / "broken", 6)
    torch.testing.assert_close(_train_until(tmp_path / "broken", 8), whole)
    assert (tmp_path / "whole" / "loss.png").exists()


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    from mmspec.training import Run, Schedule

    model = torch.nn.Linear(1, 1)
    run = Run(tmp_path, model, [torch.optim.AdamW(model.parameters())], Schedule(8, 2, 4))

    def step_loss(step: int) -> dict[str, float]:
        loss = model(torch.ones(1, 1)).sum() * (float("nan") if step == 5 else 1)
        loss.backward()
        return {"loss": loss.item()}

    with pytest.raises(MmspecError, match="step 5"):
        run.train(step_loss, dict)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["step"] == 4
    assert all(weight.isfinite().all() for weight in saved["model"].values())


def test_muon_brings_singular_values_near_one() -> None:
    from mmspec.training.muon import orthogonalise

    torch.manual_seed(0)
    for shape in ((3, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.5


def _train_until(folder: Path, stop: int) -> torch.Tensor:
    """Trains one weight by a schedule of 8 steps with a checkpoint every 4, and is interrupted at step `stop`."""
    from mmspec.training import Run, Schedule

    torch.manual_seed(7)
    model = torch.nn.Linear(3, 1)
    run = Run(folder, model, [torch.optim.AdamW(model.parameters(), lr=0.1)], Schedule(8, 2, 4))

    def step_loss(step: int) -> dict[str, float]:
        if step == stop:
            raise KeyboardInterrupt
        loss = (model(torch.full((2, 3), float(step))) - 1).square().mean()
        loss.backward()
        return {"loss": loss.item()}

    with contextlib.suppress(KeyboardInterrupt):
        run.train(step_loss, lambda: {"score": 0.0})
    return model.weight.detach()


def _alone(model: Any, ids: torch.Tensor, scene: Scene) -> torch.Tensor:
    from mmspec.encoders.pocket.train.pixels import patchify

    patches, grid = patchify([scene.draw()])
    return model(
        input_ids=ids, pixel_values=patches, image_grid_thw=grid, mm_token_type_ids=(ids == IMAGE_TOKEN).int()
    ).last_hidden_state[0]


def _tiny_model() -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "mrope_section": [4, 6, 6]},
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [0],
        },
        image_token_id=IMAGE_TOKEN,
        video_token_id=VIDEO_TOKEN,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        attn_implementation="sdpa",
    )
    return Qwen2_5_VLModel(config).eval()


def test_shipped_weights_can_be_trained_on() -> None:
    from mmspec.encoders.pocket.train.weights import split, unsplit

    trained = {
        "tower.visual.patch_embed.proj.weight": torch.randn(4, 3).half().float(),
        "text.layers.0.mlp.up_proj.lora_A.default.weight": torch.randn(2, 5).half().float(),
        "text.layers.0.mlp.up_proj.lora_B.default.weight": torch.randn(6, 2).half().float(),
    }
    tower, lora = split(trained | {"place.weight": torch.zeros(1)})
    assert set(lora) == {"layers.0.mlp.up_proj.A", "layers.0.mlp.up_proj.B"}
    again = unsplit(tower, lora)
    assert again.keys() == trained.keys()
    assert all(torch.equal(again[name], weight) for name, weight in trained.items())
