"""A server under load: requests, aborts, errors, memory before and after, and what it costs while nobody asks.

python benchmarks/server_load.py [--json] [--out benchmarks/results/server_load.json]

Starts `mmspec serve` with drafting and the feature cache, lets it idle, asks every picture alone, then in rounds many
requests at once of which a tenth is given up by the client, then every picture alone again, and ends it by SIGTERM with
requests running. Then it starts vLLM's own server, with the plugin kept out, and lets that idle.

Memory is that of all processes of the server; `before` is after the warm-up rounds. Processor time while idle is in
percent of one core. The machine should have nothing else to do.
"""

import argparse
import json
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from mmspec.bench.provenance import write_result
from mmspec.bench.server_load import Load, Round, cpu_seconds, resident_mib, wait_until_quiet
from mmspec.cli.vllm_flags import to_flags
from mmspec.defaults import engine_defaults
from mmspec.models import resolve_model
from mmspec.server_process import ServerProcess

_EXAMPLES = Path(__file__).parents[1] / "demo" / "examples"
_START_SECONDS = 900


def main() -> None:
    given = _options()
    pictures = [path.read_bytes() for path in sorted(_EXAMPLES.glob("*.png"))[: given.pictures]]
    with tempfile.TemporaryDirectory() as folder:
        cache = ["--encoder-cache", f"{folder}/features", "--encoder-cache-size", "1GB"]
        with _running(["mmspec.cli.main", "serve", given.model, *cache], folder) as server:
            result = {"idle_cpu_percent": {"mmspec": server.idle(given.idle_seconds)}}
            result |= _under_load(server, pictures, given)
            result["shutdown"] = _ended(server, pictures, given)
    if given.idle_seconds:
        plain = ["serve", resolve_model(given.model), *to_flags(engine_defaults(given.model, ()))]
        others = [
            found.name for found in entry_points(group="vllm.general_plugins") if found.name != "mmspec"
        ]
        with tempfile.TemporaryDirectory() as folder:
            command = ["mmspec.cli.vllm_launcher", *plain]
            with _running(command, folder, VLLM_PLUGINS=",".join(others)) as server:
                result["idle_cpu_percent"]["vllm"] = server.idle(given.idle_seconds)
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result) if given.json else json.dumps(result, indent=2))


class _Server(ServerProcess):
    def idle(self, seconds: float) -> float | None:
        """Processor time while nobody asks, in percent of one core."""
        if not seconds:
            return None
        time.sleep(5)  # behind the start
        before, started = cpu_seconds(self.process.pid), time.monotonic()
        time.sleep(seconds)
        used = cpu_seconds(self.process.pid) - before
        return round(100 * used / (time.monotonic() - started), 2)


def _under_load(server: _Server, pictures: list[bytes], given: argparse.Namespace) -> dict[str, Any]:
    load = Load(server.url, given.model, pictures, max_tokens=given.max_tokens)
    memory = {"started": resident_mib(server.process.pid)}
    alone = load.alone()
    for _ in range(given.warmup):
        load.at_once(given.requests)
    wait_until_quiet(server.url)
    memory["before"] = resident_mib(server.process.pid)
    rounds = [load.at_once(given.requests) for _ in range(given.rounds)]
    wait_until_quiet(server.url)
    memory["after"] = resident_mib(server.process.pid)
    return {
        **_totals(rounds, alone),
        "later_answers_unchanged": load.alone() == alone,
        "memory_mib": {name: round(value, 1) for name, value in memory.items()},
        "memory_growth_mib": round(memory["after"] - memory["before"], 1),
    }


def _totals(rounds: list[Round], alone: list[str]) -> dict[str, Any]:
    errors = [error for one in rounds for error in one.errors]
    differing = sum(len(found - {alone[number]}) for one in rounds for number, found in one.answers.items())
    seconds = sum(one.seconds for one in rounds)
    return {
        "rounds": len(rounds),
        "requests": sum(one.finished + one.aborted + len(one.errors) for one in rounds),
        "finished": sum(one.finished for one in rounds),
        "aborted": sum(one.aborted for one in rounds),
        "errors": len(errors),
        "first_errors": errors[:3],
        "answers_that_differ_from_those_asked_alone": differing,
        "finished_per_second": round(sum(one.finished for one in rounds) / seconds, 2) if seconds else None,
    }


def _ended(server: _Server, pictures: list[bytes], given: argparse.Namespace) -> dict[str, Any]:
    """SIGTERM while requests run."""
    load = Load(server.url, given.model, pictures, max_tokens=512, aborted=0.0)
    asking = threading.Thread(target=load.at_once, args=(len(pictures),), daemon=True)
    asking.start()
    time.sleep(1)
    started = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=120)
    return {"exit_code": code, "seconds": round(time.monotonic() - started, 1)}


@contextmanager
def _running(command: list[str], folder: str, **environment: str) -> Iterator[_Server]:
    server = _Server(command, Path(folder) / "server.log", environment)
    try:
        server.wait(_START_SECONDS)
        yield server
    finally:
        server.close(120)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--requests", type=int, default=64, help="at once")
    parser.add_argument("--pictures", type=int, default=8, help="different ones, at most 12")
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--warmup", type=int, default=2, help="rounds before memory is looked at")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=30, help="0 leaves idle servers out")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
