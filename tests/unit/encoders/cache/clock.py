"""Time that a test moves, and what was said meanwhile."""

import pytest


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.name.startswith("mmspec.encoders.cache")
    ]
