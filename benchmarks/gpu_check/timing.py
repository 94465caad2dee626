"""Times of steps, by CUDA events where there is a GPU."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles

import torch

_WARM_UP = 3

Step = Callable[[], object]


def in_turn(
    steps: Mapping[str, Step], device: torch.device, repeats: int, calls: int
) -> dict[str, list[float]]:
    """Milliseconds of one call of each step: `repeats` means over `calls`, the steps in turn after a warm-up."""
    for step in steps.values():
        for _ in range(_WARM_UP):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(_on_gpu(step, calls) if device.type == "cuda" else _on_cpu(step, calls))
    return times


def spread(name: str, values: Sequence[float]) -> dict[str, float | str | None]:
    """Median and quartiles as figures."""
    low, _, high = quantiles(values, n=4)
    return {name: median(values), f"{name}_p25": low, f"{name}_p75": high}


def captured(step: Step) -> Step:
    """The step as one CUDA graph, so that launching its kernels costs nothing, as in serving."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(_inputs: Step = step) -> None:  # the graph reads the tensors that the step holds
        graph.replay()

    return replay


def _on_gpu(step: Step, calls: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def _on_cpu(step: Step, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls * 1e3
