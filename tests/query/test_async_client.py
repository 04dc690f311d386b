"""The client for asyncio."""

import asyncio

import pytest

from penstock.query.async_client import AsyncQueryableStateClient
from penstock.query.errors import UnknownKey


def run(settings, read):
    """Run a coroutine function of a client."""

    async def main():
        port = int(settings["queryable-state.proxy.ports"])
        token_file = settings["queryable-state.auth.token-file"]
        async with AsyncQueryableStateClient("127.0.0.1", port, token_file=token_file) as client:
            return await read(client)

    return asyncio.run(main())


def test_all_reads_are_coroutines(job, serve, settings):
    job.run(("ann", 3), ("bob", 1))
    serve(job)

    async def read(client):
        assert [each.job_name for each in await client.jobs()] == ["job0"]
        assert (await client.describe("job0")).newest == 1
        assert await client.get("job0", "the value", "ann") == 3
        assert await client.read("job0", "the value", "ann") == (3, 1)
        assert await client.get_many("job0", "the value", ["ann", "bob"]) == {"ann": 3, "bob": 1}
        assert (await client.entries("job0", "the map", "ann")).entries == {"n3": 3}
        assert [batch.num_rows async for batch in client.scan("job0", "the value")] != []
        async with client.pinned("job0") as pinned:
            assert pinned.checkpoint == 1
            assert await pinned.get("the value", "ann") == 3
            assert await pinned.get_many("the value", ["bob"]) == {"bob": 1}
        with pytest.raises(UnknownKey):
            await client.get("job0", "the value", "eve")
        async for changes in client.subscribe("job0", "the value"):
            return {change.key: change.value for change in changes.changes}

    assert run(settings, read) == {"ann": 3, "bob": 1}


def test_reads_run_at_the_same_time(job, serve, settings):
    job.run(("ann", 3))
    serve(job)

    async def read(client):
        waiting = [asyncio.create_task(client.read("job0", "the value", "ann", at_least=2)) for _ in range(5)]
        # The others wait for a checkpoint that only this one lets the job complete.
        assert await client.get("job0", "the value", "ann") == 3
        job.run(("ann", 4))
        return await asyncio.gather(*waiting)

    assert run(settings, read) == [(4, 2)] * 5
