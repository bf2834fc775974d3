"""The proof that messages end: circles that are found, and valid orders that are never refused."""

from __future__ import annotations

import random
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import NoAnswerError, Op, Schedule, place
from adaptpipe.solver.pytorch import import_csv
from adaptpipe.solver.pytorch.actions import Action, Transfer
from adaptpipe.solver.pytorch.lowering import lower
from adaptpipe.solver.pytorch.messages import check_messages
from adaptpipe.solver.pytorch.table import Table, parse_table, placement_of, tabulate
from tests.strategies import problems, schedules_of

HUNG = (
    "0F0,0SEND_F0,0F1,2RECV_F0,0SEND_F1,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,0F2,0SEND_F2,2RECV_B0,2B0,2SEND_B0,"
    "2RECV_F2,2F2,2SEND_F2,0RECV_B0,0B0,2RECV_B1,2B1,2SEND_B1,0RECV_B1,0B1,2RECV_B2,2B2,2SEND_B2,0RECV_B2,0B2\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,3RECV_F0,1SEND_F1,3F0,3B0,3RECV_F1,3SEND_B0,3F1,3B1,1RECV_F2,3SEND_B1,1F2,"
    "1SEND_F2,1RECV_B0,1B0,1SEND_B0,3RECV_F2,3F2,3B2,3SEND_B2,1RECV_B1,1B1,1SEND_B1,1RECV_B2,1B2,1SEND_B2\n"
)
CIRCLE = (
    r"deadlock where sends block: row 1 \(rank 0\), column {}: 0SEND_F2 waits for rank 1 to come to 1RECV_F2 "
    r"\(column {}\); row 2 \(rank 1\), column {}: 3SEND_B0 waits for rank 0 to come to 2RECV_B0 \(column {}\)$"
)


def test_the_pair_that_hung_is_refused(tmp_path: Path) -> None:
    """Both ranks sent before they received, and neither ever ended: pytorch/pytorch#172668."""
    (tmp_path / "s.csv").write_text(HUNG)
    with pytest.raises(NoAnswerError, match=CIRCLE.format(12, 14, 11, 13)):
        import_csv(tmp_path / "s.csv")


def test_the_documentation_shows_what_is_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(HUNG)
    with pytest.raises(NoAnswerError) as caught:
        import_csv(tmp_path / "s.csv")
    shown = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text()
    assert str(caught.value).split(": ", 1)[1] in shown.replace(";\n", "; ")


def test_a_circle_is_found_before_what_else_is_wrong() -> None:
    """The lines that the report quotes, which are a part of a schedule."""
    table = parse_table("2SEND_F1,0F2,0SEND_F2,2RECV_B0,2B0\n3RECV_F1,3SEND_B0,3F1,3B1,1RECV_F2,3SEND_B1,1F2")
    with pytest.raises(NoAnswerError, match=CIRCLE.format(3, 5, 2, 4)):
        check_messages(table, placement_of(table))


@st.composite
def lowered(draw: st.DrawFn) -> tuple[Schedule, Table]:
    families = ("linear", "loop", "v", "wave", "explicit")
    schedule = draw(schedules_of(draw(problems(families=families, sizes=False, units=False, limited=False))))
    return schedule, tabulate(lower(schedule))


@settings(max_examples=40)
@given(lowered())
def test_every_valid_order_has_messages_that_end(made: tuple[Schedule, Table]) -> None:
    schedule, table = made
    check_messages(table, schedule.placement)
    ops = tuple(tuple(cell.action for cell in row if isinstance(cell.action, Op)) for row in table)
    assert ops == schedule.ops


@settings(max_examples=40)
@given(lowered(), st.integers(0, 2**32))
def test_a_circle_is_found_where_there_is_one(made: tuple[Schedule, Table], seed: int) -> None:
    """Against a search for cycles in the graph of all cells, the two ends of a message being one node."""
    schedule, table = made
    chance = random.Random(seed)
    rows = [[cell.action for cell in row] for row in table]
    for row in rows:
        ends = [number for number, action in enumerate(row) if isinstance(action, Transfer)]
        for _ in range(chance.randrange(4) if len(ends) > 1 else 0):
            a, b = chance.sample(ends, 2)
            row[a], row[b] = row[b], row[a]
    graph: nx.DiGraph[Action] = nx.DiGraph()
    for row in rows:
        nodes = [a if not isinstance(a, Transfer) or a.sends else a.other_end for a in row]
        nx.add_path(graph, nodes)
    found = ""
    try:
        check_messages(tabulate(rows), schedule.placement)
    except NoAnswerError as error:
        found = str(error)
    assert found.startswith("deadlock") != nx.is_directed_acyclic_graph(graph), found
    if not found.startswith("deadlock"):  # messages from one rank to another are received as they are sent
        orders: dict[tuple[int, int, bool], list[Transfer]] = {}
        for rank, row in enumerate(rows):
            for end in (action for action in row if isinstance(action, Transfer)):
                pair = (rank, schedule.placement.stages[0][end.other_stage])
                key = (*(pair if end.sends else pair[::-1]), end.sends)
                orders.setdefault(key, []).append(end if end.sends else end.other_end)
        assert all(order == orders[source, target, not sends] for (source, target, sends), order in orders.items())


GOOD = parse_table(
    "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0SEND_F1,", "0SEND_F0,", r"column 6: 0SEND_F0 is there twice, first at column 2"),
        ("1SEND_B1", "1SEND_F1", r"column 8: 1SEND_F1: there is no stage 2 to send to"),
        ("0F1,", "0RECV_F1,", r"column 5: 0RECV_F1: there is no stage -1 to receive from"),
        ("1SEND_B1", "", r"row 1 \(rank 0\), column 7: 0RECV_B1 has no other end: 1SEND_B1 is nowhere"),
        ("0SEND_F0,", "", r"row 2 \(rank 1\), column 1: 1RECV_F0 has no other end: 0SEND_F0 is nowhere"),
        ("1RECV_F0,1F0,", "1RECV_F0,", None),
        ("0F0,0SEND_F0", "0SEND_F0,0F0", r"row 1 \(rank 0\), column 1: 0SEND_F0: is sent before it is there; 0F0 must"),
        ("1B0,1SEND_B0", "1SEND_B0,1B0", r"column 3: 1SEND_B0: is sent before it is there; 1B0 must come before"),
        ("1RECV_F1,1F1", "1F1,1RECV_F1", r"row 2 \(rank 1\), column 5: 1F1: 1RECV_F1 must come before, and does not"),
        ("0RECV_B1,0B1", "0B1,0RECV_B1", r"column 7: 0B1: 0RECV_B1 must come before, and does not"),
    ],
)
def test_messages_that_are_not_in_order(old: str, new: str, message: str | None) -> None:
    text = "\n".join(",".join(str(cell.action) for cell in row) for row in GOOD)
    check_messages(GOOD, placement_of(GOOD))
    assert old in text
    table = parse_table(text.replace(old, new))
    if message is None:  # that an op is missing is another's to say
        check_messages(table, placement_of(table))
        return
    with pytest.raises(NoAnswerError, match=message):
        check_messages(table, placement_of(table))


def test_a_message_that_nobody_sends_and_nobody_awaits_is_missed() -> None:
    table = parse_table("0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0")
    with pytest.raises(
        NoAnswerError, match=r"^row 1 \(rank 0\), column 1: 0F0: what it makes is not sent; 0SEND_F0 is"
    ):
        check_messages(table, placement_of(table))


def test_a_message_to_the_same_rank() -> None:
    table = parse_table("0F0,1F0,1SEND_B0,1B0")
    with pytest.raises(NoAnswerError, match=r"1SEND_B0: stage 0 is on the same rank, where tensors need no message"):
        check_messages(table, place("loop", 1, 2))
