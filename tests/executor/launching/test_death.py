"""Whatever befalls a rank, wherever it is: all end, and the first line says what, where and when."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.whereabouts import Board
from adaptpipe.solver import Kind, Op, Problem, Schedule, parse_op, place

from ..orders import POLICIES, schedule_for
from .death_jobs import Death, How, Where, die
from .test_launch import alive

pytestmark = pytest.mark.timeout(90)

RANKS = 4
PATIENCE_S = 3.0
END_S = 10.0
"""What is promised: so long after the first failure was detected, all have ended. Measured: 0.3 s, loaded 2 s."""


def work(seed: int) -> tuple[Problem, Schedule]:
    """Ops of a few milliseconds in an order of some kind, on one stage a rank or two."""
    placement = place(*(("linear", RANKS, 1) if seed % 2 else ("v", RANKS, 2)))
    schedule = schedule_for(placement, (1,) * 4, POLICIES[seed % len(POLICIES)], seed)
    data = {
        "pipeline": {"ranks": RANKS, "placement": list(placement.stages[0])},
        "batch": {"samples": 4},
        "costs": {"forward": 2, "backward_input": 2, "backward_weight": 2},
    }
    return Problem.from_dict(data), schedule


def deaths() -> list[tuple[int, Death]]:
    """Twenty at random, and those that no chance may leave out; each on a schedule of its own."""
    chance = random.Random(5)
    found = []
    for seed in range(20):
        rank = chance.randrange(RANKS)
        how: How = "hang" if seed % 10 == 9 else chance.choice(("kill", "kill", "raise"))
        where: Where = "op" if how == "hang" else chance.choice(("op", "op", "between"))
        found.append((seed, Death(rank, how, where, chance.randrange(len(work(seed)[1].ops[rank])))))
    loss_rank = RANKS - 1
    return [
        *found,
        (1, Death(1, "kill", "construction")),
        (1, Death(2, "raise", "construction")),
        (1, Death(0, "kill", "end")),
        (1, Death(loss_rank, "raise", "end")),
        (1, Death(loss_rank, "kill", "op", 0)),
        (1, Death(0, "hang", "op", len(work(1)[1].ops[0]) - 1)),  # nobody waits for this one's message
    ]


def headline(death: Death, last: str) -> str:
    """How the first line must begin; `last` is the op that the rank had begun last."""
    cause = {"kill": "killed by signal 9 (SIGKILL)", "raise": "ValueError: boom", "hang": "has been in this op for "}
    if death.where == "construction":
        return f"rank {death.rank}: {cause[death.how]}"
    op = parse_op(last)
    whole = f"rank {death.rank}, stage {op.stage}, {op.kind.name} of micro-batch {op.microbatch}, step 1: "
    if death.where == "op" or (death.where == "between" and death.how == "raise"):
        return whole + cause[death.how]
    after = f", after {replace(op, units=None)}" if death.how == "kill" else ""
    return f"rank {death.rank}, step 1: {cause[death.how]}{after}"


def listening() -> set[str]:
    """Ports that this process listens at."""
    mine = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {fields[1] for fields in lines if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine}


@pytest.mark.parametrize(
    ("seed", "death"), deaths(), ids=lambda each: f"{each.how}-{each.where}" if isinstance(each, Death) else str(each)
)
def test_one_rank_ends_all(seed: int, death: Death, tmp_path: Path) -> None:
    """The others waited half an hour for a rank that was gone, its error buried: pytorch/torchtitan#1790."""
    problem, schedule = work(seed)
    ports = listening()
    with pytest.raises(RankFailure) as caught:
        launch(die, RANKS, (problem, schedule, death, tmp_path, PATIENCE_S), threads=1)
    first = str(caught.value).splitlines()[0]
    struck, last = (tmp_path / "struck").read_text().split()
    assert first.startswith(headline(death, last))
    if death.how == "hang":
        assert "and others wait; rank " in first
        if seed == 1:  # in the last op of all: elsewhere, others may wait for a message or at the end, whoever is first
            assert "not every rank has come to the end of the step within" in first
        assert f"within {PATIENCE_S:g} s" in first
    late = time.monotonic() - float(struck) - (PATIENCE_S if death.how == "hang" else 0)
    assert 0 < late < END_S
    pids = [int(file.read_text()) for file in tmp_path.glob("*.pid")]
    assert len(pids) == RANKS or death.where == "construction"
    assert not any(alive(pid) for pid in pids)
    assert listening() == ports


def test_a_rank_that_hangs_outside_its_ops_is_waited_for_in_vain(tmp_path: Path) -> None:
    """Nobody can tell where it is, so whoever gave up first says whose message has not come."""
    problem, schedule = work(1)
    death = Death(1, "hang", "between", 2)
    with pytest.raises(RankFailure, match=r"^rank [023], stage [023], . of micro-batch \d, step 1: .*Late: .*within 3"):
        launch(die, RANKS, (problem, schedule, death, tmp_path, PATIENCE_S), threads=1)


def test_the_board() -> None:
    from ctypes import c_int64

    cells = (c_int64 * Board.size(2))()
    board = Board(cells)
    place = Board(cells).place(1)
    assert board.read(0) is board.read(1) is None
    place.begin(7, 0.02)
    where = board.read(1)
    assert where is not None
    assert where.failure("gone").headline == "rank 1, step 7: gone"
    place.enter(Op(2, Kind.W, 3, (0, 1)))
    where = board.read(1)
    assert where is not None
    assert not where.seems_to_hang
    time.sleep(0.011)
    where = board.read(1)
    assert where is not None
    assert where.seems_to_hang
    assert where.failure("gone").headline == "rank 1, stage 2, W of micro-batch 3, step 7: gone"
    place.leave()
    where = board.read(1)
    assert where is not None
    assert not where.seems_to_hang
    assert where.failure("gone").headline == "rank 1, step 7: gone, after 2W3"
    assert board.read(0) is None
