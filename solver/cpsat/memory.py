"""Memory limits by counting literals; see `threshold` for where less is enough.

Memory is freed when an op ends and taken when an F starts, so only what comes before an F's start matters; and before
the start of an I where `retained` is above `activation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from ortools.sat.python import cp_model_helper

from .variables import Point, Variables

Literal = cp_model_helper.Literal
Lit = Literal | bool
Key = tuple[int, int]
"""(stage, micro-batch)."""


def counting(v: Variables, rank: int, room: int) -> None:
    """While an F runs, the bytes of every stage and micro-batch that the rank then holds add up to its room at most.

    One counts `activation` from its F on, less `activation - retained` once its backward has ended, less `retained`
    once all of it is done; literals say which of these come before the F. Where `retained` is above `activation` it
    counts the larger from the start of its I, and that I, when not fused, is a point of the same kind as an F.
    """
    instance = v.prices.instance
    items = [(int(s), int(j)) for s, j in np.argwhere(instance.rank == rank)]
    counter = _Counter(v, items, room)
    for key in items:
        if instance.activation[key] > 0:
            counter.at_forward(key)
        if instance.retained[key] > instance.activation[key]:
            counter.at_backward(key)


class _Counter:
    """Literals of one rank, shared between its points."""

    def __init__(self, v: Variables, items: list[Key], room: int) -> None:
        self.v, self.items, self.room = v, items, room
        self._order: dict[tuple[Key, Key], Literal] = {}
        self._last: dict[tuple[int, int, Key], tuple[Literal, Literal]] = {}

    def _passes_first(self, i: int, j: int) -> bool:
        """Whether micro-batch i is j, or passes every stage before j does."""
        prices = self.v.prices
        return i == j or (
            self.v.fifo and bool(prices.group[i] == prices.group[j] and prices.place[i] < prices.place[j])
        )

    def _forward_before(self, one: Key, other: Key) -> Lit:
        """Whether the F of one comes before that of the other."""
        if one[0] <= other[0] and self._passes_first(one[1], other[1]):
            return True
        if other[0] <= one[0] and self._passes_first(other[1], one[1]):
            return False
        for early, late, answer in ((other, one, True), (one, other, False)):
            if self._has_its_turn(early, late):
                return answer
        known = self._order.get((one, other))
        if known is None:
            v, here = self.v, self.v.here(one[1], other[1])
            start, end = v.forward_start(*other), v.forward_finish(*one)
            literal, reverse = v.after(start, end, one[1], other[1]), None
            later, sooner = v.forward_start(*one), v.forward_finish(*other)
            if here:
                # Of what is not there, nothing comes before anything.
                value = None
                if v.hint is not None:
                    value = bool(start[1] < end[1] and v.hint.present[[one[1], other[1]]].all())
                reverse = v.literal(value)
                v.model.add_at_most_one(literal, reverse)
                v.model.add_bool_or([literal, reverse, *(~there for there in here)])
                for there in here:
                    v.model.add_implication(reverse, there)
            back: Literal = ~literal if reverse is None else reverse
            v.model.add(later[0] >= sooner[0]).only_enforce_if(back)
            self._order[one, other], self._order[other, one] = literal, back
            known = literal
        return known

    def _has_its_turn(self, early: Key, late: Key) -> bool:
        """Whether memory lets the F of a later stage, and of a micro-batch that passes first, come first only.

        If it came second, all from its micro-batch to the other's would be between F and I of the early stage when it
        runs: none of them has its I there before its F at the late stage.
        """
        (s, j), (t, i), prices = early, late, self.v.prices
        if not (s < t and i != j and self._passes_first(i, j)):
            return False
        between = int(prices.place[j] - prices.place[i]) + 1
        return between * int(prices.instance.activation[early]) + int(prices.instance.activation[late]) > self.room

    def at_forward(self, key: Key) -> None:
        """The limit while the F of `key` runs."""
        held = int(self.v.prices.instance.activation[key])
        others = [(other, self._forward_before(other, key)) for other in self.items if other != key]
        # A backward cannot have ended before the F's of micro-batches that pass first.
        open_ = {other for other, _ in others if not self._passes_first(key[1], other[1])}
        self._limit(key, self.v.forward_start(*key), self.v.forward_finish(*key), others, open_, held, None)

    def at_backward(self, key: Key) -> None:
        """The limit while the I of `key` runs, where it is not fused."""
        v, start, others = self.v, self.v.backward_start(*key), list[tuple[Key, Lit]]()
        for other in self.items:
            if other == key:
                continue
            if self._passes_first(other[1], key[1]):
                others.append((other, True))
            else:
                before = v.after(start, v.forward_finish(*other), key[1], other[1])
                later, end = v.forward_start(*other), v.backward_finish(*key)
                v.model.add(later[0] >= end[0]).only_enforce_if(~before, *v.here(key[1], other[1]))
                others.append((other, before))
        kept = int(v.prices.instance.retained[key])
        self._limit(
            key, start, v.backward_finish(*key), others, {other for other, _ in others}, kept, v.fused[key[0]][key[1]]
        )

    def _limit(
        self,
        key: Key,
        start: Point,
        finish: Point,
        others: list[tuple[Key, Lit]],
        open_: set[Key],
        own: int,
        unless: Literal | None,
    ) -> None:
        v, terms, constant = self.v, list[tuple[Lit, int]](), own
        instance, counted = v.prices.instance, [(other, before) for other, before in others if before is not False]
        if own + sum(int(max(instance.activation[o], instance.retained[o])) for o, _ in counted) <= self.room:
            return
        sources: dict[int, list[tuple[int, Literal, Literal]]] = {}
        here = v.here(key[1])
        forced = {} if unless is not None else self._forced(own, counted, open_)
        for other, before in counted:
            s, j = other
            held, kept = int(instance.activation[other]), int(instance.retained[other])
            terms.append((before, held))
            if other not in open_:
                continue
            must_end, must_be_done = forced.get(other, (False, False))
            if must_be_done:
                v.model.add(start[0] >= v.done_finish(*other)[0]).only_enforce_if(*here)
                terms.append((True, -held))
                continue
            done = v.after(start, v.done_finish(*other), key[1], j)
            if not isinstance(before, bool):
                v.model.add_implication(done, before)
            terms += self._partly(key, start, other, done)
            if kept > held:
                terms += [(self._swollen(key, start, finish, other, done), kept - held), (done, -held)]
                continue
            if must_end:
                v.model.add(start[0] >= v.backward_finish(*other)[0]).only_enforce_if(*here)
                terms += [(True, kept - held), (done, -kept)]
                continue
            ended = v.after(start, v.backward_finish(*other), key[1], j)
            v.model.add_implication(done, ended)
            if unless is None:
                self._for_later_forwards(key, other, ended, done)
                if before is not True:
                    v.model.add_implication(ended, before)
            terms += [(ended, kept - held), (done, -kept)]
            sources.setdefault(s, []).append((j, ended, done))
        constant += sum(value for literal, value in terms if literal is True)
        left = [(literal, value) for literal, value in terms if not isinstance(literal, bool) and value]
        if constant + sum(value for _, value in left if value > 0) > self.room:
            limit = v.model.add(sum(literal * value for literal, value in left) <= self.room - constant)
            limit.only_enforce_if(*here, *([] if unless is None else [~unless]))
        self._in_order(sources)

    def _forced(self, own: int, counted: Sequence[tuple[Key, Lit]], open_: set[Key]) -> dict[Key, tuple[bool, bool]]:
        """Backwards that must have ended, and be done, whatever else is freed.

        What surely was taken, less the room, must be freed. All others of the open ones may free theirs; the rest is
        for one stage's own, of a class that passes in order: the first n of it, n times what one frees.
        """
        v, instance, found = self.v, self.v.prices.instance, dict[Key, tuple[bool, bool]]()
        sure = [key for key, before in counted if before is True]
        short = own + sum(int(instance.activation[key]) for key in sure) - self.room
        able = [key for key in sure if key in open_]
        every = sum(int(instance.activation[key]) for key in able)
        rows: dict[tuple[int, int], list[Key]] = {}
        for key in able:
            rows.setdefault((key[0], int(v.prices.group[key[1]])), []).append(key)
        for (s, _), keys in rows.items():
            keys.sort(key=lambda key: int(v.prices.place[key[1]]))
            held, kept, count = int(instance.activation[keys[0]]), int(instance.retained[keys[0]]), len(keys)
            if not v.fifo or kept > held or held == 0:
                continue
            rest = short - (every - held * count)
            weights = rest - (held - kept) * count
            ended = max(0, -(-rest // held))
            done = max(0, -(-weights // kept)) if kept and v.all_whole(s) else 0
            for n, key in enumerate(keys):
                found[key] = (n < max(ended, done), n < done)
        return found

    def _partly(self, key: Key, start: Point, other: Key, done: Literal) -> list[tuple[Lit, int]]:
        """What units of a weight gradient have freed, some before a point and not all."""
        v, ranges, terms = self.v, self.v.ranges[other[0]][other[1]], list[tuple[Lit, int]]()
        if ranges is None:
            return terms
        for (moment, at), freed in zip(ranges.freed, v.prices.piece_bytes(*other), strict=True):
            if not freed:
                continue
            value = None
            if v.hint is not None:
                cut = bool(v.hint.first[other].max() > 0 and v.hint.present[key[1]])
                value = cut and at <= start[1] < v.done_finish(*other)[1]
            before = v.literal(value)
            v.model.add(start[0] >= moment).only_enforce_if(before)
            v.model.add_implication(before, ~done)
            v.model.add_implication(before, ranges.cut)
            for there in v.here(key[1]):
                v.model.add_implication(before, there)
            terms.append((before, -freed))
        return terms

    def _swollen(self, key: Key, start: Point, finish: Point, other: Key, done: Literal) -> Literal:
        """A literal that is true where an I of `other` has started before the point, and its W has not ended."""
        v, fused = self.v, self.v.fused[other[0]][other[1]]
        later, value = v.backward_start(*other), None
        waits = v.after(later, finish, key[1], other[1])
        if v.hint is not None:
            value = later[1] < finish[1] and not v.hint.fused[other] and start[1] < v.done_finish(*other)[1]
            value = value and bool(v.hint.present[[key[1], other[1]]].all())
        swollen = v.literal(value)
        absent = [~there for there in v.here(key[1], other[1])]
        v.model.add_bool_or([swollen, waits, done, *absent] + ([] if fused is None else [fused]))
        return swollen

    def _for_later_forwards(self, key: Key, other: Key, ended: Literal, done: Literal) -> None:
        """What has ended before an F has ended before those that come after it at its stage."""
        v = self.v
        place = key[0], int(v.prices.group[key[1]]), other
        if v.fifo and place in self._last:
            for earlier, later in zip(self._last[place], (ended, done), strict=True):
                v.model.add_bool_or([~earlier, later, *(~there for there in v.here(key[1]))])
        self._last[place] = ended, done

    def _in_order(self, sources: dict[int, list[tuple[int, Literal, Literal]]]) -> None:
        """What has ended for a micro-batch has ended for those that pass before it, and at the rank's later stages."""
        v = self.v
        for s, t in pairwise(sorted(sources)):
            at_later = {j: ended for j, ended, _ in sources[t]}
            for j, ended, _ in sources[s]:
                if j in at_later:
                    v.model.add_implication(ended, at_later[j])
        for s, rows in sources.items():
            rows.sort(key=lambda row: (int(v.prices.group[row[0]]), int(v.prices.place[row[0]])))
            for (i, ended, done), (j, ended_later, done_later) in pairwise(rows):
                if self._passes_first(i, j):
                    v.model.add_implication(ended_later, ended)
                    if v.all_whole(s):
                        v.model.add_implication(done_later, done)
            for (i, _, done), (j, _, done_later) in combinations(rows, 2):
                if self._passes_first(i, j) and not v.all_whole(s):
                    cut = [~whole for whole in (v.whole(s, i), v.whole(s, j)) if not isinstance(whole, bool)]
                    v.model.add_bool_or([~done_later, done, *cut])
