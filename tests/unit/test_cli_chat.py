"""What `mmspec chat` writes around an answer; tests/serve has the answers."""

import subprocess
import sys

# Everything but the engine, whose answer ends in the middle of a line.
WITHOUT_ENGINE = """
from types import SimpleNamespace as Fake
from mmspec.cli import chat
from mmspec.cli.main import main

def start(terminal, draft, engine):
    with terminal.progress("Starting the engine ..."):
        return Fake(close=lambda: None)

chat._start = start
chat._stream = lambda *arguments: [Fake(outputs=[Fake(text="cut", token_ids=[1])])]
main(["chat", "--model", "a/b", "--prompt", "x", "--max-tokens", "1", "--check"])
"""


def test_what_follows_an_answer_begins_on_a_line_of_its_own() -> None:
    """Both streams in one place, as on a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert lines[:3] == ["Starting the engine ...", "cut", "Starting the engine ..."]
