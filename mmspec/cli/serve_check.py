"""What a start of the server would refuse before it loads weights. Importing this imports nothing of vLLM."""

import argparse
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from mmspec.cli.terminal import engine_terminal, first_reason
from mmspec.errors import MmspecError


def require_servable(arguments: list[str], own_flags: list[str]) -> None:
    """Puts arguments of `vllm` through vLLM's own parser and, for a model on this machine, its own checks of them.

    Args:
        arguments: those of `vllm serve`, from "serve" on.
        own_flags: flags that `mmspec serve` knows besides, for a misspelt one.

    Raises:
        MmspecError: vLLM or mmspec would refuse them.
    """
    with engine_terminal(json_only=False, verbose=False):  # vLLM logs to standard output
        try:
            given = _parsed(arguments[1:], own_flags)
            if Path(given.model_tag).is_dir():  # a hub's files may be elsewhere
                _configured(given)
        except MmspecError:
            raise
        except Exception as error:
            raise MmspecError(f"vllm serve would refuse this: {first_reason(error)}") from error


def _parsed(arguments: list[str], own_flags: list[str]) -> argparse.Namespace:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        """Says what is wrong in one line, where vLLM's prints its usage and ends the process."""

        def error(self, message: str) -> NoReturn:
            unknown = message.partition("unrecognized arguments: ")[2].split()
            if not unknown:
                raise MmspecError(f"vllm serve: {message}")
            flag = unknown[0].partition("=")[0]
            close = get_close_matches(flag, [*self._option_string_actions, *own_flags], n=1, cutoff=0.6)
            mend = f"did you mean {close[0]}?" if close else "vllm serve --help=all lists its flags"
            raise MmspecError(f"{flag}: neither vllm serve nor mmspec serve knows it; {mend}")

    given = make_arg_parser(Parser(prog="vllm serve")).parse_args(arguments)
    validate_parsed_serve_args(given)
    return given


def _configured(given: argparse.Namespace) -> Any:
    """Where mmspec's patch is at work, its own checks are part of this."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    given.model = given.model_tag
    return AsyncEngineArgs.from_cli_args(given).create_engine_config()
