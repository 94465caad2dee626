"""Which requests a step prunes, from scheduler outputs made by hand."""

import torch

from mmspec.encoders.fastv.book import Book
from mmspec.encoders.fastv.settings import FastVSettings
from tests.unit.encoders.fastv.steps import new, output, place

PICTURE = (place(2, 8),)  # of ten tokens and a few words


def book(**settings: bool) -> Book:
    return Book(FastVSettings(**settings))


def test_a_whole_prompt_is_pruned_and_stays_so() -> None:
    one = book()

    step = one.begin(output({"a": 12}, (new("a", 12, PICTURE, fastv_keep=0.5),)))
    assert step is not None
    assert list(step.pruned) == ["a"]
    assert step.dropped == {"a": 4}

    later = one.begin(output({"a": 1}, computed={"a": 12}))
    assert later is not None
    assert (later.pruned, later.dropped) == ({}, {"a": 4})


def test_a_batch_without_pruned_requests_is_none_of_its_business() -> None:
    one = book()
    text, unasked = new("text", 5), new("unasked", 12, PICTURE)
    everything = new("everything", 12, PICTURE, fastv_keep=1.0)

    assert (
        one.begin(output({"text": 5, "unasked": 12, "everything": 12}, (text, unasked, everything))) is None
    )
    assert one.begin(output({"text": 1}, computed={"text": 5})) is None


def test_a_finished_request_leaves_nothing_behind() -> None:
    one = book()
    one.begin(output({"a": 12}, (new("a", 12, PICTURE, fastv_keep=0.5),)))

    assert one.begin(output({"b": 3}, (new("b", 3),), finished=("a",))) is None
    assert one.dropped("a") == 0


def test_a_prompt_that_is_cut_is_not_pruned_and_is_named() -> None:
    one = book()

    assert one.begin(output({"a": 11}, (new("a", 12, PICTURE, fastv_keep=0.5),))) is None
    assert one.begin(output({"a": 1}, computed={"a": 11})) is None
    assert one.cut == {"a"}


def test_a_preempted_request_is_pruned_again_with_what_it_has_said() -> None:
    """V1 resumes it as a known request, V2 as a new one; its answer so far follows the prompt."""
    v1, v2 = book(), book()
    request = new("a", 12, PICTURE, fastv_keep=0.25)
    for one in (v1, v2):
        one.begin(output({"a": 12}, (request,)))

    for step in (
        v1.begin(output({"a": 15}, computed={"a": 0})),
        v2.begin(output({"a": 15}, (request,))),
    ):
        assert step is not None
        assert list(step.pruned) == ["a"]
        assert step.dropped == {"a": 6}


def test_a_preempted_request_that_comes_back_in_pieces_is_unpruned() -> None:
    one = book()
    one.begin(output({"a": 12}, (new("a", 12, PICTURE, fastv_keep=0.5),)))

    assert one.begin(output({"a": 10}, computed={"a": 0})) is None
    assert one.cut == {"a"}


def test_tokens_without_features_are_not_visual() -> None:
    """Pixtral, for one, has line breaks between the rows of a picture."""
    is_embed = torch.tensor([True, True, False, True, True, False])
    one = book()

    step = one.begin(output({"a": 9}, (new("a", 9, (place(1, 6, is_embed),), fastv_keep=0.5),)))

    assert step is not None
    assert step.pruned["a"].visual.tolist() == [1, 2, 4, 5]
    assert step.dropped == {"a": 2}


def test_the_share_holds_over_all_pictures_or_for_each() -> None:
    places = (place(1, 3), place(6, 5))
    request = new("a", 12, places, fastv_keep=0.5)

    over_all = book().begin(output({"a": 12}, (request,)))
    each = book(per_image=True).begin(output({"a": 12}, (request,)))

    assert over_all is not None and each is not None
    assert over_all.pruned["a"].quotas == [(8, 4)]
    assert each.pruned["a"].quotas == [(3, 2), (5, 3)]
