"""How today's frameworks cut a model into stages: rules that look at the sorts of layers, not at what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ...core.placement import Placement
from ...core.profile import Profile
from ..workload import Split

EMBEDDING = ("embedding", "embed")
"""Kinds of the layer that reads tokens."""

TAIL = ("head", "mtp")
"""Kinds that come after the last block: the head, and the blocks that predict further tokens."""

TOWER = ("vision", "vit")
"""Kinds of the blocks of a vision tower."""

FIRST_HALF, SECOND_HALF = ("attention", "attn"), ("mlp", "moe")
"""Kinds that form one block where they follow each other: no framework cuts inside a block."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A model as the rules see it: what comes before the blocks, the blocks, and what comes after them.

    Parameters
    ----------
    lead
        Number of layers before the first block.
    blocks
        Layers of each block, first to last. An embedding between blocks belongs to the block after it.
    layers
        Number of layers.
    tower
        How many of the blocks, from the first, are a vision tower.
    """

    lead: int
    blocks: tuple[range, ...]
    layers: int
    tower: int = 0

    @property
    def tail(self) -> int:
        """Number of layers after the last block."""
        return self.layers - (self.blocks[-1].stop if self.blocks else self.lead)

    @classmethod
    def of(cls, profile: Profile) -> Anatomy:
        """That of layers in order; a layer of a kind that is not known is a block.

        Examples
        --------
        >>> from adaptpipe.solver.core.profile import Part
        >>> parts = tuple(Part(kind, 0, (), kind=kind) for kind in ("embedding", "attention", "mlp", "block", "head"))
        >>> found = Anatomy.of(Profile("", parts, 0.0))
        >>> found.lead, found.blocks, found.tail
        (1, (range(1, 3), range(3, 4)), 1)
        """
        kinds = [part.kind for part in profile.parts]
        end = len(kinds)
        while end and kinds[end - 1] in TAIL:
            end -= 1
        lead = 0
        while lead < end and kinds[lead] in EMBEDDING:
            lead += 1
        blocks: list[range] = []
        tower, at = 0, lead
        while at < end:
            start = at
            while at < end - 1 and kinds[at] in EMBEDDING:
                at += 1
            paired = kinds[at] in FIRST_HALF and at + 1 < end and kinds[at + 1] in SECOND_HALF
            if kinds[at] in TOWER:
                tower = len(blocks) + 1
            at += 2 if paired else 1
            blocks.append(range(start, at))
        return cls(lead, tuple(blocks), len(kinds), tower)

    def split(self, counts: Sequence[int], tail: Sequence[int] = ()) -> Split | None:
        """Stages of so many blocks each; the lead joins the first, the tail the last.

        Parameters
        ----------
        counts
            Blocks of each stage.
        tail
            Layers of the tail in stages of their own, all of them, after those of `counts`; empty: it joins the last.

        Returns
        -------
        Split | None
            None where the counts do not add up to the blocks, or a stage would be empty.
        """
        if sum(counts) != len(self.blocks):
            return None
        ends = [self.lead, *(block.stop for block in self.blocks)]
        bounds = [0, *(ends[count] for count in accumulate(counts))]
        if tail:
            bounds += [bounds[-1] + count for count in accumulate(tail)]
        else:
            bounds[-1] += self.tail
        split = tuple(range(start, stop) for start, stop in pairwise(bounds))
        return split if all(split) else None


def weighted(anatomy: Anatomy, stages: int, lead: int = 1, tail: int = 1) -> Split | None:
    """torchtitan's rule: the blocks and so many for embedding and head, evenly; earlier stages take the remainder.

    Source: `generate_llm_fqn_per_model_part` in torchtitan/distributed/pipeline_parallel.py (2025), whose weights are
    the options `pipeline_parallel_first_stage_less_layers` and `pipeline_parallel_last_stage_less_layers`, 1 unless
    told otherwise. Fewer blocks than stages, or a weight above the least stage, are refused there, and None here.

    Examples
    --------
    >>> anatomy = Anatomy(1, tuple(range(i, i + 1) for i in range(1, 43)), 44)
    >>> [len(part) for part in weighted(anatomy, 8)]
    [6, 6, 6, 6, 5, 5, 5, 5]
    """
    each, longer = divmod(len(anatomy.blocks) + lead + tail, stages)
    if not each or (stages > 1 and max(lead, tail) > each):
        return None
    counts = [each + (stage < longer) for stage in range(stages)]
    counts[0] -= lead
    counts[-1] -= tail
    return anatomy.split(counts)


def even(anatomy: Anatomy, placement: Placement) -> Split | None:
    """The same number of blocks in each stage, embedding and head on top; earlier stages take the remainder."""
    return weighted(anatomy, placement.stage_count, 0, 0)


def torchtitan(anatomy: Anatomy, placement: Placement) -> Split | None:
    """torchtitan's rule as it comes: embedding and head count as one block each."""
    return weighted(anatomy, placement.stage_count)


def _counted(lead: int, tail: int) -> Callable[[Anatomy, Placement], Split | None]:
    def rule(anatomy: Anatomy, placement: Placement) -> Split | None:
        exact = not (len(anatomy.blocks) + lead + tail) % placement.stage_count
        return weighted(anatomy, placement.stage_count, lead, tail) if exact else None

    return rule


def fewer_at_the_ends(anatomy: Anatomy, placement: Placement) -> Split | None:
    """Megatron-Core's uneven split: the ranks between share evenly, the first and the last take the rest by half.

    Source: `--decoder-first-pipeline-num-layers` and `--decoder-last-pipeline-num-layers` in Megatron-LM. What to give
    them is the user's to say. Here the ranks between take the least number of blocks with which the ends have fewer,
    the first one more than the last where halves differ. With several stages on a rank these share its blocks evenly.
    Exists for linear and loop placements.
    """
    ranks = placement.ranks
    rounds = placement.stage_count // ranks
    if ranks < 3 or placement.name not in ("linear", "loop"):
        return None
    each = -(-len(anatomy.blocks) // ranks)
    each += -each % rounds
    rest = len(anatomy.blocks) - each * (ranks - 2)
    first, last = rest - rest // 2, rest // 2
    if not 0 < last < each or first % rounds or last % rounds:
        return None
    row = [first, *[each] * (ranks - 2), last]
    return anatomy.split([count // rounds for count in row] * rounds)


DEEPSEEK_V3 = {
    4: (16, 16, 16, 13),
    8: (8,) * 7 + (5,),
    16: (4,) * 15 + (1,),
    32: (3,) + (2,) * 29,
}
"""Blocks of each stage, by the number of stages, in the layouts that were published for DeepSeek-V3's 61 blocks."""


def deepseek_v3(anatomy: Anatomy, placement: Placement) -> Split | None:
    """The layouts in which DeepSeek-V3 is trained; exists for 61 blocks, a block that predicts further, and a head.

    Source: `_get_deepseek_v3_pipeline_layout` in megatron/bridge/recipes/deepseek/h100/deepseek_v3.py (NVIDIA,
    Megatron-Bridge) for up to 16 stages; for 32 the layout `Et*3|(tt|)*29m|L` of Megatron-Core's guide to mixtures of
    experts, with the predicting block and the head on stages of their own.
    """
    stages = placement.stage_count
    if len(anatomy.blocks) != sum(DEEPSEEK_V3[4]) or anatomy.tail != 2 or stages not in DEEPSEEK_V3:
        return None
    return anatomy.split(DEEPSEEK_V3[stages], (1, 1) if stages == 32 else ())


def _tower_apart(ranks: int) -> Callable[[Anatomy, Placement], Split | None]:
    def rule(anatomy: Anatomy, placement: Placement) -> Split | None:
        if not anatomy.tower or placement.name != "linear" or placement.ranks <= ranks:
            return None
        tower = anatomy.blocks[: anatomy.tower]
        rest = Anatomy(tower[-1].stop, anatomy.blocks[anatomy.tower :], anatomy.layers)
        front = Anatomy(anatomy.lead, tower, tower[-1].stop)
        ahead, behind = weighted(front, ranks, 0, 0), weighted(rest, placement.ranks - ranks, 0, 1)
        if ahead is None or behind is None:
            return None
        return (*ahead, range(tower[-1].stop, behind[0].stop), *behind[1:])

    return rule


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to cut a model into stages without looking at what its layers cost.

    Parameters
    ----------
    name
        In tables.
    split
        Stages for a placement; None where the rule has none.
    """

    name: str
    split: Callable[[Anatomy, Placement], Split | None]


RULES: tuple[Rule, ...] = (
    Rule("even", even),
    Rule("torchtitan", torchtitan),
    Rule("Megatron, embedding counted", _counted(1, 0)),
    Rule("Megatron, loss counted", _counted(0, 1)),
    Rule("Megatron, fewer at the ends", fewer_at_the_ends),
    Rule("DeepSeek-V3", deepseek_v3),
    *(Rule(f"tower on {ranks} rank{'s' * (ranks > 1)}", _tower_apart(ranks)) for ranks in (1, 2, 3)),
)
"""The rules that need no tuning. Megatron-Core's options `account_for_embedding_in_pipeline_split` and
`account_for_loss_in_pipeline_split` ask for equal stages; with both, and with neither, the split is torchtitan's, or
the even one."""


def _weights(lead: int, tail: int) -> Rule:
    return Rule(
        f"torchtitan, weights {lead} and {tail}",
        lambda anatomy, placement: weighted(anatomy, placement.stage_count, lead, tail),
    )


TUNED: tuple[Rule, ...] = tuple(_weights(lead, tail) for lead in range(3) for tail in range(9))
"""torchtitan's rule with every weight of the embedding up to 2 and of the head up to 8: what a patient user finds."""
