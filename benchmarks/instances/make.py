"""Write the problem files of this folder from the numbers of their sources: `python -m benchmarks.instances.make`.

Memory is counted in multiples of 1F1B's: at 1x every rank may hold p times what F of one micro-batch holds on a
stage, or 2p times what it holds on one of the rank's two halves of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SEQUENCE = 1024
DIMENSIONS = {"1.5b": (2304, 24), "6.2b": (4096, 32), "14.6b": (5120, 40), "28.3b": (6144, 48)}
"""Hidden size h and attention heads a of the zero-bubble paper's models (arXiv 2401.10241, Table 3)."""

LAYERS = {"1.5b": 3, "6.2b": 4, "14.6b": 3, "28.3b": 2}
"""Layers of an inner stage of its Table 5: the first and the last have one fewer, beside embedding and head, and the
times are those of all stages in the mean."""

TABLE_5 = (
    ("1.5b", 8, 24, 18522, 18086, 9337, 601),
    ("1.5b", 8, 32, 18513, 18086, 9331, 626),
    ("1.5b", 8, 64, 18546, 18097, 9321, 762),
    ("6.2b", 8, 24, 29718, 29444, 19927, 527),
    ("6.2b", 8, 32, 29802, 29428, 19530, 577),
    ("6.2b", 8, 64, 29935, 29621, 19388, 535),
    ("14.6b", 16, 48, 11347, 11248, 8132, 377),
    ("14.6b", 16, 64, 11307, 11254, 8101, 379),
    ("14.6b", 16, 128, 11325, 11308, 8109, 378),
    ("28.3b", 32, 96, 10419, 10207, 7715, 408),
    ("28.3b", 32, 128, 10408, 10204, 7703, 408),
    ("28.3b", 32, 256, 10402, 10248, 7698, 460),
)
"""Model, p, m, F, I, W and message in us: Table 9 of arXiv 2401.10241, the times behind its Table 5."""

TABLE_8 = (
    ("6.2b", 16, 48, 14407, 14380, 9676, 1610),
    ("6.2b", 16, 64, 14412, 14393, 9688, 1621),
    ("6.2b", 16, 128, 14316, 14306, 9639, 1619),
    ("14.6b", 24, 72, 6763, 6969, 5251, 755),
    ("14.6b", 24, 96, 6783, 6984, 5259, 758),
    ("14.6b", 24, 192, 6785, 6990, 5260, 770),
    ("28.3b", 32, 96, 9458, 9748, 7288, 879),
    ("28.3b", 32, 128, 9469, 9744, 7306, 892),
    ("28.3b", 32, 256, 9447, 9644, 7193, 887),
)
"""The same of one chunk, half a stage: the inputs of Table 8, in `v_schedule.py` of the authors' tag v0.1.0."""

STAGE_1_5B = (18500, 18100, 9300, 600)
"""F, I, W and message in us: 1.5B of Table 9, rounded to 0.1 ms."""

HALF_1_5B = (9300, 9100, 4700, 600)
"""Of half a stage, rounded up to 0.1 ms; the message is as long."""

MEMORY_1_5B = (201, 74)
"""MB that F of 1000 tokens holds in one layer, and what of it I leaves to W: 34h + 5as and 32h of 1.5B, rounded."""

UNEVEN = {
    "forward": (30715, 29233, 29106, 41678),
    "backward_input": (31308, 29344, 29357, 38731),
    "backward_weight": (18746, 18789, 19062, 32833),
    "activation": (943, 1240, 1240, 1071),
    "retained": (410, 552, 552, 483),
}
"""Stages 0, 1, 2 and 7 of the profile of 6.2B on 8 ranks, measured with embedding and head: us, and MB."""

UNEVEN_MESSAGE, UNEVEN_UNIT = 473, 1240
"""Its message in us, and the memory that counts as one activation: that of an inner stage, in MB."""

TIMES = {"0.5x": (1, 2), "0.75x": (3, 4), "1x": (1, 1), "1.5x": (3, 2), "2x": (2, 1)}
"""Multiples of 1F1B's memory, as numerator and denominator."""


@dataclass(frozen=True, slots=True)
class Instance:
    """What goes into a problem file; a tuple gives one value for each stage."""

    name: str
    comments: tuple[str, ...]
    ranks: int
    placement: str
    samples: int
    forward: int | tuple[int, ...]
    backward_input: int | tuple[int, ...]
    backward_weight: int | tuple[int, ...]
    latency: int
    memory_unit: str
    activation: int | tuple[int, ...]
    retained: int | tuple[int, ...]
    limit: int
    layers: int = 1
    message: int = 0

    def text(self) -> str:
        """The file."""
        per_rank = "stages_per_rank = 2\n" if self.placement == "loop" else ""
        message = f"bytes = {self.message}\n" if self.message else ""
        layers = "" if self.layers == 1 else f"layers_per_stage = {self.layers}\n"
        return "".join(f"# {comment}\n" for comment in self.comments) + (
            f'name = "{self.name}"\nunit = "us"\n\n'
            f'[pipeline]\nranks = {self.ranks}\nplacement = "{self.placement}"\n{per_rank}{layers}\n'
            f"[batch]\nsamples = {self.samples}\nmicrobatch_sizes = [1]\n\n"
            f"[costs]\nforward = {_value(self.forward)}\nbackward_input = {_value(self.backward_input)}\n"
            f"backward_weight = {_value(self.backward_weight)}\n\n"
            f'[memory]\nunit = "{self.memory_unit}"\nactivation = {_value(self.activation)}\n'
            f"retained = {_value(self.retained)}\nlimit = {self.limit}\n\n"
            f"[links]\nlatency = {self.latency}\n{message}"
        )


def instances() -> Iterator[Instance]:
    """Every instance of this folder."""
    for row in TABLE_5:
        yield from _table_5(*row)
    for row in TABLE_8:
        yield from _table_8(*row)
    yield _model_1_5b("linear", 64, 512, "1x")
    for ranks, samples in ((8, 24), (8, 64), (16, 48), (16, 128), (32, 96), (32, 256)):
        yield _model_1_5b("v", ranks, samples, "1x")
    yield _model_1_5b("loop", 16, 128, "1x")
    for ranks, samples, times in ((8, 24, "0.75x"), (8, 24, "0.5x"), (16, 48, "0.5x")):
        yield _model_1_5b("linear", ranks, samples, times)
    for ranks, samples in ((8, 24), (8, 64), (16, 128)):
        yield _model_1_5b("v", ranks, samples, "0.5x")
    for placement in ("linear", "v"):
        for samples in (8, 16):
            for times in TIMES:
                yield _model_1_5b(placement, 4, samples, times)
                yield _uneven(placement, samples, times)


def main() -> None:
    """Write the files."""
    for instance in instances():
        (HERE / f"{instance.name}.toml").write_text(instance.text(), encoding="utf-8")


def _table_5(
    model: str, ranks: int, samples: int, forward: int, backward_input: int, backward_weight: int, latency: int
) -> Iterator[Instance]:
    activation, retained, comment = _of_one_layer(model)
    for suffix, times, rates in (("", 1, "and Table 5 (bubble rates)"), ("-2x", 2, "at twice the memory")):
        head = f"arXiv 2401.10241, Table 9 (times) {rates}: {model.upper()}, p = {ranks}, m = {samples}; limit: "
        yield Instance(
            name=f"zb-table5-{model}-p{ranks}-m{samples}{suffix}",
            comments=(
                head + f"{'p' if times == 1 else '2p'} activations.",
                f"{comment}; only their ratio matters.",
                "bytes: of the message of one token, 2h; they take no time of their own, latency has it.",
            ),
            ranks=ranks,
            placement="linear",
            samples=samples,
            forward=forward,
            backward_input=backward_input,
            backward_weight=backward_weight,
            latency=latency,
            memory_unit="B",
            activation=activation,
            retained=retained,
            limit=times * ranks * activation,
            layers=LAYERS[model],
            message=2 * DIMENSIONS[model][0],
        )


def _table_8(
    model: str, ranks: int, samples: int, forward: int, backward_input: int, backward_weight: int, latency: int
) -> Iterator[Instance]:
    activation, retained, comment = _of_one_layer(model)
    for placement, chunks, limit in (("linear", 2, "p of its activations"), ("v", 1, "2p of its activations")):
        number = "two chunks" if chunks == 2 else "one chunk"
        yield Instance(
            name=f"zb-table8-{model}-p{ranks}-m{samples}-{placement}",
            comments=(
                f"arXiv 2401.10241, Table 8: {model.upper()}, p = {ranks}, m = {samples}; times from the authors' "
                f"v_schedule.py (tag v0.1.0), {number} a stage; limit: {limit}.",
                f"{comment}, for each chunk; only their ratio matters.",
            ),
            ranks=ranks,
            placement=placement,
            samples=samples,
            forward=chunks * forward,
            backward_input=chunks * backward_input,
            backward_weight=chunks * backward_weight,
            latency=latency,
            memory_unit="B",
            activation=chunks * activation,
            retained=chunks * retained,
            limit=2 * ranks * activation,
        )


def _of_one_layer(model: str) -> tuple[int, int, str]:
    """Bytes that F of one token holds in one layer, those that W frees, and a comment: the paper's formulas."""
    hidden, heads = DIMENSIONS[model]
    comment = (
        "activation and retained: bytes of one token in one layer, 34h + 5as and 32h "
        f"(h = {hidden}, a = {heads}, s = {SEQUENCE})"
    )
    return 34 * hidden + 5 * heads * SEQUENCE, 32 * hidden, comment


def _model_1_5b(placement: str, ranks: int, samples: int, times: str) -> Instance:
    """The model 1.5B on any number of ranks, each with one stage or two halves of one."""
    halves = placement != "linear"
    forward, backward_input, backward_weight, latency = HALF_1_5B if halves else STAGE_1_5B
    activation, retained = MEMORY_1_5B
    up, down = TIMES[times]
    unit = ranks * activation * (2 if halves else 1)
    assert unit * up % down == 0
    return Instance(
        name=f"{placement}-1.5b-p{ranks}-m{samples}-{times}",
        comments=(
            "1.5B of arXiv 2401.10241, Table 9, in 0.1 ms" + (", each stage in two halves" if halves else ""),
            f"limit: {times} of 1F1B's memory, {up * unit // down // activation} activations; activation and retained: "
            "34h + 5as and 32h",
        ),
        ranks=ranks,
        placement=placement,
        samples=samples,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        latency=latency,
        memory_unit="MB",
        activation=activation,
        retained=retained,
        limit=unit * up // down,
    )


def _uneven(placement: str, samples: int, times: str) -> Instance:
    """Four unequal stages; on V each is cut into two halves, and the chain of eight is folded."""
    cut = 2 if placement == "v" else 1
    costs = {key: tuple(-(-value // cut) for value in values for _ in range(cut)) for key, values in UNEVEN.items()}
    ranks = len(UNEVEN["forward"])
    up, down = TIMES[times]
    return Instance(
        name=f"{placement}-6.2b-uneven-p{ranks}-m{samples}-{times}",
        comments=(
            "Stages 0, 1, 2 and 7 of the measured profile of 6.2B, with embedding and head, from auto_schedule.py",
            "of sail-sg/zero-bubble-pipeline-parallelism, tag v0.1.0"
            + ("; each in two halves, rounded up, the eight folded" if cut == 2 else ""),
            f"limit: {times} of p activations of an inner stage ({UNEVEN_UNIT} MB)",
        ),
        ranks=ranks,
        placement=placement,
        samples=samples,
        latency=UNEVEN_MESSAGE,
        memory_unit="MB",
        limit=ranks * UNEVEN_UNIT * up // down,
        layers=1,
        message=0,
        **costs,
    )


def _value(value: int | tuple[int, ...]) -> str:
    return str(value) if isinstance(value, int) else str(list(value))


if __name__ == "__main__":
    main()
