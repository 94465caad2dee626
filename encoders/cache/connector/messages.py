"""What the connector's two sides tell each other with each step."""

from dataclasses import dataclass, field

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorMetadata, ECConnectorWorkerMetadata

from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.tier import Held


@dataclass(frozen=True)
class Load:
    """One picture to be loaded instead of encoded.

    Attributes:
        rows: how many the features must have.
        request_id, index: the picture's place, should it have to be encoded after all.
    """

    identifier: str
    key: FeatureKey
    held: Held
    rows: int
    request_id: str
    index: int


@dataclass
class StepMetadata(ECConnectorMetadata):
    """From the scheduler to the workers.

    Attributes:
        saves: keys of the pictures that this step encodes, by identifier.
        encoder_inputs: the step's own `SchedulerOutput.scheduled_encoder_inputs`, not a copy, also where both have
            been sent to another process together: what a worker adds to it is encoded in this step.
    """

    loads: list[Load] = field(default_factory=list)
    saves: dict[str, FeatureKey] = field(default_factory=dict)
    encoder_inputs: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class WorkerReport(ECConnectorWorkerMetadata):
    """From a worker to the scheduler; only made when there is something to tell.

    Attributes:
        done: tokens of what was held for loads of this step.
        failed: identifiers of the loads that could not be done; the pictures were encoded.
        counters: of each tier, what this worker did with it since its last report (`level.Counters`).
    """

    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    counters: dict[str, dict[str, float]] = field(default_factory=dict)

    def aggregate(self, other: ECConnectorWorkerMetadata) -> "WorkerReport":
        if not isinstance(other, WorkerReport):
            raise TypeError(f"{type(other).__name__} is no report of this connector")
        return WorkerReport(
            self.done | other.done, self.failed | other.failed, added(self.counters, other.counters)
        )

    def __bool__(self) -> bool:
        return bool(self.done or self.failed or self.counters)


def added(
    first: dict[str, dict[str, float]], second: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """Sums of counters, tier by tier."""
    return {
        tier: {
            name: first.get(tier, {}).get(name, 0) + second.get(tier, {}).get(name, 0)
            for name in first.get(tier, {}).keys() | second.get(tier, {}).keys()
        }
        for tier in first.keys() | second.keys()
    }


def since(
    before: dict[str, dict[str, float]], now: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """What was added to counters; what stayed is left out."""
    grown = {
        tier: {
            name: value - before.get(tier, {}).get(name, 0)
            for name, value in counters.items()
            if value != before.get(tier, {}).get(name, 0)
        }
        for tier, counters in now.items()
    }
    return {tier: counters for tier, counters in grown.items() if counters}
