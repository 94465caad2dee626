"""`mmspec tune`: measures how many drafted tokens a step are fastest on this machine, for each batch size."""

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmspec.cli.options import Draft, DraftModel, Json, MaxModelLen, Model, Out, Verbose, draft_from, room
from mmspec.cli.results import measuring, publish
from mmspec.draft import AUTO
from mmspec.errors import MmspecError
from mmspec.models import POCKET, require_model, resolve_model

if TYPE_CHECKING:
    from mmspec.bench.speed import Case


def command(
    model: Model = POCKET,
    draft: Draft = AUTO,
    draft_model: DraftModel = None,
    k: Annotated[
        list[int] | None,
        typer.Option("-k", min=1, help="Tokens drafted per step to try.", show_default="2, 4, 6"),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Requests at once; may be given more than once.", show_default="1, 4"),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="Folder with examples.json, pictures to ask about.", show_default="ours"),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the answers.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="Times that each case is measured.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest answer, in tokens.")] = 96,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure time per token for several numbers of drafted tokens, and recommend one for each batch size.

    Two engines are open at a time, one that drafts and one that does not: on a GPU leave room for both.
    """
    from mmspec.bench.prompts import example_prompts
    from mmspec.bench.speed import sweep
    from mmspec.bench.tune import tune_result
    from mmspec.cli.tables import nested_table
    from mmspec.draft import speculative_config

    config = draft_from(model, draft, draft_model, None)
    if speculative_config(config) is None:
        raise MmspecError(
            "tune: draft is none, so there is nothing to tune; give --draft ngram, eagle3 or another"
        )
    require_model(model)
    sizes = sorted(set(batch or (1, 4)))
    cases = _cases(example_prompts(examples), sizes, temperature)
    with measuring(f"model {model}", json, verbose) as terminal:
        with terminal.progress("Measuring ...") as report:
            resolve_model(model, report)
            found = sweep(
                model,
                config,
                cases,
                ks=sorted(set(k or (2, 4, 6))),
                repeats=repeats,
                max_tokens=max_tokens,
                report=report,
                max_num_seqs=max(sizes),
                **room(max_model_len),
            )
        by_batch = {size: found[_name(size)] for size in sizes}
        result = tune_result(by_batch)
        terminal.remarks.print(_advice(by_batch, config.method), soft_wrap=True)
        publish(terminal, nested_table(result), result, out, json)


def _cases(prompts: Sequence[Any], sizes: Sequence[int], temperature: float) -> "dict[str, Case]":
    from mmspec.bench.speed import Case

    if not prompts:
        raise MmspecError("tune: no examples to ask about; give a folder whose examples.json names some")
    # Whole batches only: what is left over would be measured at another size.
    asked = {
        size: [prompts[i % len(prompts)] for i in range(-(-len(prompts) // size) * size)] for size in sizes
    }
    return {_name(size): Case(asked[size], batch=size, temperature=temperature) for size in sizes}


def _name(size: int) -> str:
    return f"batch {size}"


def _advice(by_batch: dict[int, Any], method: str) -> str:
    from mmspec.bench.tune import advise

    options = advise(by_batch).speculative_options()
    if not options:
        return f"Drafting with {method} is slower than none here, at every batch size: use --draft none."
    return "speculative_config: " + json_format.dumps({"method": method} | options)
