"""What a step took: times, bytes, loss."""

from __future__ import annotations

from dataclasses import dataclass

from adaptpipe.solver import Op


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op as it ran.

    Parameters
    ----------
    op
        What ran.
    start_s, end_s
        Seconds of `time.perf_counter`, which processes of one machine share on Linux. Waiting for messages and sending
        them is not in between. On a GPU they are the times at which the host queued the op.
    held_bytes
        What the stage holds for this micro-batch once the op has ended: after F all that the backward needs, after I
        or a part of W what still waits for W, else 0. Weights, buffers and the batch itself do not count.
    message_bytes
        What the op passed on to another stage.
    busy_s
        Seconds for which the op had the processor: on a busy machine less than what passed meanwhile.
    asked_s, arrived_s
        When the rank first had nothing else to do before the op than its message, and when that had arrived, which may
        be long before; None where the op needs none from another rank.
    """

    op: Op
    start_s: float
    end_s: float
    held_bytes: int
    message_bytes: int
    busy_s: float = 0.0
    asked_s: float | None = None
    arrived_s: float | None = None

    @property
    def wait_s(self) -> float:
        """Seconds in which the op's message was waited for; weight gradients may have filled them."""
        if self.asked_s is None or self.arrived_s is None:
            return 0.0
        return max(0.0, self.arrived_s - self.asked_s)


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of one rank.

    Parameters
    ----------
    step
        Number of the step, from 0.
    loss
        Mean loss of the batch, the same on every rank.
    records
        The rank's ops in the order in which they ran.
    peak_bytes
        The most that ops of this rank held at once: the sum over its stages and micro-batches, as the memory model of
        a problem counts it, without static memory.
    received_bytes
        The most that messages which had arrived and were not taken yet held at once, besides.
    step_s
        Seconds from the call to the loss.
    """

    step: int
    loss: float
    records: tuple[OpRecord, ...]
    peak_bytes: int
    received_bytes: int
    step_s: float
