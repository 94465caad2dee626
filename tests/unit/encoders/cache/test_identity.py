"""Names of pictures: what came from a user is never taken for the hash of a content."""

import pytest

from mmspec.encoders.cache.identity import by_content, by_id, given_features, identifier_of, parse

HASH = "0123456789abcdef" * 4


def test_content_and_ids_are_told_apart() -> None:
    assert parse(identifier_of(by_content(HASH))) == ("content", HASH)
    kind, _ = parse(identifier_of(by_id(HASH))) or ("", "")
    assert kind == "id"
    assert parse(identifier_of(given_features(HASH))) is None


@pytest.mark.parametrize(
    "sent",
    [
        HASH,
        f"mmspec:content:{HASH}",
        f"mmspec:id:{HASH}",
        "../../etc/passwd",
        "with\0NUL",
        "\ud800",
        "x" * 10_000,
        "",
    ],
)
def test_whatever_is_sent_as_a_name_is_an_id(sent: str) -> None:
    identifier = identifier_of(sent)
    named = parse(identifier)

    assert named is not None and named[0] == "id"
    assert len(identifier) < 100 and identifier.isprintable()
    assert identifier_of(sent) == identifier != identifier_of(sent + "?")


def test_what_an_adapter_changes_is_not_kept() -> None:
    """vLLM puts the adapter's name in front where it reaches the vision tower."""
    assert parse(f"adapter:{identifier_of(by_content(HASH))}") is None
