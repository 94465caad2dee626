"""The page's components and where they stand."""

import json
from pathlib import Path
from typing import Any

import gradio as gr

from mmspec.demo.comparison import progress
from mmspec.demo.figures import as_line
from mmspec.demo.server import Offer
from mmspec.demo.token_view import no_tokens

EXAMPLES = Path(__file__).parent / "examples"

_DARK = "() => { document.body.classList.toggle('dark'); }"


class Layout:
    """Made inside a `gr.Blocks` that is open."""

    def __init__(self) -> None:
        with gr.Row():
            self.banner = gr.HTML(as_line([("", "Connecting …")]), elem_id="banner")
            dark = gr.Button("Dark / light", size="sm", scale=0, min_width=120, elem_id="dark")
        dark.click(None, js=_DARK)
        with gr.Row():
            with gr.Column(scale=3, min_width=420):
                self._conversation()
            with gr.Column(scale=2, min_width=360):
                self._views()
                self._settings()

    def _conversation(self) -> None:
        self.turns = gr.State([])  # what `chat` shows
        self.chat = gr.Chatbot(
            elem_id="chat",
            height="60vh",
            editable="user",
            buttons=["copy", "copy_all"],
            show_label=False,
            # Gradio 6.31 cannot edit a bubble that holds pictures and text.
            group_consecutive_messages=False,
            placeholder="Ask about a picture.",
        )
        self.live = gr.HTML(as_line([("", "no answer yet")]), elem_id="live")
        self.box = gr.MultimodalTextbox(
            elem_id="box",
            file_types=["image"],
            file_count="multiple",
            show_label=False,
            autofocus=True,
            placeholder="A question; add pictures with the clip, by dragging, or by pasting.",
            max_lines=6,
        )
        gr.Examples(_examples(), [self.box], label="Examples", examples_per_page=4, elem_id="examples")

    def _settings(self) -> None:
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            self.system = gr.Textbox(label="System prompt", lines=2, elem_id="system")
            self.temperature = gr.Slider(0, 2, 0, step=0.05, label="Temperature (0: greedy)")
            self.top_p = gr.Slider(0.05, 1, 1, step=0.05, label="Top p")
            self.max_tokens = gr.Slider(
                1, 2048, 256, step=1, label="Longest answer, in tokens", elem_id="max-tokens"
            )
            self.seed = gr.Textbox(label="Seed", placeholder="empty: another each time")
            self.keep = gr.Slider(
                0.05,
                1,
                1,
                step=0.05,
                label="Share of the visual tokens to keep (FastV)",
                info="1: no pruning. Less is faster behind a long prompt, and changes answers.",
                visible=False,
                elem_id="keep",
            )

    def _views(self) -> None:
        with gr.Tabs(elem_id="views"):
            with gr.Tab("Tokens"):
                self.tokens = gr.HTML(no_tokens(Offer("", statistics=True)), elem_id="tokens")
            with gr.Tab("Compare"):
                self.compare = gr.Button(
                    "Ask the last question again, with drafting off and on", elem_id="compare"
                )
                self.comparison = gr.HTML(progress("Both answers are greedy."), elem_id="comparison")
            with gr.Tab("Pruning"):
                self.kept_note = gr.HTML(progress("No answer yet."), elem_id="kept-note")
                self.kept = gr.Image(
                    elem_id="kept", interactive=False, show_label=False, format="png", height=360
                )

    @property
    def settings(self) -> list[Any]:
        """What a question depends on: the system prompt, and then what makes a `Sampling`."""
        return [self.system, self.temperature, self.top_p, self.max_tokens, self.seed, self.keep]

    def adapted_to(self, offer: Offer) -> dict[Any, Any]:
        """What changes when it is known what the server offers."""
        drafts = offer.draft is not None
        figures = [("model", offer.model)]
        if offer.statistics:
            figures.append(("drafting", offer.draft or "off"))
            figures.append(("pruning", "off" if offer.keep is None else "as each question asks"))
        else:
            figures.append(("", "a server without mmspec: no statistics, comparison or pruning"))
        return {
            self.banner: as_line(figures),
            self.tokens: no_tokens(offer),
            self.keep: gr.Slider(visible=offer.keep is not None, value=offer.keep or 1),
            self.compare: gr.Button(interactive=drafts),
            self.comparison: progress(
                "Both answers are greedy."
                if drafts
                else "This server does not draft: there is nothing to compare."
            ),
            self.kept_note: progress(
                "Lower the share of visual tokens in the settings, and ask about a picture."
                if offer.keep is not None
                else "This server does not prune; start one with mmspec serve --fastv-keep 1.0."
            ),
        }

    def busy_box(self, *, empty: bool) -> Any:
        """The box while an answer comes in: a button to stop in the place of the one to send."""
        value: dict[str, Any] = {"value": {"text": "", "files": []}} if empty else {}
        return gr.MultimodalTextbox(submit_btn=False, stop_btn=True, **value)

    def ready_box(self) -> Any:
        return gr.MultimodalTextbox(submit_btn=True, stop_btn=False)


def _examples() -> list[list[dict[str, Any]]]:
    """A question about each example picture."""
    listed = json.loads((EXAMPLES / "examples.json").read_text(encoding="utf-8"))
    return [[{"text": one["question"], "files": [str(EXAMPLES / one["image"])]}] for one in listed]
