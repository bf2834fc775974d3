"""What the commands share: options, printing, exit codes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from itertools import groupby
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from adaptpipe.solver import AdaptPipeError, InputError, NoAnswerError

if TYPE_CHECKING:
    from adaptpipe.solver import Problem, Schedule, Timeline

NO, USAGE, RANK_FAILED, INTERRUPTED = 1, 2, 3, 130
"""Exit codes other than 0: the answer is no; bad input or usage; a rank failed; interrupted."""

DEBUG = "ADAPTPIPE_DEBUG"
"""Environment variable that, when set, lets exceptions through with their traceback."""

P = ParamSpec("P")


class Goal(StrEnum):
    """What is minimised."""

    makespan = "makespan"
    span = "span"


def positive(value: float) -> float:
    """Refuse a time limit that is none.

    Raises
    ------
    BadParameter
        When it is not a positive number of seconds.
    """
    if not (isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} is not a positive number of seconds")
    return value


problem_argument = Annotated[
    Path, typer.Argument(metavar="PROBLEM", help="Problem file, TOML or JSON; see docs/files.md.", show_default=False)
]
schedule_argument = Annotated[
    Path, typer.Argument(metavar="SCHEDULE", help="Schedule file, as solve -o writes it.", show_default=False)
]
objective_option = Annotated[
    Goal, typer.Option("--objective", help="What to minimise: the makespan, or the longest span of any one rank.")
]
time_limit_option = Annotated[
    float, typer.Option("--time-limit", metavar="S", callback=positive, help="Wall time of a search, in seconds.")
]
workers_option = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, help="Processes of the annealer, threads of CP-SAT.")
]
seed_option = Annotated[int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the search.")]
iterations_option = Annotated[
    int | None,
    typer.Option(
        "--iterations",
        metavar="N",
        min=1,
        help="Moves of each annealing process, and of the robust search.",
        show_default=False,
    ),
]
deterministic_option = Annotated[
    bool,
    typer.Option(
        "--deterministic", help="Count work, not time: same arguments, same schedule. The limit then is one on work."
    ),
]


def _granularity(text: str) -> str:
    from adaptpipe.solver import Granularity

    try:
        return str(Granularity.parse(text))
    except InputError as error:
        raise typer.BadParameter(str(error).removeprefix("granularity: ")) from None


granularity_option = Annotated[
    str,
    typer.Option(
        "--granularity",
        metavar="A,B,…",
        callback=_granularity,
        help="What a search may choose beside the order: fused, units, sizes; all; none.",
    ),
]
json_option = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")]


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into one message on stderr and an exit code, never a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            if sys.stdout is not None:  # None: it was closed before we started
                sys.stdout.flush()
        except (KeyboardInterrupt, AdaptPipeError, OSError, MemoryError, RecursionError) as error:
            if DEBUG in os.environ:
                raise
            raise typer.Exit(_report(error)) from None
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            if DEBUG in os.environ:
                raise
            if isinstance(error, RuntimeError) and "no locator available" in str(error):
                say(
                    "adaptpipe: compiled code can be kept neither beside the package nor in the home folder; "
                    "set NUMBA_CACHE_DIR to a folder that can be written to"
                )
                raise typer.Exit(USAGE) from None
            say(
                f"adaptpipe: internal error: {type(error).__name__}: {error}\n"
                f"This is a bug in adaptpipe, not in your input. {DEBUG}=1 shows where."
            )
            raise typer.Exit(USAGE) from None

    return run


def _report(error: BaseException) -> int:
    """Say what went wrong; return the exit code."""
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has seen enough. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, MemoryError):
        say("adaptpipe: out of memory; try a smaller problem")
        return USAGE
    say(f"adaptpipe: {error}")
    if isinstance(error, NoAnswerError):
        return NO
    if isinstance(error, InputError) or not isinstance(error, AdaptPipeError):
        return USAGE
    return RANK_FAILED


def say(text: str) -> None:
    """Progress and prose, on stderr."""
    print(text, file=sys.stderr, flush=True)


def emit(data: object) -> None:
    """One JSON object on stdout."""
    import msgspec

    print(msgspec.json.encode(data).decode(), flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout: the first column flush left, the others, which are numbers, flush right."""
    import rich.box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=rich.box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for index, name in enumerate(head):
        grid.add_column(Text(name), justify="left" if index == 0 else "right", no_wrap=not sys.stdout.isatty())
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:  # no screen to fit into: as wide as the text is
        wide = Console(width=10_000)
        console = Console(width=Measurement.get(wide, wide.options, grid).maximum)
    console.print(grid)


@contextmanager
def patience(text: str, after_s: float = 1.0) -> Iterator[None]:
    """Say on stderr what is going on, if it takes longer than `after_s` seconds."""
    timer = threading.Timer(after_s, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compiled() -> None:
    """Compile the searches, once after installation, before the clock of any runs."""
    from adaptpipe.solver.warming import is_warm, warm_up

    if not is_warm():
        say("compiling the searches; this happens once after installation and takes some minutes …")
        warm_up()


def compilation_notice() -> str:
    """What to say while nothing seems to happen: whether compiled code is there from an earlier run."""
    import adaptpipe.solver as solver

    home = os.environ.get("NUMBA_CACHE_DIR") or str(Path(solver.__file__).parent)
    if any(Path(home).rglob("*.nbi")):
        return "loading …"
    return "compiling; this happens once after installation …"


def require_writable(output: Path | None) -> None:
    """Refuse an output file that cannot be written, before the work is done.

    Raises
    ------
    InputError
        When its folder is missing, or it is a folder.
    """
    if output is None:
        return
    if output.is_dir():
        raise InputError(f"{output}: is a folder; give the name of a file")
    if not output.parent.is_dir():
        raise InputError(f"{output}: the folder {output.parent} does not exist; make it first")
    if not os.access(output.parent, os.W_OK):
        raise InputError(f"{output}: the folder {output.parent} cannot be written to")


def make_folder(folder: Path, place: str, remedy: str = "choose another") -> Path:
    """Make a folder, or see that files can be written to it; `place` is the key or option that asks for it.

    Raises
    ------
    InputError
        When it cannot be made, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place}: the folder {folder} cannot be made ({error.strerror}); {remedy}") from None
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror
        raise InputError(f"{place}: the folder {folder} cannot be written to ({reason}); {remedy}") from None
    return folder


def figures(timeline: Timeline) -> list[tuple[str, str]]:
    """The figures of a timeline for people: (name, value)."""
    from adaptpipe.solver.core.stream import staleness, weight_copies
    from adaptpipe.solver.core.updates import MEANING

    problem = timeline.problem
    rows = [
        ("makespan", f"{timeline.makespan:,} {problem.unit}"),
        ("makespan bubble", f"{timeline.bubble:.2%}"),
        ("span", f"{timeline.span:,} {problem.unit}"),
        ("span bubble", f"{timeline.span_bubble:.2%}"),
        ("utilisation", f"{timeline.utilisation:.2%}"),
        ("messages", f"{timeline.messages:,}"),
        ("micro-batches", _microbatches(timeline.schedule)),
        (
            "backwards",
            f"{timeline.schedule.fused_share:.0%} fused, {timeline.schedule.cut_share:.0%} with W in several ranges",
        ),
        ("peak memory", peaks(problem, timeline.peak_memory)),
    ]
    if timeline.steady is not None:
        schedule, steady = timeline.schedule, timeline.steady
        late = ", ".join(f"{float(each):.3g}" for each in staleness(schedule))
        rows += [
            ("updates", f"{schedule.updates}: {MEANING[schedule.updates]}"),
            ("copies of weights", f"{', '.join(map(str, weight_copies(schedule)))} by stage"),
            ("updates late", f"{late} by stage"),
            ("steady state", f"{float(steady.microbatch):,.6g} {problem.unit} for each micro-batch"),
            ("steady bubble", f"{steady.bubble:.2%}"),
        ]
    if problem.limited:
        rows.append(("memory limit", peaks(problem, problem.memory.limit)))
    return rows


MOST_RUNS = 24
"""Runs of equal micro-batch sizes beyond which only the least and the largest are shown."""


def _microbatches(schedule: Schedule) -> str:
    text = f"{schedule.microbatches // schedule.slices}, of size {sizes_text(schedule.sizes)}"
    return text + (f", each in {schedule.slices} slices" if schedule.slices > 1 else "")


def sizes_text(sizes: Sequence[int], most: int = MOST_RUNS) -> str:
    """Micro-batch sizes in order, runs of equal ones as "(3 times)"; from least to largest where there are many runs.

    Examples
    --------
    >>> sizes_text((1, 2, 4, 4, 4)), sizes_text((1, 2, 4), 1)
    ('1, 2, 4 (3 times)', '1 to 4')
    """
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    if len(runs) == 1:
        return str(runs[0][0])
    if len(runs) > most:
        return f"{min(sizes)} to {max(sizes)}"
    return ", ".join(str(size) if count == 1 else f"{size} ({count} times)" for size, count in runs)


def peaks(problem: Problem, values: Sequence[int | None]) -> str:
    """Bytes of each rank as text, once where all are equal, in the problem's memory unit."""
    from adaptpipe.solver.core.problem import BYTES
    from adaptpipe.solver.evaluate.limits import amount, readable_unit

    unit = readable_unit(max((value for value in values if value is not None), default=0), problem.memory.unit)
    texts = ["none" if value is None else amount(value / BYTES[unit]) for value in values]
    same = len(set(texts)) == 1
    if same:
        return texts[0] if texts[0] == "none" else f"{texts[0]} {unit} on every rank"
    if len(texts) > 16:
        known = [value for value in values if value is not None]
        return f"{amount(min(known) / BYTES[unit])} to {amount(max(known) / BYTES[unit])} {unit} by rank"
    return f"{', '.join(texts)} {unit} by rank"


def pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print (name, value) lines on stdout, aligned."""
    wide = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{wide}}  {value}")
