"""PgQueuer draining no-op jobs; prints one JSON line. Runs in the peers' environment: pgqueuer[asyncpg], uvloop.

Its own advice for throughput is followed: asyncpg, a bigger batch, drain mode, the installation's tables emptied.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from importlib.metadata import version

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def main(dsn: str, jobs: int, batch: int) -> None:
    connection = await asyncpg.connect(dsn)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await connection.execute("drop schema if exists pgqueuer_bench cascade; create schema pgqueuer_bench")
    await connection.execute("set search_path to pgqueuer_bench")
    await queries.install()
    payload = json.dumps({"n": 1, "text": "abcdefghijklmnopqrstuvwxyz" * 4}).encode()
    for start in range(0, jobs, 5_000):
        count = min(5_000, jobs - start)
        await queries.enqueue(["noop"] * count, [payload] * count, [0] * count)
    worker = PgQueuer(driver)

    @worker.entrypoint("noop")
    async def noop(job: Job) -> None:
        json.loads(job.payload or b"null")

    await connection.execute("analyze")
    began = await connection.fetchval("select clock_timestamp()")
    await worker.run(
        dequeue_timeout=timedelta(seconds=1),
        batch_size=batch,
        mode=QueueExecutionMode.drain,
        max_concurrent_tasks=max(batch * 2, 200),
    )
    row = await connection.fetchrow(
        "select count(*), extract(epoch from max(created) - $1)::float8 from pgqueuer_log where status = 'successful'",
        began,
    )
    left = await connection.fetchval("select count(*) from pgqueuer")
    assert row[0] == jobs, f"{row[0]} of {jobs} successful, {left} left"
    print(json.dumps({"version": version("pgqueuer"), "jobs_per_s": row[0] / row[1]}))


uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
