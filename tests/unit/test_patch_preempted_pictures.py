"""What becomes of a picture whose request is preempted in the step that entered it, with vLLM's own books."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.patches.preempted_pictures import ENTERED_PICTURES, SETTLE_PREEMPTED

EMBEDS, ROOM = 5, 12


def request(name: str, *pictures: str) -> SimpleNamespace:
    """The fields of vLLM's `Request` that are read."""
    return SimpleNamespace(
        request_id=name,
        mm_features=[SimpleNamespace(identifier=picture) for picture in pictures],
        get_num_encoder_embeds=lambda index: EMBEDS,
    )


class Scheduler:
    """What the patches touch of vLLM's scheduler; `preempted` enters its picture and is preempted in the same step."""

    def __init__(self, *others: SimpleNamespace) -> None:
        from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

        self.vllm_config = SimpleNamespace(additional_config={"mmspec": {}})
        self.ec_connector = None
        self.encoder_cache_manager = EncoderCacheManager(ROOM)
        self.requests = {one.request_id: one for one in (request("preempted", "shared"), *others)}

    def _allocate_encoder_inputs(self, one: Any, inputs: list[int], duplicates: list[int]) -> None:
        for place in inputs:
            self.encoder_cache_manager.allocate(one, place)

    def _update_after_schedule(self, output: Any) -> None:
        output.updated = True

    enter = ENTERED_PICTURES.wrap(_allocate_encoder_inputs)
    update = SETTLE_PREEMPTED.wrap(_update_after_schedule)

    def step(self, *scheduled: str, counting: tuple[tuple[str, int], ...] = ()) -> dict[str, list[int]]:
        """One in which those of `counting` find the picture entered; returns who encodes what."""
        manager, preempted = self.encoder_cache_manager, self.requests["preempted"]
        self.enter(preempted, [0], [])
        for name, place in counting:
            assert manager.check_and_update_cache(self.requests[name], place)
        manager.free(preempted)
        output = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(scheduled, 1), scheduled_encoder_inputs={}, updated=False
        )
        self.update(output)
        assert output.updated
        return output.scheduled_encoder_inputs

    @property
    def room(self) -> tuple[int, int]:
        return self.encoder_cache_manager.num_free_slots, self.encoder_cache_manager.num_freeable_slots


def test_alone_it_is_struck_out() -> None:
    scheduler = Scheduler()

    assert scheduler.step() == {}
    assert scheduler.room == (ROOM, ROOM) and not scheduler.encoder_cache_manager.cached


def test_another_request_of_the_step_encodes_it() -> None:
    scheduler = Scheduler(request("twin", "other", "shared"))

    assert scheduler.step("twin", counting=(("twin", 1),)) == {"twin": [1]}
    assert scheduler.room == (ROOM - EMBEDS, ROOM - EMBEDS)


@pytest.mark.parametrize("owned", [False, True], ids=["nothing else", "another picture"])
def test_one_that_found_no_room_in_the_step_looks_for_it_again(owned: bool) -> None:
    """It counts on a picture that nobody encodes: taken for cached, it would end the engine in the next step."""
    twin = request("twin", "other", "shared")
    scheduler = Scheduler(twin)
    manager = scheduler.encoder_cache_manager
    if owned:
        manager.allocate(twin, 0)
    used = EMBEDS * owned

    assert scheduler.step(counting=(("twin", 1),)) == {}
    assert not manager.check_and_update_cache(twin, 1)
    assert scheduler.room == (ROOM - used, ROOM - used)
    assert manager.get_cached_input_ids(twin) == ({0} if owned else set())
    manager.free(twin)
    assert scheduler.room == (ROOM - used, ROOM)
