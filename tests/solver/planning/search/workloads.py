"""Random workloads, with everything that a plan's prices depend on."""

from __future__ import annotations

from random import Random

from adaptpipe.solver.core.cluster import Cluster
from adaptpipe.solver.core.profile import Measurement, Part, Profile
from adaptpipe.solver.planning.workload import Tie, Workload


def random_workload(random: Random, ranks: int, layers: int, samples: int, sizes: tuple[int, ...]) -> Workload:
    """Layers of three sorts, ranks of two speeds, two sorts of links, a tie, little memory on some ranks."""

    def part(index: int) -> Part:
        sort, ms = random.randrange(3), random.random
        fixed, act = 1e-5 * sort, random.randrange(1, 900)
        rows = []
        for size in sizes:
            f, i, w = (fixed + 1e-4 * size * (1 + ms()) for _ in range(3))
            kept = random.randrange(0, 2 * act) * size
            fused, own = (i + w) * random.choice((0.9, 1.0)), random.randrange(500) * size
            rows.append(Measurement(size, f, i, w, fused, act * size, kept, 1000 * size, transient=own))
        return Part(f"layer {index}", random.randrange(20, 70), tuple(rows))

    def rows(values: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(random.choice(values) for _ in range(ranks)) for _ in range(ranks))

    cluster = Cluster(
        "random",
        tuple(random.choice((1.0, 0.6, 0.8376)) for _ in range(ranks)),
        tuple(random.choice((None, 20_000 * max(sizes))) for _ in range(ranks)),
        rows((1.5e-5, 3e-5)),
        rows((3e9, 1.7e8)),
    )
    profile = Profile("random", tuple(part(index) for index in range(layers)), 0.0, op_s=8e-5)
    return Workload("random", profile, cluster, samples, sizes, (Tie((0, layers - 1), 20),))
