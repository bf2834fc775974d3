"""Many questions at once: what if there were more ranks, or less memory? Results are kept line by line, and merged."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from adaptpipe.solver import AdaptPipeError, InputError, NoAnswerError
from adaptpipe.solver.files.reading import read_text, write_text

from ..common import make_folder, require_writable
from .asking import Effort, ask
from .figures import row
from .question import Question, axis, vary

MOST_CASES = 100_000

SUFFIXES = (".jsonl", ".json")
"""Of files of cases; other names are those of folders."""

LONG = ("todays", "robustness", "memory_kinds")
"""Figures that a case leaves out: there may be thousands."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question of several.

    Attributes
    ----------
    changes
        The axes' values, as text.
    question, effort
        What is asked, and what it may take.
    """

    changes: Mapping[str, str]
    question: Question
    effort: Effort

    @property
    def key(self) -> str:
        """What tells it from others, across runs."""
        asked = {"time_limit": self.effort.time_limit, "seed": self.effort.seed}
        asked |= {key: value for key, value in asdict(self.question).items() if value is not None}
        return msgspec.json.encode(asked).decode()


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finished case, as a line of a file.

    Attributes
    ----------
    case
        The axes' values.
    key
        `Case.key`.
    row
        The figures, but for `LONG` ones; None where there is no plan.
    reason
        Why there is none.
    """

    case: dict[str, str]
    key: str
    row: dict[str, Any] | None = None
    reason: str = ""


def cases_of(options: dict[str, Any], words: Sequence[str], effort: Effort) -> tuple[Case, ...]:
    """Every combination of the axes' values.

    Parameters
    ----------
    options
        Fields of `Question` that all cases share.
    words
        Axes: "ranks=4,8".

    Raises
    ------
    InputError
        When a word is no axis, an axis comes twice, or there are too many combinations.
    """
    axes = [axis(word) for text in words for word in text.split()]
    names = [name for name, _ in axes]
    if not names:
        raise InputError("--what-if: give axes and their values, as in ranks=4,8 memory=80,141")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--what-if: {name} comes twice; give all its values at once, as in {name}=A,B")
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST_CASES:
        raise InputError(f"--what-if: {count:,} cases; {MOST_CASES:,} is the most")
    combined = (dict(zip(names, values, strict=True)) for values in product(*(values for _, values in axes)))
    return tuple(Case(changes, vary(options, changes), effort) for changes in combined)


def shard_of(text: str | None) -> tuple[int, int]:
    """Which part of the cases, of how many.

    Raises
    ------
    InputError
        When it is not i/n with 1 <= i <= n.

    Examples
    --------
    >>> shard_of("2/4"), shard_of(None)
    ((2, 4), (1, 1))
    """
    if text is None:
        return 1, 1
    part, slash, count = text.partition("/")
    if not (slash and part.isascii() and part.isdigit() and count.isascii() and count.isdigit()):
        raise InputError(f"--shard {text}: must be i/n, as in 2/8: the second of eight parts")
    if int(count) < 1:
        raise InputError(f"--shard {text}: there must be one part at least")
    if not 1 <= int(part) <= int(count):
        raise InputError(f"--shard {text}: parts are counted from 1, so it must be 1/{count} to {count}/{count}")
    return int(part), int(count)


def file_of(output: Path | None, part: int, parts: int) -> Path | None:
    """Where the cases of a shard are kept; in a folder, which is made, each shard has a file of its own.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    if output is None:
        return None
    if output.suffix in SUFFIXES:
        place = output
    else:
        make_folder(output, "--output", "a file's name ends in .jsonl")
        place = output / f"cases-{part}-of-{parts}.jsonl"
    require_writable(place)
    return place


def answer_case(case: Case) -> Line:
    """Answer a case; that it has no answer is one, too."""
    found: dict[str, Any] | None = None
    reason = ""
    try:
        about, answer = ask(case.question, case.effort)
        if answer.interrupted:
            raise KeyboardInterrupt
        found = {key: value for key, value in row(about, answer).items() if key not in LONG}
    except AdaptPipeError as error:
        reason = str(error)
    return Line(dict(case.changes), case.key, found, reason)


def run_cases(cases: Sequence[Case], jobs: int) -> Generator[Line]:
    """Answers as they come, from several processes or from this one."""
    if jobs == 1 or len(cases) <= 1:
        yield from map(answer_case, cases)
        return
    context = multiprocessing.get_context("forkserver")
    with closing(context.Pool(min(jobs, len(cases)), _quiet)) as pool:
        try:
            yield from pool.imap_unordered(answer_case, cases)
        finally:  # also where whoever reads has had enough
            pool.terminate()


def _quiet() -> None:
    """Ctrl-C is answered by the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def read_lines(path: Path) -> tuple[Line, ...]:
    """Finished cases of a file; a last line that was cut off is none.

    Raises
    ------
    InputError
        When a line is none of ours.
    """
    texts = read_text(path).split("\n")
    found = []
    for number, text in enumerate(texts, 1):
        if not text:
            continue
        try:
            found.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError as error:
            if number == len(texts):
                break
            raise InputError(f"{path}: line {number}: {error}; it is no file of --what-if") from None
    return tuple(found)


def keep_lines(path: Path, lines: Sequence[Line]) -> None:
    """Write a file of finished cases."""
    write_text(path, "".join(msgspec.json.encode(line).decode() + "\n" for line in lines))


def merged(paths: Sequence[Path]) -> tuple[Line, ...]:
    """Finished cases of several files, each case once, the first that there is.

    Raises
    ------
    InputError
        When there are no files, or one cannot be read.
    """
    if not paths:
        raise InputError("--merge: give the files to merge, as in --merge cases/*.jsonl")
    found: dict[str, Line] = {}
    for path in paths:
        for line in read_lines(path):
            found.setdefault(line.key, line)
    return tuple(found.values())


def resume(
    cases: Sequence[Case], path: Path | None, jobs: int, tell: Callable[[Line, int, int], None]
) -> tuple[Line, ...]:
    """Answer the cases that a file does not have yet, and add each to it as soon as it is there.

    Returns
    -------
    tuple of Line
        All, in the order of the cases.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; what is finished by then is in the file.
    """
    done: dict[str, Line] = {}
    if path is not None and path.exists():
        known = read_lines(path)
        keep_lines(path, known)  # without a line that was cut off
        done = {line.key: line for line in known}
    todo = [case for case in cases if case.key not in done]
    with closing(run_cases(todo, jobs)) as answers:
        for count, line in enumerate(answers, 1):
            done[line.key] = line
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(msgspec.json.encode(line).decode() + "\n")
            tell(line, count, len(todo))
    return tuple(done[case.key] for case in cases)


def require_any(lines: Sequence[Line]) -> None:
    """Refuse to call it an answer where no case has a plan.

    Raises
    ------
    NoAnswerError
        With the first reason.
    """
    if lines and all(line.row is None for line in lines):
        raise NoAnswerError(f"none of the {len(lines)} cases has a plan; the first: {lines[0].reason}")
