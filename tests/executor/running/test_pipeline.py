"""Running schedules on real ranks: gradients, losses, memory, and what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import pytest

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import InputError, Kind, Placement, Problem, Schedule, check, place, simulate
from adaptpipe.solver.heuristics import gpipe, interleaved, one_f_one_b, one_f_one_b_split, zb_h1, zb_h2, zb_v
from adaptpipe.solver.solving import solve

from ..orders import POLICIES, problem_for, schedule_for
from . import pipeline_jobs as jobs

pytestmark = pytest.mark.timeout(60)


class Heuristic(Protocol):
    """A schedule by construction."""

    __name__: str

    def __call__(self, problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule: ...


SIZES = ((1,), (3,), (1, 1, 1), (1, 3, 2), (2, 2, 2, 2), (1, 1, 1, 2, 1, 1, 3, 1))


def cases(ranks: int, model: str) -> list[jobs.Case]:
    found = []
    for family, per_rank in (("linear", 1), ("loop", 2), ("v", 2)):
        placement = place(family, ranks, per_rank)
        for number, sizes in enumerate(SIZES):
            for policy in [POLICIES[(number + shift) % len(POLICIES)] for shift in range(2)]:
                schedule = schedule_for(placement, sizes, policy, seed=number)
                name = f"{model} {family} p={ranks} sizes={sizes} {policy}"
                found.append(jobs.Case(name, model, problem_for(placement, sizes), schedule))
    return found


@pytest.mark.parametrize("model", ["gpt", "mixed"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_equal_the_unsplit_models(ranks: int, model: str) -> None:
    """Any number of micro-batches, more or fewer than ranks, equal or not.

    A stage waited for a micro-batch that does not come when m < p: pytorch/torchtitan#775. Receive buffers had the
    shape of micro-batch 0: pytorch/pytorch#126600. The split backward summed both halves of a `chunk`:
    pytorch/pytorch#170277.
    """
    for results in launch(jobs.compare_all, ranks, cases(ranks, model), threads=1):
        for name, gradient, loss in results:
            assert gradient < 1e-5, name
            assert loss < 1e-5, name


def case(model: str, placement: Placement, sizes: Sequence[int], policy: str) -> jobs.Case:
    return jobs.Case("", model, problem_for(placement, sizes), schedule_for(placement, sizes, policy))


@pytest.mark.parametrize("sizes", [(3, 3, 2), (1, 2, 3, 2)])
def test_unequal_micro_batches(sizes: tuple[int, ...]) -> None:
    """Batch 8 in 3 micro-batches died in the loss, or was weighted wrongly: huggingface/accelerate PR#2345.

    With two directions each has a loss of its own; on an odd number of ranks the middle one has one stage in both.
    """
    placements = place("linear", 3), place("bidirectional", 3)
    cases = [case("gpt", placement, sizes, policy) for placement in placements for policy in POLICIES]
    results = launch(jobs.compare_all, 3, cases)
    for rank in results:
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank


def test_steps_without_zero_grad_add_up() -> None:
    """All of .grad was divided by m at the end of every step, older steps again and again: pytorch/torchtitan#1733."""
    for policy in ("1f1b", "zb"):
        errors = launch(jobs.train_thrice, 2, case("mixed", place("linear", 2), (2, 2), policy))
        assert max(errors) < 1e-5


def test_stages_with_nothing_for_w() -> None:
    """A W found an empty queue and failed: sail-sg/zero-bubble-pipeline-parallelism#72."""
    cases = [case("nothing waits", place("v", 2, 2), (1, 2, 1), policy) for policy in POLICIES]
    for rank in launch(jobs.compare_all, 2, cases):
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank


def test_a_weight_gradient_left_over_is_an_error() -> None:
    """A weight gradient that no W computes is missing without a word: Megatron-DeepSpeed PR#428."""
    with pytest.raises(RankFailure, match=r"rank 1, step 0: .*stage 1, micro-batch 2: 1 weight gradients were never"):
        launch(jobs.forget_weights, 2, case("mixed", place("linear", 2), (1, 1, 1), "zb"))


def test_several_tensors_of_any_dtype() -> None:
    """A mask or position ids beside the hidden state failed, or got lost: deepspeedai/DeepSpeed#1432.

    In two directions also where a rank has some stages in both, and messages of both go between the same ranks.
    """
    directions = ((0, 1, 1, 0), (1, 0, 0, 1)), ((0, 1, 0), (0, 0, 1)), ((0, 1), (0, 1))
    cases = [
        case("several tensors", placement, (1, 2, 1), policy)
        for placement in (place("linear", 2), place("v", 2, 2), *(Placement(2, rows) for rows in directions))
        for policy in POLICIES
    ]
    for rank in launch(jobs.compare_all, 2, cases):
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("dict", "stage 1: the output is a dict"),
        ("None", "stage 1: the output is a NoneType"),
        ("nested", "stage 1: output 1 is a list"),
    ],
)
def test_outputs_that_cannot_be_passed_on(what: str, message: str) -> None:
    """A dict or None between stages failed deep inside, or hung: deepspeedai/DeepSpeed#969."""
    with pytest.raises(RankFailure, match=rf"^rank 1, stage 1, F of micro-batch 0, step 0: .*{message}"):
        launch(jobs.return_odd, 3, (case("gpt", place("linear", 3), (1, 1), "1f1b"), 1, what))


def test_a_tensor_that_the_next_stage_ignores() -> None:
    """Its gradient is None, and sender and receiver disagreed: pytorch/pytorch#152827."""
    cases = [
        case("unused tensor", placement, (1, 2, 1), policy)
        for placement in (place("linear", 2), place("loop", 2, 2), place("v", 2, 2))
        for policy in POLICIES
    ]
    for rank in launch(jobs.compare_all, 2, cases):
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank


def test_frozen_stages() -> None:
    """Stages that train nothing, and chains where gradients stop, failed or hung: hpcaitech/ColossalAI#5011."""
    cases = [
        case(model, place("linear", 3), (1, 2), policy)
        for model in ("only first trains", "only last trains", "middle frozen", "nothing trains")
        for policy in POLICIES
    ]
    for rank in launch(jobs.compare_all, 3, cases):
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank


@pytest.mark.parametrize("family", ["linear", "v"])
def test_evaluation_between_steps(family: str) -> None:
    """Evaluating before the first step, or with another size, broke the buffers: pytorch/pytorch#162822."""
    placement = place(family, 2, 1 if family == "linear" else 2)
    for losses in launch(jobs.alternate, 2, case("gpt", placement, (1, 2, 2), "zb")):
        for ours, wanted in losses:
            assert ours == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("evaluating", [0, 1])
def test_evaluation_on_one_rank_alone_ends(evaluating: int) -> None:
    """Only the last rank called evaluate, and the pipeline hung: NVIDIA-NeMo/Megatron-Bridge PR#6025."""
    step = rf"rank {1 - evaluating}, stage {1 - evaluating}, .*not arrived within 1 s"
    evaluation = rf"rank {evaluating}, step 0: .*evaluate was not called on every rank .* within 1 s"
    with pytest.raises(RankFailure, match=f"^({step}|{evaluation})"):
        launch(jobs.evaluate_alone, 2, (case("gpt", place("linear", 2), (1, 1), "zb"), evaluating))


@pytest.mark.parametrize("family", ["linear", "v"])
def test_every_rank_knows_the_loss(family: str) -> None:
    """Other ranks than the last printed -1, and with a V it is not the last one: pytorch/torchtitan#550."""
    placement = place(family, 4, 1 if family == "linear" else 2)
    losses = launch(jobs.only_where_needed, 4, case("gpt", placement, (1, 2), "1f1b"))
    assert len(set(losses)) == 1
    assert losses[0] > 0


@pytest.mark.parametrize(
    ("policy", "where", "place_of_failure"),
    [("1f1b", "forward", "F"), ("1f1b", "backward", "B"), ("zb", "backward", "I")],
)
def test_the_first_failure_is_told(policy: str, where: str, place_of_failure: str) -> None:
    """One rank raised, and the others waited half an hour, the error buried: pytorch/torchtitan#1790."""
    text = rf"^rank 1, stage 1, {place_of_failure} of micro-batch 2, step 0: ValueError: boom"
    with pytest.raises(RankFailure, match=text):
        launch(jobs.fall_into_trap, 4, (case("gpt", place("linear", 4), (1,) * 6, policy), 1, where))


def test_a_killed_rank_is_told() -> None:
    """A rank that is killed in the middle of a step: pytorch/PiPPy#3."""
    with pytest.raises(RankFailure, match=r"^rank 2, stage 2, F of micro-batch 2, step 0: killed by signal 9"):
        launch(jobs.fall_into_trap, 4, (case("gpt", place("linear", 4), (1,) * 6, "1f1b"), 2, "kill"))


def test_a_rank_that_hangs_is_noticed() -> None:
    """The default of half an hour is long when a rank hangs: pytorch PR#129369."""
    with pytest.raises(
        RankFailure,
        match=r"^rank 1, stage 1, F of micro-batch 2, step 0: has been in this op for .* s, and others wait; "
        r"rank [02], stage [02], [FB] of micro-batch \d, .*has not arrived within 1 s",
    ):
        launch(jobs.fall_into_trap, 3, (case("gpt", place("linear", 3), (1,) * 4, "1f1b"), 1, "hang"))


def test_stages_in_the_order_of_another_placement() -> None:
    """A V schedule with looped stages died of a KeyError deep in the step: pytorch/torchtitan#774."""
    argument = (case("gpt", place("v", 2, 2), (1, 1), "zb"), {0: [0, 2], 1: [1, 3]})
    for message in launch(jobs.wrong_start, 2, argument):
        assert message == (
            "InputError: rank 0 was given the stages [0, 2], and the schedule's placement has [0, 3] there: "
            "stage to rank is [0, 1, 1, 0]"
        )


def test_ranks_with_different_schedules() -> None:
    cases = [case("gpt", place("linear", 2), (1, 1), policy) for policy in ("1f1b", "zb")]
    for message in launch(jobs.own_schedule, 2, cases):
        assert message.startswith("InputError: rank 1 was given another schedule, or other ties, than rank 0")


def test_another_number_of_processes() -> None:
    """Every rank hears of what one of them finds, also of an invalid schedule."""
    good, bad = case("gpt", place("linear", 2), (1, 1), "1f1b"), case("gpt", place("linear", 3), (1, 1), "1f1b")
    messages = launch(jobs.own_schedule, 2, [good, bad])
    assert set(messages) == {"InputError: the schedule is for 3 ranks, and the process group has 2; start 3 processes"}
    rows = [["0B0", "0F0"], ["1F0", "1B0"]]
    invalid = jobs.Case(
        "", "gpt", problem_for(place("linear", 2), (1,)), Schedule.parse(place("linear", 2), (1,), rows)
    )
    for message in launch(jobs.own_schedule, 2, [invalid, invalid]):
        assert message.startswith("NoAnswerError: deadlock: rank 0, position 0: 0B0 waits for")


def test_misuse() -> None:
    """What is refused before anything is sent leaves the pipeline as it was."""
    (messages,) = launch(jobs.misuse, 1, case("gpt", place("linear", 1), (1, 2), "1f1b"))
    wanted = [
        "InputError: report: there has been no step",
        "InputError: batch is None on rank 0, which holds stage 0",
        r"InputError: batch has shape \(2, 8\); its first dimension must be the 3 samples",
        "InputError: target is a str",
        "InputError: batch holds a dict",
        r"InputError: sizes\[0\]: 0 is below 1",
        "InputError: sizes: the list is empty",
        "InputError: batch has no rows",
        "InputError: step 1: the pipeline is closed",
        "RankFailure: rank 0, stage 0, F of micro-batch 0, step 0: .*loss_fn returned a tensor of shape",
        "InputError: step 0: the pipeline has failed",
    ]
    assert len(messages) == len(wanted)
    for message, pattern in zip(messages, wanted, strict=True):
        assert re.match(pattern, message), message


def test_report_agrees_with_the_simulator() -> None:
    """With the bytes that were measured, the simulated peak is the measured one, to the byte."""
    for family, policy in (("linear", "1f1b"), ("v", "zb"), ("v", "late-w"), ("loop", "random")):
        placement = place(family, 2, 1 if family == "linear" else 2)
        one = case("gpt", placement, (2,) * 4, policy)
        reports = launch(jobs.step_report, 2, one)
        held: dict[tuple[Kind, int], set[int]] = {}
        for rank, report in enumerate(reports):
            assert [record.op for record in report.records] == list(one.schedule.ops[rank])
            times = [time for record in report.records for time in (record.start_s, record.end_s)]
            assert times == sorted(times)
            assert report.step == 1
            assert report.step_s >= times[-1] - times[0]
            for record in report.records:
                held.setdefault((record.op.kind, record.op.stage), set()).add(record.held_bytes)
        assert all(len(values) == 1 for values in held.values()), held
        assert all(values == {0} for (kind, _), values in held.items() if kind in (Kind.W, Kind.B))
        (size,) = problem_sizes = set(one.schedule.sizes)
        assert problem_sizes == {size}
        stages = placement.stage_count
        problem = Problem.from_dict(
            {
                "pipeline": {"ranks": 2, "placement": list(placement.stages[0])},
                "batch": {"samples": 8, "microbatch_sizes": [2]},
                "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
                "memory": {
                    "activation": [max(held[Kind.F, s]) for s in range(stages)],
                    "retained": [max(held.get((Kind.I, s), {0})) for s in range(stages)],
                },
            }
        )
        assert simulate(problem, one.schedule).peak_memory == tuple(report.peak_bytes for report in reports)


def heuristic_cases(ranks: int, family: str, stages: int, methods: Sequence[Heuristic]) -> list[jobs.Case]:
    placement, found = place(family, ranks, stages), []
    for sizes in ((1,), (1, 1, 1), (1,) * 4, (2,) * 8, (1, 2, 1, 3)):
        problem = problem_for(placement, sizes)
        for method in methods:
            try:
                schedule = method(problem, sizes)
            except InputError:  # says itself when it does not exist, as interleaving for some m
                continue
            found.append(jobs.Case(f"{method.__name__} {family} sizes={sizes}", "gpt", problem, schedule))
    return found


@pytest.mark.parametrize(
    ("family", "stages", "methods"),
    [
        ("linear", 1, (gpipe, one_f_one_b, one_f_one_b_split, zb_h1, zb_h2)),
        ("loop", 2, (gpipe, interleaved)),
        ("v", 2, (zb_v,)),
    ],
)
def test_every_heuristic_runs(family: str, stages: int, methods: tuple[Heuristic, ...]) -> None:
    """Fewer micro-batches than ranks hung, or were refused where GPipe had worked: pytorch/torchtitan#775."""
    cases = heuristic_cases(4, family, stages, methods)
    assert {case.name.split()[0] for case in cases} == {method.__name__ for method in methods}
    for rank in launch(jobs.compare_all, 4, cases, threads=1):
        for name, gradient, loss in rank:
            assert gradient < 1e-5, name
            assert loss < 1e-5, name


def test_a_schedule_of_the_solver_runs() -> None:
    """What CP-SAT finds under a memory limit, at prices that no heuristic was made for."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "v", "stages_per_rank": 2},
            "batch": {"samples": 4},
            "costs": {"forward": [3, 1, 2, 2], "backward_input": [2, 2, 3, 1], "backward_weight": [1, 2, 2, 3]},
            "memory": {"activation": 2, "retained": 1, "limit": 8},
            "links": {"latency": 1},
        }
    )
    schedule = solve(problem, method="cpsat", time_limit=5).schedule
    assert not check(problem, schedule)
    for rank in launch(jobs.compare_all, 2, [jobs.Case("cpsat", "gpt", problem, schedule)]):
        assert all(gradient < 1e-5 and loss < 1e-6 for _, gradient, loss in rank), rank
