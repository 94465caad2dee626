"""The same question without drafting and with it: which was faster, and whether the answers are the same."""

from dataclasses import dataclass
from html import escape

from mmspec.demo.answers import Answer
from mmspec.demo.figures import acceptance, milliseconds

# Below this, one run of each says nothing about which is faster.
_NOISE = 0.03


@dataclass(frozen=True)
class Comparison:
    """Two answers to one question, both complete."""

    plain: Answer
    drafted: Answer

    @property
    def same(self) -> bool:
        return self.plain.text == self.drafted.text

    @property
    def speed_up(self) -> float | None:
        """Of the tokens behind the first, which is where drafting can help; None where there are too few."""
        plain, drafted = self.plain.tokens_per_second, self.drafted.tokens_per_second
        return None if plain is None or drafted is None else drafted / plain

    @property
    def verdict(self) -> str:
        """One honest sentence."""
        ratio = self.speed_up
        if ratio is None:
            return "The answers are too short to compare their speed."
        if ratio > 1 + _NOISE:
            return f"Drafting is {ratio:.2f} times as fast here."
        if ratio < 1 - _NOISE:
            return f"Drafting is slower here: {ratio:.2f} times the speed without it."
        return f"Drafting makes no difference here: {ratio:.2f} times the speed without it."

    @property
    def agreement(self) -> str:
        if self.same:
            return "Both answers are the same, to the letter."
        return "The answers differ. With greedy decoding that happens where two tokens are nearly as likely."


def comparison_view(comparison: Comparison) -> str:
    """A table of both runs, the verdict, and both texts where they differ."""
    rows = [
        ("first token", *(_time(one.ttft) for one in _both(comparison))),
        ("tokens", *(str(one.tokens) for one in _both(comparison))),
        ("tokens/s behind the first", *(_speed(one.tokens_per_second) for one in _both(comparison))),
        ("acceptance length", *(_acceptance(one) for one in _both(comparison))),
    ]
    body = "".join(
        f"<tr><th>{name}</th><td>{plain}</td><td>{drafted}</td></tr>" for name, plain, drafted in rows
    )
    texts = [comparison.drafted] if comparison.same else _both(comparison)
    answers = "".join(f"<blockquote>{escape(one.text)}</blockquote>" for one in texts)
    return (
        f"<div class='comparison'><p class='verdict'>{escape(comparison.verdict)}</p>"
        f"<table><tr><th></th><th>drafting off</th><th>drafting on</th></tr>{body}</table>"
        f"<p class='agreement'>{escape(comparison.agreement)}</p>{answers}</div>"
    )


def progress(text: str) -> str:
    """What stands there while it lasts, or why there is nothing."""
    return f"<div class='comparison'><p class='progress'>{escape(text)}</p></div>"


def _both(comparison: Comparison) -> list[Answer]:
    return [comparison.plain, comparison.drafted]


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else milliseconds(seconds)


def _speed(speed: float | None) -> str:
    return "–" if speed is None else f"{speed:.1f}"


def _acceptance(answer: Answer) -> str:
    return "–" if answer.statistics is None else escape(acceptance(answer.statistics))
