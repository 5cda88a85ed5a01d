"""Loops of a program, found from what may follow what (natural loops: Aho, Sethi and Ullman, section 10.4)."""

from __future__ import annotations

from collections.abc import Sequence


def natural_loops(successors: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """Header of each loop, and the blocks that come back to it without leaving through it, the header among them.

    Args:
        successors: for each block the blocks that may follow it; block 0 is the entry.
    """
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, following in enumerate(successors):
        for one in following:
            predecessors[one].append(block)
    dominators = _dominators(predecessors)
    loops: dict[int, set[int]] = {}
    for block, following in enumerate(successors):
        for header in following:
            if header in dominators[block]:
                body, waiting = loops.setdefault(header, {header}), [block]
                while waiting:
                    if (one := waiting.pop()) not in body:
                        body.add(one)
                        waiting += (before for before in predecessors[one] if dominators[before])  # can be reached
    return loops


def _dominators(predecessors: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each block those that every path from the entry to it passes; nothing for what no path reaches."""
    found: list[set[int]] = [{0}, *(set() for _ in predecessors[1:])]
    changed = True
    while changed:
        changed = False
        for block in range(1, len(predecessors)):
            known = [found[one] for one in predecessors[block] if found[one]]
            if known and (new := {block}.union(set.intersection(*known))) != found[block]:
                found[block], changed = new, True
    return found
