"""What a user may ask for, and how a mistake is answered."""

import sys

import pytest

from mmspec import DraftConfig, EncoderCacheConfig, FastVConfig, MmspecConfig, MmspecError
from mmspec.encoders.fastv.settings import engine_settings


def test_a_method_name_is_enough() -> None:
    config = MmspecConfig.parse({"draft": "ngram"})

    assert config.draft == DraftConfig(method="ngram")


def test_what_is_written_is_what_is_parsed() -> None:
    config = MmspecConfig(draft=DraftConfig(method="eagle3", model="/head", num_speculative_tokens=3))

    assert config.to_options() == {
        "draft": {"method": "eagle3", "model": "/head", "num_speculative_tokens": 3}
    }
    assert MmspecConfig.parse(config.to_options()) == config


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"drfat": "ngram"}, "unknown option 'drfat'; did you mean 'draft'?"),
        ({"draft": {"metod": "ngram"}}, "draft: unknown option 'metod'; did you mean 'method'?"),
        ({"zzz": 1}, "known options: draft, encoder_cache, fastv, intake"),
        (
            {"draft": "ngrm"},
            "draft.method: unknown value 'ngrm'; choose none, ngram, suffix, draft_model or eagle3",
        ),
        ({"draft": {"num_speculative_tokens": 0}}, "draft.num_speculative_tokens: 0 is not accepted"),
        (
            {"draft": {"num_speculative_tokens": "many"}},
            "draft.num_speculative_tokens: 'many' is not accepted",
        ),
        ({"draft": {"prompt_lookup_min": 9}}, "give a smaller prompt_lookup_min"),
        ({"draft": 5}, "mmspec.draft: 5 is not accepted"),
        ({"fastv": {"keep": 3}}, "fastv.keep: 3 is not accepted"),
        ({"fastv": {"keep": 0}}, "fastv.keep: 0 is not accepted"),
        ({"fastv": {"keep": "half"}}, "fastv.keep: 'half' is not accepted"),
        ({"fastv": {"keep": float("nan")}}, "fastv.keep: nan is not accepted"),
        ({"fastv": {"layer": 0}}, "fastv.layer: 0 is not accepted"),
        ({"fastv": {"keep_tokens": 0}}, "fastv.keep_tokens: 0 is not accepted"),
        ({"fastv": {"keep": 0.5, "keep_tokens": 9}}, "keep and keep_tokens are both given"),
        ({"fastv": {"scores": "lst"}}, "fastv.scores: unknown criterion 'lst'; did you mean 'last'?"),
        ({"encoder_cache": {"disk_size": "20"}}, "encoder_cache.disk_size: "),
        ({"encoder_cache": {"memory_size": "lots"}}, "encoder_cache.memory_size: "),
        ({"encoder_cache": {"remote_ttl": "7 weeks"}}, "encoder_cache.remote_ttl: "),
        (
            {"encoder_cache": {"memory_size": "1GB", "remote": "http://host"}},
            "encoder_cache.remote: expected an address like redis://host:6379",
        ),
        ({"encoder_cache": {"remote": "redis://host"}}, "give memory_size or directory"),
        (
            {"encoder_cache": {"role": "writer"}},
            "encoder_cache.role: unknown value 'writer'; choose both, producer or consumer",
        ),
        ({1: 2}, "unknown option '1'"),
        (["draft"], "expected a mapping"),
        ("ngram", "expected a mapping"),
        (None, "expected a mapping"),
    ],
)
def test_a_mistake_is_answered_with_one_line(options: object, named: str) -> None:
    with pytest.raises(MmspecError) as caught:
        MmspecConfig.parse(options)

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_in_python_are_answered_in_the_same_way() -> None:
    with pytest.raises(MmspecError, match="did you mean 'num_speculative_tokens'"):
        DraftConfig(num_speculative_token=3)  # type: ignore[call-arg]


def test_the_cache_keeps_what_was_asked_for() -> None:
    config = MmspecConfig.parse({"encoder_cache": {"memory_size": "2GiB", "remote": "redis://host"}})

    assert config.encoder_cache == EncoderCacheConfig(memory_size="2GiB", remote="redis://host")
    assert config.to_options() == {"encoder_cache": {"memory_size": "2GiB", "remote": "redis://host"}}
    assert MmspecConfig.parse({"encoder_cache": {}}).to_options() == {"encoder_cache": {}}


def test_a_remote_tier_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with the options, as `vllm serve` and `LLM` are given them, and not by an engine that is under way."""
    monkeypatch.setitem(sys.modules, "redis", None)
    remote = {"memory_size": "2GiB", "remote": "redis://host"}

    for wrong in (
        lambda: EncoderCacheConfig(**remote),
        lambda: MmspecConfig.parse({"encoder_cache": remote}),
    ):
        with pytest.raises(MmspecError, match=r"^encoder_cache.remote: .* missing; pip install redis"):
            wrong()
    assert EncoderCacheConfig(memory_size="2GiB").remote is None


def test_pruning_comes_back_from_its_options_with_its_defaults() -> None:
    config = MmspecConfig(fastv=FastVConfig(keep=0.25))

    assert config.to_options() == {"fastv": {"keep": 0.25}}
    assert engine_settings({"mmspec": config.to_options()}) == FastVConfig(keep=0.25).settings()
    assert engine_settings({"mmspec": {"fastv": {}}}) == FastVConfig().settings()
    assert engine_settings({"mmspec": {}}) is engine_settings({}) is None


@pytest.mark.parametrize("model", [MmspecConfig, DraftConfig, EncoderCacheConfig, FastVConfig])
def test_every_option_describes_itself(model: type[MmspecConfig]) -> None:
    assert all(field.description for field in model.model_fields.values())
