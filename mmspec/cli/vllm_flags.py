"""Engine arguments as flags of the `vllm` command."""

import json
from collections.abc import Mapping
from typing import Any


def to_flags(arguments: Mapping[str, Any]) -> list[str]:
    """`{"dtype": "float32", "enforce_eager": True}` as `["--dtype", "float32", "--enforce-eager"]`."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        match value:
            case True:
                flags.append(flag)
            case False:
                flags.append("--no-" + flag.removeprefix("--"))
            case dict():
                flags += [flag, json.dumps(value)]
            case _:
                flags += [flag, str(value)]
    return flags


_SHORT = {"-sc": "--speculative-config"}  # of vLLM's short flags, the one whose argument mmspec looks at


def flag_names(arguments: list[str]) -> set[str]:
    """Names of the engine arguments that flags set: `--no-enforce-eager`, `--dtype=float16`, `-sc` count too."""
    heads = (argument.split("=")[0] for argument in arguments)
    flags = (_SHORT.get(head, head).removeprefix("--") for head in heads if head.startswith("-"))
    # Dotted flags set one key of a mapping: --speculative-config.method
    return {flag.split(".")[0].replace("-", "_").removeprefix("no_") for flag in flags}
