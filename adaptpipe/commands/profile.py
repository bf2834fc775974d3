"""`adaptpipe profile`: measure the stages of a run file, its model's layers, or the links between its ranks."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptpipe.solver import InputError, Kind, Part, Profile

from .common import emit, json_option, require_writable, table
from .run import is_first_process, require_torch
from .run_file import RunSpec, load_run


class DeviceKind(StrEnum):
    """Where layers are measured."""

    cpu = "cpu"
    cuda = "cuda"


class NumberKind(StrEnum):
    """What layers are measured with, by torch's names."""

    float32 = "float32"
    bfloat16 = "bfloat16"


def _lengths(text: str) -> str:
    for each in text.split(",") if text else ():
        if not (each.strip().isdecimal() and int(each) > 0):
            raise typer.BadParameter(f"{each!r} is not a length; write --sequences 128,256")
    return text


def profile(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file; see examples/gpt-text.toml.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Overrule a key of the file; may be repeated."),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Measure each layer of the model alone, for `adaptpipe plan --profile`.")
    ] = False,
    links: Annotated[
        bool, typer.Option("--links", help="Measure the links between the ranks, for `adaptpipe plan --cluster`.")
    ] = False,
    sequences: Annotated[
        str,
        typer.Option(
            "--sequences", metavar="N,N", callback=_lengths, help="With --layers: tokens of a sample, each in turn."
        ),
    ] = "",
    device: Annotated[
        DeviceKind, typer.Option("--device", help="With --layers or --links: where to measure.")
    ] = DeviceKind.cpu,
    dtype: Annotated[
        NumberKind, typer.Option("--dtype", help="With --layers or --links: numbers that are computed with.")
    ] = NumberKind.float32,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the problem that follows; with --layers the profile, with --links a cluster file.",
        ),
    ] = None,
    json: json_option = False,
) -> None:
    """Measure seconds and bytes of F, I, W and B of every stage, and of messages, inside a running pipeline.

    Also what sizes of work cost: what B saves of I + W, the units of W and a range of them, and, over several
    micro-batch sizes, the fixed and the per-sample part of each op with the error of that fit.
    """
    spec = load_run(file, settings or [])
    require_torch()
    require_writable(output)
    if layers and links:
        raise InputError("--layers and --links: give one of them, and then the other")
    if sequences and not layers:
        raise InputError("--sequences: goes with --layers; add it, or leave --sequences out")
    for name, given, default in (("device", device, "cpu"), ("dtype", dtype, "float32")):
        if given != default and not layers and not links:
            raise InputError(f"--{name}: goes with --layers or --links; add one, or leave --{name} out")
    if device == "cuda":
        _require_cuda()
    if layers:
        _layers(spec, sequences, device, dtype, output, json)
    elif links:
        _links(spec, device, dtype, output, json)
    else:
        _stages(spec, file.stem, output, json)


def _require_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no GPU here; leave it out, or install torch for CUDA")


def _layers(spec: RunSpec, sequences: str, device: str, dtype: str, output: Path | None, json: bool) -> None:
    from .layers import Bench, profile_layers, show_layers

    lengths = tuple(int(each) for each in sequences.split(",")) if sequences else ()
    measured = profile_layers(Bench(spec, lengths, str(device), str(dtype)))
    if not is_first_process():
        return
    if output is not None:
        measured.save(output)
    if json:
        emit(measured.spec)
    else:
        show_layers(measured)


def _links(spec: RunSpec, device: str, dtype: str, output: Path | None, json: bool) -> None:
    from .links import content, profile_links, require_cluster_name, save_cluster, show_links

    require_cluster_name(output)
    cluster = profile_links(spec, str(device), str(dtype))
    if not is_first_process():
        return
    if output is not None:
        save_cluster(cluster, output)
    if json:
        emit(content(cluster))
    else:
        show_links(cluster)


def _stages(spec: RunSpec, name: str, output: Path | None, json: bool) -> None:
    from .training import launch_ranks, profile_rank

    measured = launch_ranks(profile_rank, spec)[0]
    if not is_first_process():
        return
    whole = measured.problem(spec.place(), spec.pipeline_samples, spec.microbatch_sizes, name=name)
    problem = replace(whole, slices=spec.sequence_slices)
    if output is not None:
        problem.save(output)
    if json:
        emit(_as_data(measured))
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
    print("in W: share of the stage's parameters whose gradient W computes; the others' is part of I")
    several = any(len(part.measurements) > 1 for part in measured.parts)
    heads = ["stage", "B saves", "units of W", "range ms"]
    if several:
        heads += ["/".join(kind.name for kind in Kind) + f" {what}" for what in ("fixed", "fit error")]
    table(heads, [[part.name, *_granularity(part, several)] for part in measured.parts])
    print("B saves: part of I + W; units of W: shares of its work; range: cost of each range of units beyond the first")
    if several:
        smallest = measured.parts[0].measurements[0].size
        print(
            f"fixed: share of the time at size {smallest} that does not depend on the size, by a line over the sizes; "
            "fit error: largest deviation of a measured time from that line"
        )
    speed = "" if measured.bandwidth is None else f" + bytes / {measured.bandwidth / 1e9:.2f} GB/s"
    print(f"message: {measured.latency_s * 1e3:.2f} ms{speed}; device: {measured.device}")


def _granularity(part: Part, several: bool) -> list[str]:
    """What the sizes of work cost, as cells of a table."""
    units = "+".join(f"{work / sum(part.unit_work):.0%}" for work in part.unit_work)
    cells = [f"{part.fused_saving:+.1%}", units, f"{part.range_s * 1e3:.3f}"]
    if several:
        smallest = part.measurements[0].size
        cells.append("/".join(f"{100 * part.line(kind).fixed_share(smallest):.0f}" for kind in Kind) + "%")
        cells.append("/".join(f"{100 * part.fit_error(kind):.1f}" for kind in Kind) + "%")
    return cells


def _as_data(profile: Profile) -> dict[str, object]:
    """The profile, and what follows from it, for JSON."""
    import msgspec

    data: dict[str, object] = msgspec.to_builtins(profile)
    data["parts"] = [
        {
            **msgspec.to_builtins(part),
            "fused_saving": part.fused_saving,
            "range_s": part.range_s,
            "fits": {
                kind.name: {
                    "fixed_s": float(part.line(kind).fixed),
                    "per_sample_s": float(part.line(kind).per_sample),
                    "error": part.fit_error(kind),
                }
                for kind in Kind
            },
        }
        for part in profile.parts
    ]
    return data
