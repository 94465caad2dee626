"""`mmspec pocket`: builds the small VLM, and scores it."""

from pathlib import Path
from typing import Annotated

import typer

from mmspec.cli.options import Json, Out, Verbose
from mmspec.cli.results import measuring, publish
from mmspec.cli.tables import nested_table
from mmspec.cli.terminal import Terminal, engine_terminal, one_line_errors

app = typer.Typer(help="The small VLM that this project trained.", no_args_is_help=True)


@app.command()
def build(
    cache_dir: Annotated[
        Path | None, typer.Option(help="Folder to build in.", show_default="the user's cache folder")
    ] = None,
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the libraries log.")] = False,
) -> None:
    """Assemble the checkpoint in the cache folder, or find it whole there; prints its folder."""
    from mmspec.encoders.pocket import build as build_pocket

    with (
        engine_terminal(json_only=json, verbose=verbose) as terminal,
        one_line_errors("pocket build", verbose),
    ):
        with terminal.progress("Looking for the pocket model ...") as report:
            folder = build_pocket(cache_dir, report)
        terminal.answer.print(str(folder), soft_wrap=True)
        if json:
            terminal.print_json({"folder": str(folder)})


@app.command("eval")
def evaluate(
    scenes: Annotated[int, typer.Option(min=2, help="Held-out scenes to ask about.")] = 500,
    perplexity: Annotated[bool, typer.Option(help="Also measure perplexity on plain English.")] = True,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Score the pocket model on held-out scenes: questions, captions, shuffled pictures, plain English."""
    with measuring("pocket eval", json, verbose) as terminal:
        scores = _scores(scenes, perplexity, terminal)
        publish(terminal, nested_table(scores), scores, out, json)


def _scores(scenes: int, perplexity: bool, terminal: Terminal) -> dict[str, object]:
    from PIL import Image

    from mmspec.bench.prompts import answerer
    from mmspec.encoders.pocket import build as build_pocket
    from mmspec.encoders.pocket.evaluate import evaluate as evaluate_pocket
    from mmspec.encoders.pocket.evaluate import text_perplexity_ratio

    with terminal.progress("Scoring ...") as report:
        folder = build_pocket(report=report)
        report("reading plain English")
        ratio = text_perplexity_ratio(folder) if perplexity else None

        from mmspec.llm import LLM

        llm = LLM(str(folder), draft=None, dtype="float32", max_num_seqs=32, max_model_len=1024)

        ask = answerer(llm)

        def answer(prompts: list[tuple[Image.Image, str]], max_tokens: int) -> list[str]:
            report(f"asking {len(prompts)} questions")
            return ask(prompts, max_tokens)

        scores = evaluate_pocket(answer, scenes, ratio).to_dict()
        llm.close()
    return scores
