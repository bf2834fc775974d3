"""`adaptpipe profile`: measure the stages of a run file on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptpipe.solver import InputError

from .common import emit, json_option, table
from .run import require_torch
from .run_file import load_run


def profile(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file; see examples/gpt-text.toml.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Overrule a key of the file; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PROBLEM.json", help="Write the problem that follows.")
    ] = None,
    json: json_option = False,
) -> None:
    """Measure seconds and bytes of F, I, W and B of every stage, and of messages, inside a running pipeline."""
    spec = load_run(file, settings or [])
    require_torch()
    from adaptpipe.executor import launch

    from .training import configure, profile_rank

    configure(spec)
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output}: the folder {output.parent} is not there; make it first")
    measured = launch(profile_rank, spec.ranks, spec)[0]
    problem = measured.problem(spec.place(), spec.samples, spec.microbatch_sizes, name=file.stem)
    if output is not None:
        problem.save(output)
    if json:
        import msgspec

        emit(msgspec.to_builtins(measured))
        return
    rows = []
    for part in measured.parts:
        for m in part.measurements:
            times = (m.forward_s, m.backward_input_s, m.backward_weight_s, m.backward_s)
            held = (m.activation, m.retained, m.message)
            rows.append(
                [part.name, str(m.size), *(f"{t * 1e3:.2f}" for t in times), *(f"{b / 2**20:.2f}" for b in held)]
            )
    table(["stage", "size", "F ms", "I ms", "W ms", "B ms", "after F MiB", "after I MiB", "message MiB"], rows)
    speed = "" if measured.bandwidth is None else f" + bytes / {measured.bandwidth / 1e9:.2f} GB/s"
    print(f"message: {measured.latency_s * 1e3:.2f} ms{speed}; device: {measured.device}")
