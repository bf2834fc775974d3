"""`adaptpipe profile`: measure the stages of a run file on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import emit, json_option, require_writable, table
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
    require_writable(output)
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
                [
                    part.name,
                    str(m.size),
                    *(f"{t * 1e3:.2f}" for t in times),
                    *(f"{b / 2**20:.3g}" for b in held),
                    f"{part.deferred:.0%}",
                ]
            )
    table(["stage", "size", "F ms", "I ms", "W ms", "B ms", "after F MiB", "after I MiB", "message MiB", "in W"], rows)
    speed = "" if measured.bandwidth is None else f" + bytes / {measured.bandwidth / 1e9:.2f} GB/s"
    print("in W: share of the stage's parameters whose gradient W computes; the others' is part of I")
    print(f"message: {measured.latency_s * 1e3:.2f} ms{speed}; device: {measured.device}")
