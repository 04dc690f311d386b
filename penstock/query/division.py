"""Divides the blocks of a job among its state servers. Pure: every server computes it from the same announcements.

A block stays with the server that has it, unless another one has fewer blocks than its part. Servers that see different
announcements for a moment can claim the same block; the next division decides, and no read depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.state.blocks import FEWEST

BLOCKS = FEWEST
"""Parts of the key groups of each operator. Unlike the blocks of tasks, their number is the same at any parallelism."""
ALL_BLOCKS = frozenset(range(BLOCKS))


def divide(claims: Mapping[str, Collection[int]], blocks: int = BLOCKS) -> dict[str, frozenset[int]]:
    """Return the blocks of each server: every block once, and no server has two more than another.

    If some servers have adopted the result and others have not, the result is the same.

    Args:
        claims: The blocks that each living server wants at present, by its id.
        blocks: The number of blocks.
    """
    if not claims:
        return {}
    servers = sorted(claims)
    kept = _without_duplicates(claims, blocks)
    least, larger = divmod(blocks, len(servers))
    # Servers that have more keep it, so that fewer blocks move.
    above = [server for server in servers if len(kept[server]) > least]
    most = dict.fromkeys([*above, *(each for each in servers if each not in above)][:larger], least + 1)
    kept = {server: owned[: most.get(server, least)] for server, owned in kept.items()}
    owned = {block for each in kept.values() for block in each}
    free = [block for block in range(blocks) if block not in owned]
    for server in servers:
        wanted = most.get(server, least) - len(kept[server])
        kept[server], free = kept[server] + free[:wanted], free[wanted:]
    return {server: frozenset(each) for server, each in kept.items()}


def _without_duplicates(claims: Mapping[str, Collection[int]], blocks: int) -> dict[str, list[int]]:
    """Return the blocks of each server in order. Of several that claim a block, the one with the fewest has it."""
    kept: dict[str, list[int]] = {server: [] for server in claims}
    for block in range(blocks):
        claiming = [server for server in claims if block in claims[server]]
        if claiming:
            kept[min(claiming, key=lambda server: (len(claims[server]), server))].append(block)
    return kept
