"""One server of the pocket model, one page over it, and one Chromium, for all tests of this folder."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.conftest import START_SECONDS, Server, quiet_environment

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS = 120_000  # for an answer on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM")
    from playwright.sync_api import sync_playwright

    # Not for the whole session: while it is open, its event loop is the thread's, and asyncio.run() refuses.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pocket_server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec serve pocket`, where each request may ask for pruning."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    command = ["mmspec.cli.main", "serve", "pocket", "--fastv-keep", "1.0", "--draft", "ngram"]
    command += ["--max-num-seqs", "4", "--kv-cache-memory-bytes", str(1 << 28), "--max-model-len", "2048"]
    running = Server(command, log, quiet_environment())
    try:
        running.wait(START_SECONDS)
        yield running
    finally:
        running.close(60)


@pytest.fixture(scope="module")
def demo(pocket_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec demo` over that server."""
    log = tmp_path_factory.mktemp("page") / "page.log"
    running = Server(["mmspec.cli.main", "demo", "--server", pocket_server.url], log, quiet_environment())
    try:
        running.wait(300, path="/")
        yield running
    finally:
        running.close(60)


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
