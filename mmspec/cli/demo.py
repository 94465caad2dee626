"""`mmspec demo`: the image chat in a browser."""

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mmspec.cli.options import Draft, Model
from mmspec.draft import AUTO, require_known
from mmspec.errors import MmspecError
from mmspec.models import POCKET

if TYPE_CHECKING:
    from mmspec.demo.started import Started

_LOOK = 0.5  # seconds between two looks at the server's process


def command(
    server: Annotated[
        str | None,
        typer.Option(
            help="Address of a running server; its API key comes from MMSPEC_API_KEY.",
            show_default="one is started for --model",
        ),
    ] = None,
    model: Model = POCKET,
    draft: Draft = AUTO,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port to listen on.", show_default="the first free one from 7860"
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="File for the log of the server that is started.", show_default="a temporary file"),
    ] = None,
) -> None:
    """Chat about pictures in a browser, and see what drafting, caching and pruning do."""
    if find_spec("gradio") is None:
        raise MmspecError("the demo needs gradio; pip install 'mmspec[demo]'")
    if server is not None and not server.startswith(("http://", "https://")):
        raise MmspecError(f"--server {server}: give an address such as http://localhost:8000")
    require_known(draft)
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        started = None
        if server is None:
            started = _start(model, draft, log)
            stack.callback(started.close)
        _serve(started.url if started else str(server), started, host, port)


def _start(model: str, draft: str, log: Path | None) -> "Started":
    from mmspec.demo.started import Started

    log = log or Path(tempfile.mkdtemp(prefix="mmspec-demo-")) / "server.log"
    # Pictures are encoded once, and each question may ask for pruning.
    started = Started(model, log, ["--draft", draft, "--fastv-keep", "1.0", "--encoder-cache", "on"])
    print(f"server: {model} is starting; its log is {log}", flush=True)
    return started


def _serve(url: str, started: "Started | None", host: str, port: int | None) -> None:
    from mmspec.demo.page import build_page, serve_page
    from mmspec.demo.server import Server

    page = build_page(Server(url), started)
    try:
        address = serve_page(page, host, port)
    except OSError as error:
        raise MmspecError(f"--port {port}: cannot be listened on ({error}); choose another") from None
    print(f"page:   {address}", flush=True)
    _watch(started)


def _watch(started: "Started | None") -> None:
    """Stays until it is told to end; says when the server is ready, and when it dies.

    Raises:
        MmspecError: the server ended before it was ready.
    """
    begun, ready, told = time.monotonic(), started is None, False
    while True:
        time.sleep(_LOOK)
        if started is None or told:
            continue
        try:
            started.require_alive()
        except MmspecError as end:
            if not ready:
                raise
            print(f"mmspec: {end}", file=sys.stderr, flush=True)
            told = True
            continue
        if not ready and started.answers():
            print(f"server: ready at {started.url} after {time.monotonic() - begun:.0f} s", flush=True)
            ready = True


def _end(signal_number: int, frame: Any) -> NoReturn:
    raise SystemExit(0)
