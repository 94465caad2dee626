"""How fast does a head train?"""

import gc
from math import isfinite

import torch

from gpu_check.exactness import DECAY, STEPS
from gpu_check.head import make_head
from gpu_check.run import Row, Run, short_name
from gpu_check.samples import make_sample
from gpu_check.timing import in_turn, spread
from mmspec.heads.train.batches import Batch, collate
from mmspec.heads.train.scores import loss_of
from mmspec.heads.train.unroll import targets, unroll


def training_speed(run: Run) -> list[Row]:
    """Optimizer steps (AdamW) through all steps of training-time test, at growing batch sizes while they fit."""
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        for tokens in run.size.batch_tokens:
            row = Row(f"{short_name(dtype)}, batch of {tokens} tokens")
            try:
                _measure(run, dtype, tokens, row)
            except torch.cuda.OutOfMemoryError:
                row.figures["note"] = "does not fit"
            rows.append(row)
            gc.collect()
            if run.device.type == "cuda":
                torch.cuda.empty_cache()
    return rows


def _measure(run: Run, dtype: torch.dtype, tokens: int, row: Row) -> None:
    head = make_head(run, dtype)
    batch = _batch(run, dtype, tokens)
    trained = [p for p in head.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=run.device.type == "cuda")
    loss = torch.zeros(())

    def step() -> None:
        nonlocal loss
        total, _ = loss_of(unroll(head, batch, STEPS), targets(head, batch)[0], DECAY)
        total.backward()
        optimizer.step()
        loss = total.detach()
        optimizer.zero_grad(set_to_none=True)

    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = in_turn({"step": step}, run.device, repeats=min(10, run.size.repeats), calls=1)["step"]
    row.figures |= spread("tokens_per_second", [float(batch.real.sum()) / ms * 1e3 for ms in times])
    row.figures |= {"step_ms": sum(times) / len(times), "peak_gib": None, "loss": float(loss)}
    if run.device.type == "cuda":
        row.figures["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if not isfinite(float(loss)):
        row.failure = f"{row.what}: the loss is {float(loss)} after {len(times)} steps"


def _batch(run: Run, dtype: torch.dtype, tokens: int) -> Batch:
    """Sequences whose second half is the answer; each row but the last one's token counts."""
    length = run.size.sequence
    samples = [make_sample(run.size, length, range(length // 2, length)) for _ in range(tokens // length)]
    return collate(samples, vision=False, mrope=False, dtype=dtype).to(run.device)
