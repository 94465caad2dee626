"""Is the head's arithmetic right? Forward, backward and a draft loop against float64."""

from collections.abc import Sequence
from math import inf

import torch
from transformers import DynamicCache

from gpu_check.head import PlainHead, make_head
from gpu_check.reference import Reference
from gpu_check.run import Row, Run, short_name
from gpu_check.samples import make_sample
from mmspec.heads.train.batches import Sample, collate
from mmspec.heads.train.scores import loss_of
from mmspec.heads.train.unroll import Step, causal_mask, targets, unroll

STEPS, DECAY = 7, 0.8
# The largest error allowed, as a share of the largest value: of the logits, or of a weight's gradient.
TOLERANCES = {torch.float32: 5e-4, torch.bfloat16: 0.1}


def exactness(run: Run) -> list[Row]:
    """Two sequences side by side, one with an image; the draft loop goes on behind the other's long prompt."""
    rows = []
    length = run.size.kv_tokens
    for dtype in TOLERANCES:
        head = make_head(run, dtype)
        reference = Reference(head.state_dict(), run.size, dtype)
        samples = [
            make_sample(run.size, 24, answer=range(14, 23), visual=range(3, 9)),
            make_sample(run.size, length, answer=range(length - 20, length - 8)),
        ]
        rows += _training(head, reference, samples, dtype)
        rows.append(_draft_loop(head, reference, samples[1], length - 20, dtype))
    return rows


def _training(head: PlainHead, reference: Reference, samples: list[Sample], dtype: torch.dtype) -> list[Row]:
    batch = collate(samples, vision=True, mrope=False, dtype=dtype).to(head.fc.weight.device)
    steps: list[Step] = list(unroll(head, batch, STEPS))
    loss, _ = loss_of(steps, targets(head, batch)[0], DECAY)
    loss.backward()
    wanted_loss, wanted = reference.training(samples, STEPS, DECAY)
    wanted_loss.backward()
    said = [step.logits[step.wanted >= 0] for step in steps]
    trained = [(name, p) for name, p in head.named_parameters() if p.requires_grad]
    gradients = [(name, p.grad, reference.weights[name].grad) for name, p in trained]
    return [
        _row("forward", dtype, [("step 1", said[0], wanted[0])]),
        _row("training-time test", dtype, [(f"step {i + 1}", said[i], wanted[i]) for i in range(1, STEPS)]),
        _row("loss", dtype, [("the sum", loss, wanted_loss)]),
        _row("backward", dtype, gradients),
    ]


@torch.no_grad()
def _draft_loop(head: PlainHead, reference: Reference, sample: Sample, rows: int, dtype: torch.dtype) -> Row:
    """With a cache, one token at a time, as in serving; each step gets the reference's token."""
    wanted, tokens = reference.drafted(sample, rows, STEPS)
    batch = collate([sample], vision=False, mrope=False, dtype=dtype).to(head.fc.weight.device)
    cache = DynamicCache()
    logits, states = head.step(
        head.embed_tokens(batch.tokens[:, :rows]),
        head.fc(batch.hidden[:, :rows]),
        batch.positions[:, :rows],
        cache,
        causal_mask(batch.real[:, :rows], dtype),
    )
    said = [logits]
    for step, token in enumerate(tokens[:-1]):
        embedding = head.embed_tokens(torch.tensor([[token]], device=states.device))
        position = batch.positions[:, rows - 1 : rows] + step + 1
        logits, states = head.step(embedding, states[:, -1:], position, cache)
        said.append(logits)
    return _row("draft loop", dtype, [(f"step {i + 1}", said[i][0], wanted[i]) for i in range(STEPS)])


def _row(
    what: str, dtype: torch.dtype, pairs: Sequence[tuple[str, torch.Tensor | None, torch.Tensor | None]]
) -> Row:
    """The largest errors among pairs of a name, what came out, and what should have."""
    worst, relative, absolute = "", 0.0, 0.0
    for name, found, wanted in pairs:
        assert found is not None and wanted is not None, name
        # A NaN is no larger than anything, and must not pass.
        error = float((found.detach().double() - wanted.detach()).abs().nan_to_num(inf).max())
        absolute = max(absolute, error)
        if (share := error / float(wanted.detach().abs().max())) > relative:
            worst, relative = name, share
    kind, tolerance = short_name(dtype), TOLERANCES[dtype]
    figures: dict[str, float | str | None] = {
        "largest_relative": relative,
        "tolerance": tolerance,
        "largest_absolute": absolute,
        "worst": worst,
    }
    failure = f"{kind} {what}: {worst} is off by {relative:.2g} of the largest value, above {tolerance:g}"
    return Row(f"{kind} {what}", figures, None if relative <= tolerance else failure)
