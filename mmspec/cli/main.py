"""The `mmspec` command. Sub-commands import torch and vLLM only when they run."""

import sys
from importlib import import_module

import typer

from mmspec import __version__
from mmspec.errors import MmspecError

# Each module has either `app`, a group of commands, or `command`, one function.
_SUBCOMMANDS = ("chat", "serve", "demo", "head", "cache", "bench", "tune", "pocket", "doctor")


def build_app() -> typer.Typer:
    """The command line with every sub-command."""
    app = typer.Typer(
        name="mmspec",
        help="Speculative decoding for vision-language models on vLLM.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and end."),
    ) -> None:
        if version:
            print(f"mmspec {__version__}")
        elif context.invoked_subcommand is None:
            print(context.get_help())

    for name in _SUBCOMMANDS:
        module = import_module(f"mmspec.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name=name, context_settings=settings)(module.command)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; a mistake of the user's ends it with one line and no traceback."""
    try:
        code = build_app()(args=arguments, prog_name="mmspec", standalone_mode=False)
    except MmspecError as error:
        code = _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        code = _fail_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _fail_usage(error: typer.TyperException) -> int:
    """A group of commands without one gets its help; the rest is a line like any other."""
    if type(error).__name__ == "NoArgsIsHelpError":  # typer exports no name for it
        if text := error.format_message():  # with rich, typer has printed it by now
            print(text, file=sys.stderr)
        return error.exit_code
    return _fail(error.format_message().replace(": Value error, ", ": "), error.exit_code)


def _fail(message: str, exit_code: int) -> int:
    line = " ".join(message.split())
    print(f"mmspec: {line}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
