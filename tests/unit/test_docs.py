"""The documentation says what the code says."""

import json
import re
from pathlib import Path

import pytest

from mmspec.environment import SHIMS
from mmspec.patches import LEDGER, as_markdown

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "encoders/pocket/README.md",
    *(ROOT / "docs").glob("*.md"),
]


def test_the_page_of_shims_is_that_of_the_ledgers() -> None:
    page = (ROOT / "docs" / "shims.md").read_text()
    assert as_markdown() in page
    assert all(f"| `{shim.name}` | {shim.why} | {shim.until} |" in page for shim in SHIMS)
    ledgers = page.partition("## Environment variables")[0]
    assert len(re.findall(r"^\| `", ledgers, re.MULTILINE)) == len(SHIMS) + len(LEDGER)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_results_have_their_provenance() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert {"command", "revision", "versions", "machine"} <= json.loads(path.read_text())[
            "provenance"
        ].keys()
