"""The image chat: layout and handlers put together, and served."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from mmspec.demo.handlers import Handlers
from mmspec.demo.layout import EXAMPLES, Layout
from mmspec.demo.server import Server
from mmspec.demo.started import Started

# The fonts of the machine that shows the page: nothing is fetched from elsewhere.
_THEME = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
_STYLE = Path(__file__).parent / "style.css"


def build_page(server: Server, started: Started | None = None) -> gr.Blocks:
    """The page over a server.

    Args:
        server: what is asked.
        started: its process, where the demo has started it.
    """
    with gr.Blocks(title="mmspec", analytics_enabled=False) as page:
        layout = Layout()
        handlers = Handlers(server, layout, started)
        _wire(page, layout, handlers)
    # Each question has a slot of the server's; the page holds none back.
    page.queue(default_concurrency_limit=None)
    return page


def serve_page(page: gr.Blocks, host: str, port: int | None) -> str:
    """Serves the page until this process ends; returns its address."""
    _, url, _ = page.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        show_error=True,
        ssr_mode=False,
        theme=_THEME,
        css_paths=[_STYLE],
        footer_links=[],
        allowed_paths=[str(EXAMPLES)],
    )
    return str(url)


def _wire(page: gr.Blocks, layout: Layout, handlers: Handlers) -> None:
    chat, settings = layout.chat, layout.settings
    answering = [chat, layout.turns, layout.live, layout.box, layout.tokens, layout.kept, layout.kept_note]
    quiet: dict[str, Any] = {"show_progress": "hidden"}
    layout.box.submit(handlers.ask, [layout.box, chat, *settings], answering, **quiet)
    chat.retry(handlers.retry, [chat, *settings], answering, **quiet)
    chat.edit(handlers.edit, [layout.turns, *settings], answering, **quiet)
    chat.undo(handlers.undo, [chat], [chat, layout.turns, layout.box, layout.live], **quiet)
    layout.compare.click(handlers.compare, [chat, *settings], [layout.comparison], **quiet)
    layout.box.stop(handlers.stop, None, None, queue=False, **quiet)
    chat.clear(handlers.clear, None, [layout.turns], queue=False, **quiet)
    adapted = [layout.banner, layout.tokens, layout.keep, layout.compare, layout.comparison, layout.kept_note]
    page.load(handlers.connect, None, adapted, **quiet)
    page.unload(handlers.stop)
