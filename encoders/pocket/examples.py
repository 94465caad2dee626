"""The example pictures of the demo, drawn from fixed seeds: `python -m mmspec.encoders.pocket.examples FOLDER`."""

import json
import sys
from pathlib import Path

from mmspec.encoders.pocket.questions import CAPTION_REQUESTS, ask_one, caption
from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, make_scene

_FIRST_SEED = 2 * HELD_OUT_SEED  # neither trained on nor used for scores
_SCALE = 2
# Which scene, and what is asked about it: a kind of question, or "caption".
_EXAMPLES = (
    (19, "caption"),
    (6, "count"),
    (24, "what_at"),
    (36, "position"),
    (0, "total"),
    (43, "relation"),
    (26, "presence"),
    (29, "background"),
    (5, "caption"),
    (37, "what_at"),
    (48, "count"),
    (56, "position"),
)


def draw_examples(folder: Path) -> None:
    """Writes the pictures (PNG, 392 pixels a side) and examples.json, with questions and right answers."""
    import random

    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, (index, kind) in enumerate(_EXAMPLES, start=1):
        scene = make_scene(_FIRST_SEED + index)
        name = f"{number:02d}-{scene.things[0].kind.name}.png"
        scene.draw(_SCALE).save(folder / name, optimize=True)
        entry = {"image": name, "seed": scene.seed, "kind": kind}
        if kind == "caption":
            entry |= {"question": CAPTION_REQUESTS[0], "answer": caption(scene)}
        else:
            question = ask_one(kind, scene, random.Random(scene.seed))
            if question is None:
                raise ValueError(f"scene {index} does not allow a question of kind {kind}")
            entry |= {"question": question.text, "answer": question.answer}
        entries.append(entry)
    (folder / "examples.json").write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    draw_examples(Path(sys.argv[1]))
