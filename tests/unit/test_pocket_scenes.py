"""Scenes, questions and what counts as right."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageStat

from mmspec.encoders.pocket.kinds import COLOURS, KINDS
from mmspec.encoders.pocket.questions import QUESTION_KINDS, ask, ask_one, caption, objects_named
from mmspec.encoders.pocket.scenes import PICTURE_SIZE, make_scene
from mmspec.encoders.pocket.sprites import SHEET, SPRITE_SIZE, sprites

seeds = st.integers(min_value=0, max_value=3_000_000_000)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_a_seed_always_gives_the_same_scene_and_picture(seed: int) -> None:
    assert make_scene(seed) == make_scene(seed)
    assert make_scene(seed).draw().tobytes() == make_scene(seed).draw().tobytes()


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_objects_lie_in_the_zone_that_their_place_names(seed: int) -> None:
    for thing in make_scene(seed).things:
        assert (thing.y * 3 // PICTURE_SIZE, thing.x * 3 // PICTURE_SIZE) == (thing.row, thing.column)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_right_answers_are_right_and_other_scenes_answers_are_judged_by_their_key(seed: int) -> None:
    rng = random.Random(seed)
    for question in ask(make_scene(seed), rng):
        assert question.is_right(question.answer)
        rival = ask_one(question.kind, make_scene(seed + 1), rng)
        if rival is not None:
            assert question.is_right(rival.answer) == (rival.key == question.key)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("count", "There are one or two."), ("presence", "Yes and no."), ("background", "I cannot tell.")],
)
def test_answers_that_hedge_or_evade_are_wrong(kind: str, answer: str) -> None:
    question = ask_one(kind, make_scene(3), random.Random(0))
    assert question is not None
    assert not question.is_right(answer)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_the_caption_names_just_the_kinds_that_are_there(seed: int) -> None:
    scene = make_scene(seed)
    assert objects_named(caption(scene)) == {kind.name for kind in scene.counts}


def test_every_kind_of_question_is_asked_and_synonyms_count() -> None:
    asked = {q.kind for seed in range(50) for q in ask(make_scene(seed), random.Random(seed))}
    assert asked == set(QUESTION_KINDS)
    assert objects_named("two bunnies beside a bike") == {"rabbit", "bicycle"}


def test_every_kind_has_a_sprite_of_its_own() -> None:
    drawn = {sprite.tobytes() for sprite in sprites()}
    assert len(drawn) == len(KINDS) == len({kind.name for kind in KINDS})
    assert not {kind.name for kind in KINDS} & set(COLOURS)


def test_names_and_sprites_are_in_the_same_order() -> None:
    """A sheet with one object more than there are names once shifted every name behind it by one."""
    sheet = Image.open(SHEET).convert("RGBA")
    side = sheet.width // SPRITE_SIZE
    drawn = [
        sheet.crop((x, y, x + SPRITE_SIZE, y + SPRITE_SIZE)).getbbox() is not None
        for y in range(0, sheet.height, SPRITE_SIZE)
        for x in range(0, side * SPRITE_SIZE, SPRITE_SIZE)
    ]
    assert drawn == [True] * len(KINDS) + [False] * (len(drawn) - len(KINDS))
    channels = {
        "tomato": "red",
        "frog": "green",
        "crab": "red",
        "cactus": "green",
        "umbrella": "blue",
        "heart": "red",
    }
    for kind, sprite in zip(KINDS, sprites(), strict=True):
        if kind.name in channels:
            red, green, blue, _ = ImageStat.Stat(
                sprite, sprite.getchannel("A").point(lambda a: 255 * (a > 200))
            ).mean
            strongest = max((red, "red"), (green, "green"), (blue, "blue"))[1]
            assert strongest == channels[kind.name], kind.name
