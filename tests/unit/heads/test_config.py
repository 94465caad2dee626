"""mmspec's key in a head's config.json."""

from typing import Any

import pytest

from mmspec.errors import MmspecError
from mmspec.heads.config import HeadConfig, without_settings


def test_a_head_without_the_key_is_what_stock_vllm_takes_it_for() -> None:
    assert HeadConfig.of({}) == HeadConfig(vision="text", positions="sequence", target_fingerprint=None)


def test_what_is_written_is_read_back() -> None:
    settings = HeadConfig(vision="global", positions="mrope", target_fingerprint="ab")
    config = {"draft_vocab_size": 3}

    written = settings.into(config)

    assert HeadConfig.of(written) == settings
    assert without_settings(written) == config == {"draft_vocab_size": 3}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"visoin": "text"}, "unknown key 'visoin'; did you mean 'vision'?"),
        ({"xyz": 1}, f"unknown key 'xyz'; known: {', '.join(HeadConfig.model_fields)}"),
        ({"vision": "blind"}, "vision is 'blind'; choose text, features or global"),
        ({"positions": "3d"}, "positions is '3d'; choose sequence or mrope"),
        ({"target_fingerprint": 5}, "target_fingerprint is 5"),
        ("text", "make it an object"),
    ],
)
def test_a_mistake_is_named_with_what_is_right(given: Any, named: str) -> None:
    with pytest.raises(MmspecError) as caught:
        HeadConfig.of({"mmspec": given}, "head h")

    assert named in str(caught.value)
    assert str(caught.value).startswith("head h: 'mmspec' in config.json")
    assert "\n" not in str(caught.value)
