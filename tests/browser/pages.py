"""What a person does with the page."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "demo" / "examples"
DOLPHIN = EXAMPLES / "01-dolphin.png"
SCREENSHOTS = os.environ.get("MMSPEC_SCREENSHOTS")  # a folder; without it none are made

_PASTE = """async ([selector, name, type, base64]) => {
  const bytes = Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
  const clipboard = new DataTransfer();
  clipboard.items.add(new File([bytes], name, {type}));
  const box = document.querySelector(selector);
  box.focus();
  const event = new ClipboardEvent('paste', {clipboardData: clipboard, bubbles: true, cancelable: true});
  box.dispatchEvent(event);
}"""
_DROP = _PASTE.replace("box.focus();", "").replace(
    "new ClipboardEvent('paste', {clipboardData: clipboard,",
    "new DragEvent('drop', {dataTransfer: clipboard,",
)


def add(page: Any, files: Sequence[Path]) -> None:
    """Uploads pictures into the box, and waits until they are there."""
    there = thumbnails(page).count()
    page.locator("#box input[type=file]").set_input_files([str(file) for file in files])
    thumbnails(page).nth(there + len(files) - 1).wait_for()


def hand_over(page: Any, how: str, file: Path) -> None:
    """Pastes a picture into the box, or drops it there."""
    from base64 import b64encode

    there = thumbnails(page).count()
    script = _PASTE if how == "paste" else _DROP
    page.evaluate(script, ["#box textarea", file.name, "image/png", b64encode(file.read_bytes()).decode()])
    thumbnails(page).nth(there).wait_for()


def thumbnails(page: Any) -> Any:
    return page.locator("#box .thumbnail-item")


def ask(page: Any, question: str, files: Sequence[Path] = ()) -> None:
    """Asks, and does not wait for the answer."""
    if files:
        add(page, files)
    page.locator("#box textarea").fill(question)
    page.locator("#box textarea").press("Enter")


def answered(page: Any, count: int = 1) -> str:
    """Waits until so many answers are complete; the text of the last."""
    page.locator("#chat .bot.message").nth(count - 1).wait_for()
    page.locator("#box .submit-button").wait_for()
    return answer(page)


def answer(page: Any) -> str:
    """The text of the last answer so far."""
    text: str = page.locator("#chat .bot.message").last.inner_text()
    return text.strip()


def line(page: Any) -> str:
    """The live line."""
    return " ".join(page.locator("#live").inner_text().split())


def set_slider(page: Any, name: str, value: float) -> None:
    """A slider of the settings, by the id of its component."""
    box = page.locator(f"#{name} input[type=number]")
    if not box.is_visible():
        page.get_by_role("button", name="Settings").click()
    box.fill(str(value))
    box.press("Tab")


def shoot(page: Any, name: str, part: str | None = None) -> None:
    """Pictures of the page, or of a part of it, light and dark, for the documentation."""
    if SCREENSHOTS is None:
        return
    from PIL import Image

    for theme in ("light", "dark"):
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
        page.wait_for_timeout(500)
        shown = page.locator(part) if part else page
        picture = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
        # A palette makes them a third of the size, and text stays sharp.
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        picture.quantize(128).save(Path(SCREENSHOTS) / f"{name}-{theme}.png", optimize=True)
    page.evaluate("document.body.classList.remove('dark')")
