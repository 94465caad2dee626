"""The draft steps in training against speculators' own, and against drafting one token at a time."""

from typing import Any

import pytest
import torch

from mmspec.heads.train.batches import Sample, collate
from mmspec.heads.train.scores import agreement, loss_of, walk
from mmspec.heads.train.unroll import Rows, targets, unroll

WIDTH, VOCABULARY, DRAFT, LAYERS = 32, 60, 40, 3
STEPS = 4


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def head(request: pytest.FixtureRequest) -> Any:
    return make_head(request.param)


def test_steps_are_those_of_speculators(head: Any) -> None:
    """speculators drafts at every row; ours must say the same at those where drafting can start."""
    sample = make_sample(length=17, answers=[(9, 17)], seed=1)
    batch = collate([sample], vision=False, mrope=False, dtype=torch.float32)
    from speculators.losses import resolve_loss_config

    said: list[torch.Tensor] = []
    hook = head.lm_head.register_forward_hook(lambda _m, _i, out: said.append(out))
    head(
        hidden_states=batch.hidden,
        input_ids=batch.tokens,
        document_ids=torch.zeros(1, 16, dtype=torch.long),
        loss_mask=batch.starts,
        verifier_last_hidden_states=batch.target,
        ttt_steps=STEPS,
        loss_config=resolve_loss_config("kl_div", "eager"),
    )
    hook.remove()
    starts = batch.starts[0].nonzero()[:, 0]
    for number, step in enumerate(unroll(head, batch, STEPS)):
        there = step.wanted >= 0
        torch.testing.assert_close(step.logits[there], said[number][0, starts[there]], atol=1e-5, rtol=1e-4)


def test_a_batch_is_its_sequences_one_by_one(head: Any) -> None:
    samples = [
        make_sample(length=11, answers=[(4, 11)], seed=2),
        make_sample(length=23, answers=[(6, 10), (15, 23)], seed=3, visual=(2, 5)),
        make_sample(length=14, answers=[(13, 14)], seed=4),
    ]
    together = collate(samples, vision=True, mrope=False, dtype=torch.float32)
    alone = [collate([sample], vision=True, mrope=False, dtype=torch.float32) for sample in samples]
    wanted = [list(unroll(head, batch, STEPS)) for batch in alone if batch.starts.any()]
    for number, step in enumerate(unroll(head, together, STEPS)):
        parts = [steps[number] for steps in wanted]
        there = torch.cat([part.wanted >= 0 for part in parts])
        torch.testing.assert_close(step.wanted >= 0, there)
        torch.testing.assert_close(
            step.logits[there], torch.cat([part.logits for part in parts])[there], atol=1e-5, rtol=1e-4
        )


def test_drafts_end_with_their_answer() -> None:
    """Rows 3, 4, 5 and 9 are starts: the second step of 5 would leave the answer, that of 9 as well."""
    starts = torch.zeros(1, 12, dtype=torch.bool)
    starts[0, [3, 4, 5, 9]] = True
    rows = Rows.of(starts)
    assert rows.padded.tolist() == [[3, 4, 5, 9]]
    assert [rows.wanted(step).tolist() for step in range(4)] == [
        [0, 1, 2, 3],
        [1, 2, -1, -1],
        [2, -1, -1, -1],
        [-1, -1, -1, -1],
    ]


def test_visual_tokens_bring_their_features(head: Any) -> None:
    """With the features set to the embedding of a word, they are as good as that word."""
    sample = make_sample(length=15, answers=[(8, 15)], seed=5, visual=(2, 6))
    word = 7
    sample["features"] = head.embed_tokens.weight[word].detach().expand(4, -1)
    ids = sample["input_ids"]
    assert ids is not None
    written = {**sample, "input_ids": ids.clone().index_fill(0, torch.arange(2, 6), word)}
    seen = list(unroll(head, collate([sample], True, False, torch.float32), STEPS))
    blind = list(unroll(head, collate([written], False, False, torch.float32), STEPS))
    for one, other in zip(seen, blind, strict=True):
        torch.testing.assert_close(one.logits, other.logits)


def test_a_summary_that_adds_nothing_changes_nothing_and_one_that_adds_reaches_only_text_behind_it() -> None:
    """The second picture's summary must not depend on the first, nor reach the text before it."""
    from mmspec.heads.vision import ImageSummary

    head = make_head("sdpa")
    samples = [make_sample(20, [(14, 20)], seed=7, visual=(2, 5)), make_sample(9, [(3, 9)], seed=8)]
    batch = collate(samples, False, False, torch.float32)
    plain = list(unroll(head, batch, STEPS))
    head.vision = ImageSummary(WIDTH, 16)
    for one, other in zip(unroll(head, batch, STEPS), plain, strict=True):
        torch.testing.assert_close(one.logits, other.logits)
    torch.nn.init.normal_(head.vision.down.weight)
    changed = next(iter(unroll(head, batch, STEPS))).logits
    behind = int(batch.starts[0].sum())
    assert not torch.isclose(changed[:behind], plain[0].logits[:behind]).all(-1).any()
    torch.testing.assert_close(changed[behind:], plain[0].logits[behind:])


def test_a_summary_is_the_weighted_mean_of_its_picture() -> None:
    from mmspec.heads.vision import ImageSummary

    torch.manual_seed(0)
    summary = ImageSummary(WIDTH, 16)
    for weight in (summary.score.weight, summary.down.weight):
        torch.nn.init.normal_(weight)
    features = torch.randn(5, WIDTH)
    weights, weighted = summary.weigh(features)
    normed = torch.nn.functional.rms_norm(features, (WIDTH,))
    share = (normed @ summary.score.weight[0]).softmax(0)
    pooled = torch.nn.functional.rms_norm(share @ features, (WIDTH,))
    torch.testing.assert_close(
        summary.read(weights.sum(0), weighted.sum(0), torch.float32),
        summary.down(torch.nn.functional.silu(summary.up(pooled))),
    )


def test_loss_and_agreement(head: Any) -> None:
    batch = collate([make_sample(12, [(5, 12)], seed=6)], False, False, torch.float32)
    wanted, said = targets(head, batch)
    loss, drafted = loss_of(unroll(head, batch, STEPS), wanted, 0.8)
    by_hand = torch.zeros(())
    for number, step in enumerate(unroll(head, batch, STEPS)):
        there = step.wanted >= 0
        p, q = wanted[step.wanted[there]].softmax(-1), step.logits[there].softmax(-1)
        by_hand = by_hand + 0.8**number * (p * (p / q).log()).sum(-1).mean()
    torch.testing.assert_close(loss, by_hand)
    assert said.tolist() == batch.tokens[0, 5:11].tolist()
    right = agreement(drafted, said, head.d2t)
    for start in range(len(said)):
        for step in range(STEPS):
            if start + step >= len(said):
                assert right[start, step] == -1
                continue
            token = int(drafted[start, step] + head.d2t[drafted[start, step]])
            assert right[start, step] == int(token == said[start + step])


def test_walk_goes_on_behind_what_was_accepted() -> None:
    agreed = [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 1, -1], [1, -1, -1]]
    assert walk(agreed) == [2, 0, 2]


def make_head(attention: str) -> Any:
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from transformers import LlamaConfig

    torch.manual_seed(0)
    layer = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    layer._attn_implementation = attention
    head = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=DRAFT,
            norm_before_residual=True,
            eagle_aux_hidden_state_layer_ids=list(range(LAYERS)),
        )
    )
    said = torch.randperm(VOCABULARY)[:DRAFT].sort().values
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, said, True)
    head.load_vocab_mappings(t2d, said - torch.arange(DRAFT))
    for table in (head.embed_tokens, head.lm_head, head.verifier_lm_head):
        torch.nn.init.normal_(table.weight, std=0.5)
    return head.eval()


def make_sample(
    length: int, answers: list[tuple[int, int]], seed: int, visual: tuple[int, int] | None = None
) -> Sample:
    made = torch.Generator().manual_seed(seed)
    mask = torch.zeros(length, dtype=torch.bool)
    for start, end in answers:
        mask[start:end] = True
    is_visual = torch.zeros(length, dtype=torch.bool)
    if visual is not None:
        is_visual[slice(*visual)] = True
    return {
        "input_ids": torch.randint(VOCABULARY, (length,), generator=made),
        "loss_mask": mask,
        "positions": torch.arange(length),
        "mrope_positions": torch.arange(length).expand(3, length),
        "hidden_states": torch.randn(length, LAYERS * WIDTH, generator=made),
        "last_hidden": torch.randn(length, WIDTH, generator=made),
        "features": torch.randn(int(is_visual.sum()), WIDTH, generator=made) if visual else None,
        "is_visual": is_visual,
    }
