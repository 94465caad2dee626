"""The live line, the token view and the comparison: what they say, and that they say it safely."""

import re

import pytest

from mmspec.demo.answers import Answer
from mmspec.demo.comparison import Comparison, comparison_view
from mmspec.demo.figures import live_line
from mmspec.demo.kept import flags_of
from mmspec.demo.server import Offer
from mmspec.demo.token_view import no_tokens, token_view
from mmspec.stats import EncoderCacheStats, RequestStats, VisualTokenStats

OURS, PLAIN = Offer("m", statistics=True, draft="ngram", keep=1.0), Offer("m")
STATS = RequestStats(
    mean_acceptance_length=2.5,
    drafts=4,
    encoder_cache=EncoderCacheStats(1, 2, "disk"),
    visual_tokens=VisualTokenStats(49, 25),
).to_dict()


def shown(html: str) -> str:
    """The text of a piece of HTML."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_line_tells_what_is_known() -> None:
    answer = Answer("x", tokens=11, ttft=0.3124, seconds=2.0)

    assert shown(live_line(answer, OURS, done=False)) == "first token 312 ms tokens 11 tokens/s 5.0"
    answer.statistics = STATS
    assert shown(live_line(answer, OURS, done=True)).endswith(
        "acceptance length 2.50 pictures 1 cached (disk), 2 encoded visual tokens kept 25 of 49"
    )


def test_the_line_is_plain_about_what_is_not_known() -> None:
    assert shown(live_line(Answer(), OURS, done=False)) == "waiting for the first token …"
    assert "this server runs without mmspec" in live_line(Answer("x"), PLAIN, done=True)
    assert "1.00, nothing was drafted" in live_line(
        Answer(statistics=RequestStats().to_dict() | {"drafts": 0}), OURS, done=True
    )
    stopped = live_line(Answer("x", stopped=True), OURS, done=True)
    assert "no statistics of a stopped answer" in stopped and "stopped" in shown(stopped)


STEPS = [
    {"drafted": 0, "accepted": 0, "ids": [1], "texts": ["<b>"], "rejected": [], "rejected_text": ""},
    {
        "drafted": 3,
        "accepted": 1,
        "ids": [2, 3, 4],
        "texts": ["'x'", "", "ä"],
        "rejected": [8, 9],
        "rejected_text": " & no",
    },
]


def test_tokens_are_shown_by_their_origin_and_escaped() -> None:
    html = token_view(STEPS)

    found = re.findall(r"<span class='token (\w+)' title='([^']*)'>([^<]*)</span>", html)
    assert [(kind, text) for kind, _, text in found] == [
        ("target", "&lt;b&gt;"),
        ("drafted", "&#x27;x&#x27;"),
        ("rejected", " &amp; no"),
        ("target", "ä"),
    ]
    assert "step 2: 1 of 3 drafted accepted" in found[1][1]
    assert "4 tokens in 2 steps: 1 of 3 drafted tokens were accepted" in html
    assert all(text in html for text in ("drafted and accepted", "from the target itself", "drafted in vain"))


def test_a_server_that_tells_no_origins_is_told_from_one_that_was_not_asked_yet() -> None:
    assert "does not say" in no_tokens(PLAIN) and "does not say" not in no_tokens(OURS)


def run(text: str, speed: float | None, **stats: object) -> Answer:
    """A complete answer of so many tokens a second."""
    return Answer(
        text, tokens=11 if speed else 1, ttft=0.1, seconds=10 / (speed or 1), statistics=STATS | stats
    )


@pytest.mark.parametrize(
    ("plain", "drafted", "verdict"),
    [
        (10.0, 15.0, "Drafting is 1.50 times as fast here."),
        (10.0, 8.0, "Drafting is slower here: 0.80 times the speed without it."),
        (10.0, 10.2, "Drafting makes no difference here: 1.02 times the speed without it."),
        (None, 10.0, "The answers are too short to compare their speed."),
    ],
)
def test_the_verdict_is_honest(plain: float | None, drafted: float | None, verdict: str) -> None:
    comparison = Comparison(run("a", plain), run("a", drafted))

    assert comparison.verdict == verdict
    assert verdict in comparison_view(comparison)


def test_answers_that_differ_are_both_shown() -> None:
    same, other = (comparison_view(Comparison(run("<a>", 1.0), run(text, 1.0))) for text in ("<a>", "b"))

    assert "Both answers are the same" in same and same.count("<blockquote>") == 1
    assert "The answers differ" in other
    assert "<blockquote>&lt;a&gt;</blockquote><blockquote>b</blockquote>" in other


def test_kept_places_become_flags() -> None:
    assert flags_of({"seen": 4, "kept": [0, 3]}) == [True, False, False, True]
