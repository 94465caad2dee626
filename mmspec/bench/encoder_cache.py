"""What the vision-feature cache spares: time to the first token of a picture that was never seen, and of one that was.

The floor is the same engine with the picture's features handed in. Pictures and their features take turns in one
engine, so that a ratio compares neighbours in time.
"""

import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mmspec.bench.cache_engine import Answer, Ask, Job, run
from mmspec.server_process import free_port

_WARM_UP = 56  # pixels of a side; part of the pictures that are counted
Report = Callable[[str], None]


@dataclass
class CacheCost:
    """Times in milliseconds by the side of the pictures in pixels, medians over them.

    Attributes:
        cold: the first time ever.
        second_request: again in the same engine.
        new_process, second_engine: first time in an engine of a new process, with the disk tier; in another engine,
            with the remote tier alone. None where no Redis server is installed.
        new_process_over_floor, second_engine_over_floor: their medians over that of the floor, picture by picture.
        encoder_runs: pictures that went through the vision tower, in all engines together.
        different_pictures: how many there were.
        answers_equal: whether all engines said the same about each picture.
    """

    cold: dict[int, float]
    second_request: dict[int, float]
    new_process: dict[int, float]
    second_engine: dict[int, float] | None
    floor: dict[int, float]
    new_process_over_floor: dict[int, float]
    second_engine_over_floor: dict[int, float] | None
    encoder_runs: int
    different_pictures: int
    answers_equal: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the largest pictures' times and the worst ratios, and the rest by size."""
        largest = max(self.cold)
        by_size = {
            str(side): {
                "cold": self.cold[side],
                "second_request": self.second_request[side],
                "new_process": self.new_process[side],
                "second_engine": self.second_engine and self.second_engine[side],
                "floor": self.floor[side],
                "new_process_over_floor": self.new_process_over_floor[side],
                "second_engine_over_floor": self.second_engine_over_floor
                and self.second_engine_over_floor[side],
            }
            for side in sorted(self.cold)
        }
        return {
            "cold": self.cold[largest],
            "second_request": self.second_request[largest],
            "new_process_over_floor": max(self.new_process_over_floor.values()),
            "second_engine_over_floor": self.second_engine_over_floor
            and max(self.second_engine_over_floor.values()),
            "encoder_runs": self.encoder_runs,
            "different_pictures": self.different_pictures,
            "answers_equal": self.answers_equal,
            "sides": by_size,
        }


def measure(
    engine: dict[str, Any],
    rounds: Mapping[int, int],
    *,
    report: Report = lambda line: None,
) -> CacheCost:
    """Measures with different square pictures.

    Args:
        engine: arguments of `mmspec.LLM`, the model among them.
        rounds: how many pictures there are of each side; sides in pixels, whole numbers of visual tokens.
    """
    engine = {"enable_prefix_caching": False, "max_num_seqs": 1, "enable_mm_embeds": True, **engine}
    with tempfile.TemporaryDirectory(prefix="mmspec-bench-") as temporary, _redis() as server:
        folder = Path(temporary)
        pictures = _draw(folder, [_WARM_UP, *(side for side, count in rounds.items() for _ in range(count))])
        disk = {"directory": str(folder / "cache")}
        shared = disk | ({"remote": server} if server else {})

        report("cold, and again")
        first = [ask for path in pictures[1:] for ask in (_asking(path, keep=True), _asking(path))]
        warm_up = [_asking(pictures[0], keep=True)]
        cold, encoded = run(Job(engine, shared, first, warm_up), folder / "first")

        seen = _in_turn(pictures[1:])
        warm_up = [_asking(pictures[0]), _asking(pictures[0], features=True)]
        report("a new process, and the floor")
        new, encoded_new = run(Job(engine, disk, seen, warm_up), folder / "new")
        second, encoded_second = None, 0
        if server:
            report("a second engine with the remote tier, and the floor")
            remote = {"remote": server, "memory_size": "1GB"}
            second, encoded_second = run(Job(engine, remote, seen, warm_up), folder / "second")
        runs = encoded + encoded_new + encoded_second
        return _cost(rounds, (cold, new, second), runs, len(pictures))


def _cost(
    rounds: Mapping[int, int],
    answers: tuple[list[Answer], list[Answer], list[Answer] | None],
    runs: int,
    pictures: int,
) -> CacheCost:
    cold, again = answers[0][::2], answers[0][1::2]
    new, floor = _sorted_out(answers[1])
    second, second_floor = _sorted_out(answers[2]) if answers[2] else (None, [])

    def by_side(values: Sequence[float]) -> dict[int, float]:
        each = iter(values)
        return {side: statistics.median(islice(each, count)) for side, count in rounds.items()}

    everything = [cold, again, new, floor, *([second, second_floor] if second else [])]
    return CacheCost(
        cold=by_side([answer.ttft_ms for answer in cold]),
        second_request=by_side([answer.ttft_ms for answer in again]),
        new_process=by_side([answer.ttft_ms for answer in new]),
        second_engine=by_side([answer.ttft_ms for answer in second]) if second else None,
        floor=by_side([answer.ttft_ms for answer in floor]),
        new_process_over_floor=by_side(_ratios(new, floor)),
        second_engine_over_floor=by_side(_ratios(second, second_floor)) if second else None,
        encoder_runs=runs,
        different_pictures=pictures,
        answers_equal=all(
            answer.token_ids == one[0].token_ids for one in zip(*everything, strict=True) for answer in one
        ),
    )


def _in_turn(pictures: Sequence[Path]) -> list[Ask]:
    """Each picture and its features; which of them goes first changes."""
    pairs = [[_asking(path), _asking(path, features=True)] for path in pictures]
    return [ask for number, pair in enumerate(pairs) for ask in (pair if number % 2 == 0 else pair[::-1])]


def _sorted_out(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Those about pictures, and those about features, of what `_in_turn` asked."""
    pairs = [
        answers[start : start + 2][:: 1 if start % 4 == 0 else -1] for start in range(0, len(answers), 2)
    ]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _ratios(answers: Sequence[Answer], floor: Sequence[Answer]) -> list[float]:
    return [one.ttft_ms / other.ttft_ms for one, other in zip(answers, floor, strict=True)]


def _asking(picture: Path, *, features: bool = False, keep: bool = False) -> Ask:
    file = str(picture.with_suffix(".safetensors"))
    return Ask(str(picture), features=file if features else None, keep=file if keep else None)


def _draw(folder: Path, sides: Sequence[int]) -> list[Path]:
    """Pictures that differ from each other, one for each of `sides`."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    paths = []
    for number, side in enumerate(sides):
        coarse = Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8), "RGB")
        paths.append(folder / f"{number}-{side}.png")
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(paths[-1])
    return paths


@contextmanager
def _redis() -> Iterator[str | None]:
    """The address of a Redis server of our own, None where none is installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        yield None
        return
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
