"""`mmspec serve`: vLLM's OpenAI server with the plugin on, in place of this process."""

import os
import shlex
import socket
import sys
from json import dumps
from typing import Annotated

import typer

from mmspec.cli.cache_options import EncoderCache, EncoderCacheSize, encoder_cache_from
from mmspec.cli.options import (
    Draft,
    DraftModel,
    FastVKeep,
    FastVLayer,
    FastVScores,
    Intake,
    Json,
    Tokens,
    draft_from,
    fastv_from,
    intake_from,
)
from mmspec.cli.serve_check import require_servable
from mmspec.cli.terminal import one_line_errors
from mmspec.cli.vllm_flags import flag_names, to_flags
from mmspec.config import MmspecConfig
from mmspec.defaults import engine_defaults, keep_thread_count
from mmspec.draft import AUTO, drafts_with_head, require_fitting_head
from mmspec.encoders.intake.settings import NOWHERE
from mmspec.engine_args import engine_kwargs
from mmspec.errors import MmspecError
from mmspec.models import resolve_model

# Whatever is not an option below is vLLM's, and goes on to it unchanged.
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}

_HOSTS = "--allowed-media-domains"
# At SIGTERM vLLM otherwise kills its engine at once, and with it the features that wait to be stored. Docker kills
# what has not ended after ten seconds.
_SHUTDOWN_SECONDS = 8
_INTAKE_HEADER = "mmspec.encoders.intake.headers.IntakeHeader"
_STATISTICS = "mmspec.serving.middleware.Statistics"


def command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="pocket, a checkpoint folder, or a hub name.")],
    draft: Draft = AUTO,
    draft_model: DraftModel = None,
    num_speculative_tokens: Tokens = None,
    fastv_keep: FastVKeep = None,
    fastv_layer: FastVLayer = None,
    fastv_scores: FastVScores = None,
    intake: Intake = "on",
    encoder_cache: EncoderCache = "off",
    encoder_cache_size: EncoderCacheSize = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="all")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check what can be checked without weights, print the plain vllm command, end."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Serve MODEL over the OpenAI API. Flags of `vllm serve` may follow MODEL."""
    config = MmspecConfig(
        draft=draft_from(model, draft, draft_model, num_speculative_tokens),
        encoder_cache=encoder_cache_from(encoder_cache, encoder_cache_size),
        fastv=fastv_from(fastv_keep, fastv_layer, fastv_scores),
        intake=intake_from(intake),
    )
    arguments = serve_arguments(model, config, [*_listen(host, port), *context.args])
    if json and not dry_run:
        raise MmspecError("--json is for --dry-run: a server has no result to print")
    if dry_run:
        require_servable(
            arguments, own_flags=[flag for option in context.command.params for flag in option.opts]
        )
        line = shlex.join(["vllm", *arguments])
        print(dumps({"command": line, "arguments": arguments}) if json else line)
        return
    _require_free_port(host, port)
    keep_thread_count()
    # The launcher also works where the `vllm` script does not; after exec signals reach the server itself.
    os.execv(sys.executable, [sys.executable, "-m", "mmspec.cli.vllm_launcher", *arguments])


def serve_arguments(model: str, config: MmspecConfig, given: list[str]) -> list[str]:
    """Arguments of `vllm` that serve `model` as `config` says; flags in `given` win over mmspec's defaults.

    Raises:
        MmspecError: the model or draft model is not there, or a flag contradicts the configuration.
    """
    names = flag_names(given)
    if "config" in names:
        raise MmspecError(
            "--config is vLLM's, and mmspec serve cannot see what is in the file; give flags instead"
        )
    for clash in ("additional_config", "speculative_config") if config.draft else ("additional_config",):
        if clash in names:
            raise MmspecError(
                f"--{clash.replace('_', '-')} is what mmspec serve sets; use vllm serve to give it yourself"
            )
    if config.intake is not None:
        given = ["--middleware", _INTAKE_HEADER, *given]
    given = ["--middleware", _STATISTICS, *given]
    arguments = engine_kwargs(config, statistics="asked") | engine_defaults(model, names)
    if config.encoder_cache is not None and "shutdown_timeout" not in names:
        arguments["shutdown_timeout"] = _SHUTDOWN_SECONDS
    with one_line_errors(f"model {model}", verbose=False):
        folder = resolve_model(model, lambda line: print(line, file=sys.stderr))
    speculative = arguments.get("speculative_config")
    if drafts_with_head(speculative):
        require_fitting_head(speculative, folder)
    if folder != model and "served_model_name" not in names:
        arguments["served_model_name"] = model
    return ["serve", folder, *_addresses(names), *to_flags(arguments), *_without_any(given)]


def _addresses(names: set[str]) -> list[str]:
    """vLLM fetches pictures from any host that a request names, unless told which ones; this server from none."""
    return [] if _HOSTS.removeprefix("--").replace("-", "_") in names else [_HOSTS, NOWHERE]


def _without_any(given: list[str]) -> list[str]:
    """`--allowed-media-domains any` becomes what vLLM has for it, which is no flag at all."""
    for place, flag in enumerate(given):
        if flag == f"{_HOSTS}=any":
            return given[:place] + given[place + 1 :]
        if given[place : place + 2] == [_HOSTS, "any"]:
            return given[:place] + given[place + 2 :]
    return given


def _listen(host: str | None, port: int) -> list[str]:
    return [*(["--host", host] if host else []), "--port", str(port)]


def _require_free_port(host: str | None, port: int) -> None:
    """vLLM binds the port late, and prints a traceback when it is taken."""
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "0.0.0.0", port))
        except OSError as error:
            raise MmspecError(
                f"port {port}: cannot be listened on ({error.strerror}); choose another with --port"
            ) from None
