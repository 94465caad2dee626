"""Accuracy and caption recall over the share that is kept, a line a criterion."""

from pathlib import Path
from typing import Any


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws `accuracy` and `recall` of a result of `mmspec bench fastv` to a picture file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, measure in zip(figure.subplots(1, 2), ("accuracy", "recall"), strict=True):
        for name, by_keep in result[measure].items():
            axes.plot([float(keep) for keep in by_keep], list(by_keep.values()), marker="o", label=name)
        axes.set(xlabel="share of visual tokens kept", ylabel=measure, ylim=(0, 1))
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.savefig(path, dpi=120)
