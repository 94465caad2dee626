"""What unit tests share."""

import pytest


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what vLLM says of the line of `mmspec serve`: the checkpoint is none."""
    monkeypatch.setattr("mmspec.cli.serve.require_servable", lambda *arguments, **options: None)
