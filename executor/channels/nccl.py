"""The two ends of a channel over NCCL. Untested: written without a GPU at hand, for the rules named here.

Headers travel by gloo, so that no shape has to be agreed before and the host reads them without waiting for the GPU.
Each route has a communicator of its own, because NCCL matches by order and one late message would hold up the others.
A receive is posted only when its header is there, from a side stream: its kernel neither waits for queued compute nor
spins on the device for a sender that has not got there yet. All communicators are touched once, in the same order on
all ranks, when they are made.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError

from ..programs.route import Route
from .incoming import Incoming, Posted
from .ledger import Ledger
from .message import Message, TensorSpec
from .outgoing import Outgoing


class NcclOutgoing(Outgoing):
    """The sending end; untested. `send` must be called on the stream that computes the tensors."""

    _expects = False

    def __init__(
        self,
        route: Route,
        peer: int,
        group: dist.ProcessGroup,
        tag: int,
        ledger: Ledger,
        payload: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        self._device_group = payload
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
        super().__init__(route, peer, group, tag, ledger)

    def _check(self, payload: Sequence[Tensor]) -> None:
        for tensor in payload:
            if tensor.device not in (torch.device("cpu"), self._device):
                raise InputError(
                    f"stage {self.route.sender} returned a tensor on {tensor.device}, but its rank sends from "
                    f"{self._device}; move the tensor, or the stage"
                )

    def _post(self, tensor: Tensor, kind: int) -> dist.Work:
        if tensor.device.type == "cpu":
            return super()._post(tensor, kind)
        # NCCL's stream waits here for what the current stream has queued, which is the op that made the tensor.
        work = dist.isend(tensor, self._peer, group=self._device_group)
        assert work is not None
        return work

    def _finish(self, works: Sequence[dist.Work]) -> None:
        # Work.wait of NCCL makes the current stream wait and not the host; so let a side stream wait, and wait for it.
        with torch.cuda.device(self._device), torch.cuda.stream(self._side):
            super()._finish(works)
            self._side.synchronize()


class NcclIncoming(Incoming):
    """The receiving end; untested. A message counts as arrived when the device has it."""

    _expects = False

    def __init__(
        self,
        route: Route,
        peer: int,
        group: dist.ProcessGroup,
        tag: int,
        ledger: Ledger,
        window: int,
        payload: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        self._device_group = payload
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
        super().__init__(route, peer, group, tag, ledger, window)

    def _receive(self, posted: Posted) -> Message:
        with torch.cuda.device(self._device), torch.cuda.stream(self._side):
            return super()._receive(posted)

    def _empty(self, spec: TensorSpec) -> Tensor:
        return torch.empty(spec.shape, dtype=spec.dtype, device="cpu" if spec.on_cpu else self._device)

    def _post(self, tensor: Tensor, kind: int) -> dist.Work:
        if tensor.device.type == "cpu":
            return super()._post(tensor, kind)
        work = dist.irecv(tensor, self._peer, group=self._device_group)
        assert work is not None
        return work

    def _finish(self, works: Sequence[dist.Work]) -> None:
        super()._finish(works)
        self._side.synchronize()

    def _hand_over(self, message: Message) -> Message:
        # The memory comes from the side stream's pool and must not return there before the op loop's stream is done.
        for tensor in message:
            if tensor is not None and tensor.device.type != "cpu":
                tensor.record_stream(torch.cuda.current_stream(self._device))
        return message


def touch(group: dist.ProcessGroup, device: torch.device) -> None:
    """Make the communicator of a group, which both of its ranks must do at the same time."""
    dist.all_reduce(torch.zeros(1, device=device), group=group)
    torch.cuda.synchronize(device)
