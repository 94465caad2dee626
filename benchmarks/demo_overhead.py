"""What the image chat adds to a server's stream, and how soon its page shows.

python benchmarks/demo_overhead.py [--server URL] [--json] [--out benchmarks/results/demo_overhead.json]

Each round asks the same question twice, greedy: straight from the server with the OpenAI client, and through the served
page as a browser asks it, over Gradio's queue. `added_ms_per_token` is the difference of the times from the first token
to the end of the answer, over the answer's tokens; `added_first_token_ms` that of the times to the first token, which
for the page includes the upload of the picture. The first round is thrown away. Without `--server` one is started
with the pocket model. `first_page_s` is the time until a Chromium that knows nothing of the page shows the box for
questions, None where there is no Chromium.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradio_client import Client, handle_file

from mmspec.bench.provenance import write_result
from mmspec.demo.conversation import to_messages, user_turn
from mmspec.demo.layout import EXAMPLES
from mmspec.demo.page import build_page, serve_page
from mmspec.demo.server import Sampling, Server
from mmspec.demo.started import Started

_PICTURE = str(EXAMPLES / "01-dolphin.png")
_QUESTION = "Describe the picture."
_MAX_TOKENS = 128
_CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", help="address of a running server; without it one is started")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line (always so)"
    )
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    given = parser.parse_args()
    with _server(given.server) as url:
        result = _measure(url, given.rounds)
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result))


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    started = Started("pocket", Path(tempfile.mkdtemp()) / "server.log")
    try:
        while not started.answers():
            started.require_alive()
            time.sleep(0.5)
        yield started.url
    finally:
        started.close()


def _measure(url: str, rounds: int) -> dict[str, Any]:
    blocks = build_page(Server(url))
    address = serve_page(blocks, "127.0.0.1", None)
    client = Client(address, verbose=False)
    pairs = [(_direct(url), _through_page(client)) for _ in range(rounds + 1)][1:]
    tokens = pairs[0][0].tokens
    added = [(page.stream - direct.stream) / tokens * 1e3 for direct, page in pairs]
    shows = [_first_page(address) for _ in range(3)]
    blocks.close()
    return {
        "rounds": rounds,
        "tokens": tokens,
        "direct_ms_per_token": _median([direct.stream / tokens * 1e3 for direct, _ in pairs]),
        "page_ms_per_token": _median([page.stream / tokens * 1e3 for _, page in pairs]),
        "added_ms_per_token": _median(added),
        "added_ms_per_token_all": [round(value, 3) for value in added],
        "added_first_token_ms": _median([(page.first - direct.first) * 1e3 for direct, page in pairs]),
        "first_page_s": [value for value in shows if value is not None] or None,
    }


@dataclass
class Times:
    """Seconds to the first token, and from there to the end of the answer."""

    first: float
    stream: float
    tokens: int = 0


def _direct(url: str) -> Times:
    async def ask() -> Times:
        server = Server(url)
        offer, tokens, first = await server.offer(), 0, None
        messages = to_messages([user_turn(_QUESTION, [_PICTURE])])
        begun = time.perf_counter()
        async for chunk in await server.read(offer, messages, Sampling(max_tokens=_MAX_TOKENS, keep=1.0)):
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            first = first or (time.perf_counter() if tokens else None)
        return _times(begun, first, tokens)

    return asyncio.run(ask())


def _through_page(client: Client) -> Times:
    question = {"text": _QUESTION, "files": [handle_file(_PICTURE)]}
    begun, first = time.perf_counter(), None
    for chat, *_ in client.submit(question, [], "", 0, 1, _MAX_TOKENS, "", 1, api_name="/ask"):
        first = first or (time.perf_counter() if len(chat) > 1 else None)  # the question, and an answer
    return _times(begun, first)


def _times(begun: float, first: float | None, tokens: int = 0) -> Times:
    assert first is not None, "there was no answer"
    return Times(first - begun, time.perf_counter() - first, tokens)


def _first_page(address: str) -> float | None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_CHROMIUM_FLAGS)
        tab = browser.new_page()
        begun = time.perf_counter()
        tab.goto(address)
        tab.locator("#box textarea").wait_for()
        seconds = time.perf_counter() - begun
        browser.close()
    return round(seconds, 3)


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


if __name__ == "__main__":
    main()
