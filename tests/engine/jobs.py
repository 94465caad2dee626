"""What a test asks of an engine, and what comes back: plain data that crosses a process boundary as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One prompt. `images` are names in `tests.pictures.PICTURES` or paths of picture files."""

    text: str
    images: tuple[str, ...] = ()
    keep: float | None = None  # `fastv_keep`
    draft: bool = True  # `mmspec_draft`
    tokens: bool = False  # wants the origin of its tokens: `mmspec_stats`


@dataclass
class Job:
    """One engine: it starts, answers all requests as one batch with greedy decoding, and is shut down."""

    model: str
    requests: list[Request]
    speculative: dict[str, Any] | None = None
    engine: dict[str, Any] = field(default_factory=dict)  # more vLLM arguments
    max_tokens: int = 24
    one_by_one: bool = False  # a call for each request instead of one batch
    batches: tuple[int, ...] = ()  # or calls with so many requests each
    lost_loads: int = (
        0  # of the features that the cache promises, how many are gone when they are to be loaded
    )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Answer:
    """One request's outcome. The two lists have an entry for each verification step that had a draft."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    drafted: list[int]
    accepted: list[int]
    kept: list[int] = field(default_factory=list)  # indices of the prompt's visual tokens that FastV kept
    encoder_cache: dict[str, Any] | None = None  # as our scheduler reports it
    steps: list[list[int]] | None = None  # likewise: where the tokens came from


@dataclass
class Outcome:
    """A job's outcome; `error` is the exception's type and message when the engine refused or failed.

    Attributes:
        encoded: pictures that went through the vision tower.
        tail_runs: steps that pruned and ran the layers behind K compiled.
    """

    runner: str
    answers: list[Answer] = field(default_factory=list)
    error: str | None = None
    compiled: bool = False  # the decoder ran as vLLM compiled it
    encoded: int = 0
    tail_runs: int = 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Outcome":
        return cls(**(data | {"answers": [Answer(**answer) for answer in data["answers"]]}))

    @property
    def tokens(self) -> list[list[int]]:
        """Token ids of every answer, or the engine's error raised."""
        if self.error:
            raise RuntimeError(self.error)
        return [answer.token_ids for answer in self.answers]
