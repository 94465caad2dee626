"""One server of the pocket model, one page over it, and one Chromium, for all tests of this folder."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Server, quiet_environment, wait_until_healthy

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS = 120_000  # for an answer on a busy machine


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def wait_until_served(server: Server) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        assert server.process.poll() is None, f"the page ended:\n{server.tail()}"
        try:
            with urllib.request.urlopen(server.url, timeout=30):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"the page is not served:\n{server.tail()}")


def start(command: list[str], port: int, log: Path) -> Server:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mmspec.cli.main", *command, "--port", str(port)],
            stdout=output,
            stderr=output,
            env=quiet_environment(),
            cwd=ROOT,
        )
    return Server(f"http://127.0.0.1:{port}", process, log)


def end(server: Server) -> None:
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.process.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pocket_server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec serve pocket`, where each request may ask for pruning."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    command = ["serve", "pocket", "--host", "127.0.0.1", "--fastv-keep", "1.0", "--draft", "ngram"]
    command += ["--max-num-seqs", "4", "--kv-cache-memory-bytes", str(1 << 28), "--max-model-len", "2048"]
    running = start(command, free_port(), log)
    try:
        wait_until_healthy(running)
        yield running
    finally:
        end(running)


@pytest.fixture(scope="session")
def demo(pocket_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec demo` over that server."""
    log = tmp_path_factory.mktemp("page") / "page.log"
    running = start(["demo", "--server", pocket_server.url], free_port(), log)
    try:
        wait_until_served(running)
        yield running
    finally:
        end(running)


@pytest.fixture
def page(browser: Any, demo: Server) -> Iterator[Any]:
    """A fresh tab with the page; errors in it fail the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 1250})
    tab = context.new_page()
    tab.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(demo.url)
    tab.locator("#banner", has_text="pocket").wait_for()
    yield tab
    context.close()
    assert errors == []
