"""Lives of a worker process, as the database sees them.

Each claim carries the incarnation, a random 64-bit number; (position, incarnation) is the fence of every later write.
When a connection breaks inside a claim, nobody knows whether the claim was committed. So the process takes a new
incarnation for its further claims, and *retires* the old one:
  1. wait until no statement of ours under the old one is on its way
  2. take its advisory lock exclusively: a claim that still runs on the server holds it shared
  3. close it, and hand back whatever it holds beyond the jobs that are known to be here
The old one keeps its lease until those jobs have ended, then its row goes. A kill at any point leaves an incarnation
whose lease runs out, which the reapers know how to treat.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

import psycopg

from smena._drivers.psycopg import aexecute
from smena._ops.operation import Query
from smena._ops.workers import lock_key
from smena.database import masked
from smena.errors import CopiedDatabase, LeaseLost


def new_incarnation() -> int:
    """A random, non-zero, signed 64-bit number."""
    return secrets.randbits(63) * 2 + 1 - 2**63


def worker_name() -> str:
    """host:pid and a few random letters, so that two lives of one pid are told apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"


async def check_home(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Raises CopiedDatabase if this is not the database that the store was made or adopted in."""
    if not (await aexecute(connection, Query("workers/installation"), schema))[0][1]:
        raise CopiedDatabase(
            f"schema {schema} of {masked(connection.info.dsn)} was copied or restored from another database, and its "
            "jobs may be running there: if this one is to work them, run `smena db adopt --yes`"
        )


async def register(
    connection: psycopg.AsyncConnection[Any],
    schema: str,
    *,
    incarnation: int,
    name: str,
    queues: Sequence[str] | None,
    concurrency: int,
    lease: float,
    release: str | None,
) -> None:
    """Writes the row of a new incarnation, with a whole lease ahead of it."""
    await aexecute(
        connection,
        Query(
            "workers/register",
            {
                "incarnation": incarnation,
                "name": name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "release": release,
                "queues": list(queues or []),
                "concurrency": concurrency,
                "lease": lease,
            },
        ),
        schema,
    )


async def retire(
    connection: psycopg.AsyncConnection[Any], schema: str, incarnation: int, name: str, known: Sequence[int]
) -> list[int]:
    """Closes an incarnation and hands back what it holds beyond `known`; returns those jobs' ids.

    Raises LeaseLost while a claim of it is still on its way: try again a moment later.
    """
    async with connection.transaction():
        if not (await aexecute(connection, Query("workers/lock_claims", lock_key(incarnation)), schema))[0][0]:
            raise LeaseLost("a claim of this incarnation is still on its way")
        values = {"incarnation": incarnation, "known": list(known), "worker_name": name}
        rows = await aexecute(connection, Query("workers/retire", values), schema)
    return [row[0] for row in rows]


async def forget(connection: psycopg.AsyncConnection[Any], schema: str, incarnation: int) -> bool:
    """Removes a retired incarnation if none of its jobs runs any more. True when it is gone."""
    values = {"dead": incarnation}
    async with connection.transaction():
        await aexecute(connection, Query("workers/forget_claims", values), schema)
        return bool(await aexecute(connection, Query("workers/forget", values), schema))
