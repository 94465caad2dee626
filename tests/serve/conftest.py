"""A tiny checkpoint, and a server for it, shared by the tests of this folder."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mmspec.server_process import ServerProcess as Server
from tests.tiny import build_checkpoint

__all__ = ["Server"]

START_SECONDS = float(
    os.environ.get("MMSPEC_TEST_START_SECONDS", 600)
)  # a busy machine; an idle one takes a tenth


@pytest.fixture(scope="session")
def tiny_vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2.5-VL."""
    return build_checkpoint("qwen2_5_vl", tmp_path_factory.mktemp("served") / "tiny vlm")


@pytest.fixture(scope="session")
def tiny_text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama, which takes no pictures."""
    return build_checkpoint("llama", tmp_path_factory.mktemp("served") / "llama")


def quiet_environment(**changes: str) -> dict[str, str]:
    """This process's environment for an engine of a test."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **changes}


def last_json(*command: str, timeout: float = 900, **environment: str) -> Any:
    """What a Python command, run from the project's folder, prints as its last line."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=quiet_environment(**environment),
        timeout=timeout,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def serving(model: Path, folder: Path, *flags: str, **environment: str) -> Iterator[Server]:
    """`mmspec serve` with small limits, under the name `tiny`; its log is kept in `folder`."""
    command = ["mmspec.cli.main", "serve", str(model), "-k", "3", *flags, "--dtype", "float32"]
    command += ["--max-num-seqs", "4", "--served-model-name", "tiny"]
    running = Server(command, folder / "server.log", quiet_environment(**environment))
    try:
        running.wait(START_SECONDS)
        yield running
    finally:
        running.close(60)


@pytest.fixture(scope="module")
def server(tiny_vlm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec serve` with n-gram drafting and the feature cache; what is kept of pictures is left to each request."""
    features = json.dumps({"directory": str(tmp_path_factory.mktemp("features")), "memory_size": "8MiB"})
    flags = ("--fastv", "1.0", "--encoder-cache", features)
    with serving(tiny_vlm, tmp_path_factory.mktemp("log"), *flags) as running:
        yield running
