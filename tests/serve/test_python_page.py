"""The examples of docs/python.md, as they stand there."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.serve.conftest import quiet_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_the_examples_run(tiny_vlm: Path, tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL
    )
    lines = "\n".join(blocks).replace('"pocket"', repr(str(tiny_vlm)))
    script = tmp_path / "page.py"
    # An indented line break in a string would be another string; the page has none.
    script.write_text('if __name__ == "__main__":\n' + indent(lines, "    "))

    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=quiet_environment(),
        timeout=1800,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    assert len(blocks) >= 7
    assert re.search(r"Processed prompts: +100%.* 12/12", done.stderr)  # vLLM's progress bar
    assert re.search(r"(\d+) of \1 visual tokens went on", said)
    assert "picture 2: transparent places filled with white" in said
    assert "picture 1: not a picture; give a PNG" in said
    kept = re.search(r"seen=(\d+), kept=\1\) VisualTokenStats\(seen=(\d+), kept=(\d+)\)", said)
    assert kept and int(kept[3]) == round(int(kept[2]) / 2)
