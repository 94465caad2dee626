"""One engine with the feature cache, through what happens to it while it serves: every answer stays right."""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from PIL.Image import frombytes
from safetensors.torch import load_file, save_file

from mmspec.encoders.cache import FolderTier
from tests.conftest import Checkpoints
from tests.engine.feature_cache import (
    QUESTION,
    CachingEngine,
    Starting,
    answer_of,
    caching_engine,
    large_picture,
    prompt_of,
)
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY = "qwen2_5_vl"
Expected = Callable[..., list[int]]


@pytest.fixture
def expected(oracles: Callable[[str], Oracle]) -> Expected:
    """What a plain transformers loop answers about pictures."""

    return lambda *pictures: answer_of(oracles(FAMILY), *pictures)


@pytest.fixture
def engine(vllm_engine: Starting, tiny: Checkpoints, tmp_path: Path) -> Iterator[CachingEngine]:
    options = {"directory": str(tmp_path / "disk"), "memory_size": "4MiB"}
    with caching_engine(vllm_engine, tiny[FAMILY], options) as started:
        yield started


@pytest.fixture(scope="module")
def other_tower(tiny: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model but for one weight of its vision tower."""
    folder = tmp_path_factory.mktemp("other") / "tower"
    shutil.copytree(tiny[FAMILY], folder)
    weights = load_file(folder / "model.safetensors")
    (name,) = [name for name in weights if name.endswith("visual.merger.ln_q.weight")]
    weights[name] *= -3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def entries(folder: Path) -> set[str]:
    return {path.name for path in (folder / "entries").iterdir()}


def test_an_engine_through_its_life(
    engine: CachingEngine, expected: Expected, other_tower: Path, tmp_path: Path
) -> None:
    """Steps of one test, since an engine takes long to start; each begins with vLLM's own cache full of another."""
    disk = tmp_path / "disk"
    # vLLM would have encoded a picture of the largest size at the start, to measure these.
    assert not engine.core.vllm_config.ec_transfer_config.mm_encoder_output_widths
    _what_was_driven_out_is_loaded(engine, expected)
    _the_same_picture_at_once_is_encoded_once(engine, expected)
    _two_shapes_of_the_same_bytes_are_two_pictures(engine, expected)
    _ids_of_users_stay_in_host_memory(engine, expected, disk)
    _a_salt_keeps_requests_apart(engine, expected)
    _aborted_loads_leave_nothing(engine, expected, disk)
    _an_aborted_search_leaves_nothing(engine, expected, disk)
    _a_picture_that_no_cache_of_the_device_holds_is_refused_alone(engine, expected, disk)
    _requests_bring_no_features(engine)
    _sleeping_and_waking_up_changes_nothing(engine, expected)
    _a_lost_folder_costs_only_the_cache(engine, expected, disk)
    _features_of_old_weights_are_not_served(engine, expected)
    _reloaded_weights_make_features_of_their_own(engine, expected, other_tower)


def _what_was_driven_out_is_loaded(engine: CachingEngine, expected: Expected) -> None:
    pictures = [large_picture(number) for number in range(3)]
    for picture in pictures:
        assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 3
    engine.settle()
    for picture in pictures:
        assert engine.ask(prompt_of(picture)) == [expected(picture)]
        assert engine.reports == [{"hits": 1, "misses": 0, "tier": "host"}]
    assert engine.encoded() == 0


def _the_same_picture_at_once_is_encoded_once(engine: CachingEngine, expected: Expected) -> None:
    picture, other = large_picture(10), large_picture(0)
    twice = prompt_of(picture, picture)
    assert engine.ask(twice, prompt_of(picture)) == [expected(picture, picture), expected(picture)]
    assert engine.encoded() == 1
    engine.settle()
    engine.ask(prompt_of(other))
    assert engine.ask(twice, prompt_of(picture)) == [expected(picture, picture), expected(picture)]
    assert engine.encoded() == 0


def _two_shapes_of_the_same_bytes_are_two_pictures(engine: CachingEngine, expected: Expected) -> None:
    pixels = bytes(range(250)) * 54
    shapes = [frombytes("RGB", size, pixels) for size in ((30, 150), (150, 30))]
    for _ in range(2):
        assert engine.ask(*map(prompt_of, shapes)) == [expected(shape) for shape in shapes]
    assert engine.encoded() == 2


def _ids_of_users_stay_in_host_memory(engine: CachingEngine, expected: Expected, disk: Path) -> None:
    picture, another = large_picture(1), large_picture(2)
    known = next(iter(entries(disk))).partition(".")[0]
    before = entries(disk)
    for user_id in ("../../../etc/passwd", "/etc/passwd", "with\0NUL", "x" * 10_000, known):
        assert engine.ask(prompt_of(picture, ids=[user_id])) == [expected(picture)]
        assert engine.encoded() == 1
        engine.settle()
        engine.ask(prompt_of(another))
        assert engine.encoded() == 0
        assert engine.ask(prompt_of(picture, ids=[user_id])) == [expected(picture)]
        assert engine.encoded() == 0 and engine.reports[0]["tier"] == "host"
    assert entries(disk) == before


def _a_salt_keeps_requests_apart(engine: CachingEngine, expected: Expected) -> None:
    picture, other = large_picture(0), large_picture(1)
    engine.ask(prompt_of(other))
    assert engine.encoded() == 0
    assert engine.ask(prompt_of(picture, salt="a tenant")) == [expected(picture)]
    assert engine.encoded() == 1
    engine.settle()
    engine.ask(prompt_of(other))
    assert engine.ask(prompt_of(picture, salt="a tenant")) == [expected(picture)]
    assert engine.encoded() == 0


def _aborted_loads_leave_nothing(engine: CachingEngine, expected: Expected, disk: Path) -> None:
    llm = engine.llm.llm_engine
    for steps in range(4):
        engine.ask(prompt_of(large_picture(1)))
        llm.add_request(f"aborted-{steps}", prompt_of(large_picture(0)), engine.sampling)
        for _ in range(steps):
            llm.step()
        llm.abort_request([f"aborted-{steps}"])
        assert engine.ask(prompt_of(large_picture(0))) == [expected(large_picture(0))]
    assert engine.encoded() == 0
    connector = engine.core.scheduler.ec_connector
    _nothing_is_held(connector, disk)


def _an_aborted_search_leaves_nothing(engine: CachingEngine, expected: Expected, disk: Path) -> None:
    """The request is given up while a thread reads its picture for it."""
    llm, connector = engine.llm.llm_engine, engine.core.scheduler.ec_connector
    lookups, hold = connector._scheduler._lookups, connector._store.hold
    reading, go_on = Event(), Event()

    def slow_hold(*arguments: Any, **keywords: Any) -> Any:
        reading.set()
        assert go_on.wait(60)
        return hold(*arguments, **keywords)

    engine.ask(prompt_of(large_picture(1)))
    with patch.object(connector._store, "hold", slow_hold):
        llm.add_request("given up", prompt_of(large_picture(0)), engine.sampling)
        llm.step()
        assert reading.wait(60) and lookups._lookups
        llm.abort_request(["given up"])
        assert not lookups._lookups
        go_on.set()
    assert engine.ask(prompt_of(large_picture(0))) == [expected(large_picture(0))]
    assert engine.encoded() == 0
    _nothing_is_held(connector, disk)


def _nothing_is_held(connector: Any, disk: Path) -> None:
    """Threads let go of what was held."""
    end = time.monotonic() + 10
    while list((disk / "held").iterdir()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not connector._scheduler._held and not connector._scheduler._lookups._lookups
    assert not list((disk / "held").iterdir())


def _a_picture_that_no_cache_of_the_device_holds_is_refused_alone(
    engine: CachingEngine, expected: Expected, disk: Path
) -> None:
    """One that its request lets be larger than the largest that vLLM made room for."""
    from vllm.exceptions import VLLMValidationError

    picture, before = large_picture(3).resize((448, 448)), entries(disk)
    too_large = prompt_of(picture) | {"mm_processor_kwargs": {"max_pixels": 448 * 448}}
    for _ in range(2):
        with pytest.raises(VLLMValidationError, match="exceeds the pre-allocated encoder cache size 64"):
            engine.ask(too_large)
        assert engine.encoded() == 0
    assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 1
    engine.settle()
    engine.ask(prompt_of(large_picture(0)))
    assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 0 and len(entries(disk) - before) == 1


def _requests_bring_no_features(engine: CachingEngine) -> None:
    """vLLM lets every engine that loads from a connector be sent features, unless it is told not to."""
    import torch

    with pytest.raises(ValueError, match="enable-mm-embeds"):
        engine.ask({"prompt": QUESTION.format(""), "multi_modal_data": {"image": torch.zeros(1, 4, 64)}})


def _sleeping_and_waking_up_changes_nothing(engine: CachingEngine, expected: Expected) -> None:
    """vLLM empties its own cache then; on a CPU the weights stay where they are."""
    picture = large_picture(0)
    for level in (0, 1):
        engine.llm.sleep(level=level)
        engine.llm.wake_up(["scheduling"] if level == 0 else None)
        assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 0 and engine.reports[0]["tier"] == "host"


def _a_lost_folder_costs_only_the_cache(engine: CachingEngine, expected: Expected, disk: Path) -> None:
    shutil.rmtree(disk)
    disk.write_text("a file where the folder was")
    picture = large_picture(11)
    assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 1
    engine.settle()
    engine.ask(prompt_of(large_picture(0)))
    assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 0 and engine.reports[0]["tier"] == "host"


def _features_of_old_weights_are_not_served(engine: CachingEngine, expected: Expected) -> None:
    picture = large_picture(0)
    engine.llm.apply_model(_change_tower)
    changed = engine.ask(prompt_of(picture))
    assert engine.encoded() == 1
    engine.llm.apply_model(_change_tower_back)
    assert engine.ask(prompt_of(picture)) == [expected(picture)] != changed
    assert engine.encoded() == 1
    engine.settle()
    engine.ask(prompt_of(large_picture(1)))
    engine.encoded()
    # vLLM's CPU build packs weights away, so nothing tells the new ones from others: they stay in host memory.
    assert engine.ask(prompt_of(picture)) == [expected(picture)]
    assert engine.encoded() == 0 and engine.reports[0]["tier"] == "host"


def _reloaded_weights_make_features_of_their_own(
    engine: CachingEngine, expected: Expected, other_tower: Path
) -> None:
    """As training does it: the engine sleeps, its weights are thrown away, and others are loaded into it."""
    picture, other = large_picture(0), Oracle(other_tower)
    for folder, right in ((other_tower, answer_of(other, picture)), (None, expected(picture))):
        engine.llm.sleep(level=2)
        engine.llm.wake_up()
        path = str(folder) if folder else engine.model
        engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        assert engine.ask(prompt_of(picture)) == [right]
        assert engine.encoded() == 1, "features of other weights were served"
        engine.settle()


def _change_tower(model: object) -> None:
    for parameter in model.visual.merger.ln_q.parameters():  # type: ignore[attr-defined]
        parameter.data.mul_(-3)


def _change_tower_back(model: object) -> None:
    for parameter in model.visual.merger.ln_q.parameters():  # type: ignore[attr-defined]
        parameter.data.div_(-3)


def test_damaged_entries_are_made_again(
    vllm_engine: Starting, tiny: Checkpoints, expected: Expected, other_tower: Path, tmp_path: Path
) -> None:
    """With vLLM's caches of pictures off, which makes vLLM give them made-up ids, the same ones in every start."""
    pictures = [large_picture(number) for number in range(4)]
    prompts = [prompt_of(picture) for picture in pictures]
    right = [expected(picture) for picture in pictures]
    options, uncached = {"directory": str(tmp_path)}, {"mm_processor_cache_gb": 0}
    with caching_engine(vllm_engine, tiny[FAMILY], options, **uncached) as engine:
        assert engine.ask(*prompts) == right and engine.encoded() == 4

    files = sorted((tmp_path / "entries").iterdir())
    flipped = bytearray(files[0].read_bytes())
    flipped[-100] ^= 1
    files[0].write_bytes(flipped)
    files[1].write_bytes(files[1].read_bytes()[:-64])
    files[2].unlink()
    _put_an_older_index_in(tmp_path)
    with caching_engine(vllm_engine, tiny[FAMILY], options, **uncached) as engine:
        assert engine.ask(*prompts) == right and engine.encoded() == 3
    assert len(FolderTier(tmp_path, 1 << 40).records()) == 4
    assert not FolderTier(tmp_path, 1 << 40).verify().dropped

    with caching_engine(vllm_engine, other_tower, options) as engine:
        assert engine.ask(prompts[0]) == [answer_of(Oracle(other_tower), pictures[0])] != [right[0]]
        assert engine.encoded() == 1


def _put_an_older_index_in(folder: Path) -> None:
    for file in folder.glob("index.sqlite*"):
        file.unlink()
    with closing(sqlite3.connect(folder / "index.sqlite")) as db, db:
        db.execute("CREATE TABLE features (hash TEXT, path TEXT)")
