"""`import mmspec` stays light, and so does the command line's help."""

import json
import subprocess
import sys

PROBE = """
import json, sys, time
start = time.perf_counter()
import {module}
seconds = time.perf_counter() - start
heavy = [name for name in sys.modules if name.split(".")[0] in ("torch", "vllm", "transformers")]
print(json.dumps({{"seconds": seconds, "heavy": heavy}}))
"""


def probe(module: str) -> tuple[float, list[str]]:
    """Seconds that the import took, and the heavy modules that came with it."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return found["seconds"], found["heavy"]


def test_importing_mmspec_is_fast_and_loads_no_engine() -> None:
    # The fastest of three: other processes may be at work on this machine.
    runs = [probe("mmspec") for _ in range(3)]

    assert all(heavy == [] for _, heavy in runs)
    assert min(seconds for seconds, _ in runs) < 0.3


def test_the_command_line_loads_no_engine() -> None:
    _, heavy = probe("mmspec.cli.main, mmspec.cli.chat, mmspec.cli.serve, mmspec.cli.bench")

    assert heavy == []


def test_every_public_name_is_there() -> None:
    import mmspec

    light = [name for name in mmspec.__all__ if name != "LLM"]
    assert all(getattr(mmspec, name) is not None for name in light)
    assert mmspec.__version__
