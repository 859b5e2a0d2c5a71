"""Jobs of a dead worker go to others, each as a suspect. The living keep theirs, and the dead write nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from kernel import SCHEMA, Claimer, Connection, Held, Kernel, scenario
from smena._maintenance.reap import PAGE, Reap
from smena._ops.workers import lock_key
from smena._sql import statement


async def take(kernel: Kernel, claimer: Claimer, n: int = 10) -> list[Held]:
    await claimer.beat()
    await claimer.look()
    return await claimer.claim(n)


async def mark_started(kernel: Kernel, claimer: Claimer, job: Held) -> bool:
    values = {"lane": job.lane, "pos": job.pos, "incarnation": claimer.incarnation}
    return bool(await kernel.ask("jobs/mark_started", claimer.connection, **values))


async def outcomes(kernel: Kernel, id: int) -> list[tuple[str, str | None, int]]:
    return await kernel.rows("select outcome, kind, attempt from smena.attempts where job_id = %s order by pos", id)


async def leftovers(kernel: Kernel) -> tuple[int, int]:
    """Rows of dead workers, and of their claims."""
    dead = await kernel.value("select count(*) from smena.workers where claimed_until < clock_timestamp()")
    return dead, await kernel.value("select count(*) from smena.claims")


@scenario
async def test_worker_with_a_lease_keeps_its_jobs(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(3)
        jobs = await take(kernel, claimer)
        await kernel.reap()
        assert ["running"] * 3 == await kernel.states(ids)
        assert 3 == await claimer.finish(jobs)


@scenario
async def test_jobs_of_a_dead_worker_become_suspects_and_nothing_of_it_is_left(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, other = await kernel.claimer(), await kernel.claimer()
        ids = await kernel.enqueue(3)
        before = max(job.pos for job in await take(kernel, claimer))
        await kernel.kill(claimer)
        await kernel.reap()
        assert [("ready", "s", True)] * 3 == await kernel.rows(
            "select smena.state_word(j.state), l.kind, j.pos > %s from smena.job j join smena.lanes l on l.id = j.lane",
            before,
        )
        assert [("crashed", "CRASHED", 1)] == await outcomes(kernel, ids[0])
        assert (0, 0) == await leftovers(kernel)
        assert [2, 2, 2] == [job.attempt for job in await take(kernel, other)]


@scenario
async def test_only_a_suspects_death_counts_as_its_crash_and_the_third_is_the_end(database: str) -> None:
    async with Kernel(database) as kernel:
        [id] = await kernel.enqueue(max_attempts=100)
        for crashes, state in [(0, "ready"), (1, "ready"), (2, "ready"), (3, "failed")]:
            claimer = await kernel.claimer()
            assert [id] == [job.id for job in await take(kernel, claimer)]
            await kernel.kill(claimer)
            await kernel.reap()
            seen = await kernel.rows("select state, crashes, failure_kind from smena.jobs where id = %s", id)
            assert [(state, crashes, "CRASHED" if state == "failed" else None)] == seen
        assert "failed" == (await outcomes(kernel, id))[-1][0]


@scenario
async def test_last_attempt_is_given_back_to_a_job_found_in_company_and_spent_by_a_suspect(database: str) -> None:
    async with Kernel(database) as kernel:
        [id] = await kernel.enqueue(max_attempts=1)
        for attempt, state in [(0, "ready"), (1, "failed")]:
            claimer = await kernel.claimer()
            assert [1] == [job.attempt for job in await take(kernel, claimer)]
            await kernel.kill(claimer)
            await kernel.reap()
            assert [(attempt, state)] == await kernel.rows("select attempt, state from smena.jobs where id = %s", id)


@scenario
async def test_suspect_that_ends_well_is_done(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, other, [id] = await kernel.claimer(), await kernel.claimer(), await kernel.enqueue()
        await take(kernel, claimer)
        await kernel.kill(claimer)
        await kernel.reap()
        assert 1 == await other.finish(await take(kernel, other))
        assert [("done", 0)] == await kernel.rows("select state, crashes from smena.jobs where id = %s", id)


@scenario
async def test_job_that_somebody_holds_locked_does_not_stop_the_rest_and_comes_later(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, person, ids = await kernel.claimer(), await kernel.connect(), await kernel.enqueue(5)
        await take(kernel, claimer)
        await kernel.kill(claimer)
        await person.execute("begin")
        await kernel.rows("select 1 from smena.job where id = %s for update", ids[2], on=person)
        await kernel.reap()
        assert ["ready", "ready", "running", "ready", "ready"] == await kernel.states(ids)
        assert (1, 1) == await leftovers(kernel)
        await person.rollback()
        await kernel.reap()
        assert ["ready"] * 5 == await kernel.states(ids)
        assert (0, 0) == await leftovers(kernel)


@scenario
async def test_job_of_a_living_worker_among_those_of_a_dead_one_is_left_alone(database: str) -> None:
    async with Kernel(database) as kernel:
        dead, living, person = await kernel.claimer(), await kernel.claimer(), await kernel.connect()
        ids = await kernel.enqueue(3)
        await person.execute("begin")
        await kernel.rows("select 1 from smena.job where id = %s for update", ids[1], on=person)
        assert [ids[0], ids[2]] == [job.id for job in await take(kernel, dead)]
        await person.rollback()
        between = await take(kernel, living)
        await kernel.kill(dead)
        await kernel.reap()
        assert ["ready", "running", "ready"] == await kernel.states(ids)
        assert 1 == await living.finish(between)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@scenario
async def test_claim_under_way_is_waited_for(database: str, outcome: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(2)
        await claimer.connection.execute("begin")
        assert 2 == len(await take(kernel, claimer))
        await kernel.kill(claimer)
        await kernel.reap()
        assert (1, 0) == await leftovers(kernel)
        await claimer.connection.execute(outcome)
        await kernel.reap()
        assert ["ready"] * 2 == await kernel.states(ids)
        assert (0, 0) == await leftovers(kernel)
        assert [("crashed", "CRASHED", 1)] * (outcome == "commit") == await outcomes(kernel, ids[0])


@pytest.mark.parametrize("why", ["expired", "closed", "unknown", "being reaped"])
@scenario
async def test_dead_worker_claims_nothing(database: str, why: str) -> None:
    async with Kernel(database) as kernel:
        claimer, [id] = await kernel.claimer(), await kernel.enqueue()
        await claimer.beat()
        await claimer.look()
        if why == "expired":
            await kernel.kill(claimer)
        elif why == "closed":
            await kernel.rows("update smena.workers set closed = true")
        elif why == "unknown":
            await kernel.rows("delete from smena.workers")
        else:
            await kernel.main.execute("begin")
            await kernel.ask("workers/lock_claims", **lock_key(claimer.incarnation))
        assert [] == await claimer.claim()
        await kernel.main.rollback()
        assert "ready" == await kernel.state(id)
        assert 0 == await kernel.value("select count(*) from smena.claims")


@scenario
async def test_dead_worker_writes_nothing(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, other = await kernel.claimer(), await kernel.claimer()
        await kernel.enqueue()
        jobs = await take(kernel, claimer)
        await kernel.kill(claimer)
        await kernel.reap()
        before = await kernel.rows("select to_jsonb(j) from smena.job j")
        held: Sequence[Held] = [*jobs, *await take(kernel, other)][:1]
        assert before != await kernel.rows("select to_jsonb(j) from smena.job j"), "another one runs it"
        before = await kernel.rows("select to_jsonb(j) from smena.job j")
        assert 0 == await claimer.finish(held)
        assert 0 == await claimer.finish_ordered(held)
        assert [0] * 5 == [await claimer.settle(held, to) for to in "srfuc"]
        assert not await mark_started(kernel, claimer, held[0])
        assert before == await kernel.rows("select to_jsonb(j) from smena.job j")


@pytest.mark.parametrize(("marked", "state"), [(True, "unknown"), (False, "ready")])
@scenario
async def test_job_that_must_not_repeat_is_unknown_after_its_start_mark(
    database: str, marked: bool, state: str
) -> None:
    async with Kernel(database) as kernel:
        claimer, [id] = await kernel.claimer(), await kernel.enqueue(repeats=False)
        [job] = await take(kernel, claimer)
        assert not marked or await mark_started(kernel, claimer, job)
        await kernel.kill(claimer)
        await kernel.reap()
        assert state == await kernel.state(id)
        assert (("unknown", "OUTCOME_UNKNOWN", 1) if marked else ("crashed", "CRASHED", 1)) in await outcomes(
            kernel, id
        )


async def reap_late(kernel: Kernel, claimer: Claimer, reaper: Connection) -> None:
    """Reaps with the library's statement, which waits between its snapshot and its first row lock."""
    found = statement("workers/reap", SCHEMA)
    text = found.numbered.replace("from unnest(", "from (select pg_advisory_xact_lock(77)) gate, unnest(", 1)
    text = text.replace("select * from (select", "select p.* from (select", 1)
    ledger = await kernel.ask("workers/ledger", incarnation=claimer.incarnation)
    lanes, los, his = ([row[n] for row in ledger] for n in range(3))
    values = {"dead": claimer.incarnation, "lanes": lanes, "los": los, "his": his, "worker_name": "w"}
    async with psycopg.AsyncRawCursor(reaper) as cursor:
        await cursor.execute(text.encode(), [values[name] for name in found.names])


@scenario
async def test_start_mark_that_comes_while_a_reaper_is_at_it_counts(database: str) -> None:
    """The owner lives, but its lease is over: the handler has begun when the reaper gets to the row."""
    async with Kernel(database) as kernel:
        claimer, reaper, [id] = await kernel.claimer(), await kernel.connect(), await kernel.enqueue(repeats=False)
        [job] = await take(kernel, claimer)
        await kernel.rows("select pg_advisory_lock(77)")
        reaping = asyncio.create_task(reap_late(kernel, claimer, reaper))
        await kernel.until_blocked(reaper)
        assert await mark_started(kernel, claimer, job)
        await kernel.rows("select pg_advisory_unlock(77)")
        await reaping
        assert "unknown" == await kernel.state(id)


@scenario
async def test_cancel_request_is_granted_by_the_death_of_the_worker(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(2)
        await take(kernel, claimer)
        assert "requested" == await kernel.value("select smena.cancel(%s, 'not wanted')", ids[0])
        await kernel.kill(claimer)
        await kernel.reap()
        assert ["cancelled", "ready"] == await kernel.states(ids)
        assert [("cancelled", None, 1)] == await outcomes(kernel, ids[0])
        assert 0 == await kernel.value("select count(*) from smena.cancel_requests")


@scenario
async def test_reapers_at_once_move_each_job_once(database: str) -> None:
    async with Kernel(database) as kernel:
        dead = [await kernel.claimer() for _ in range(3)]
        ids = await kernel.enqueue(30)
        for claimer in dead:
            assert 10 == len(await take(kernel, claimer))
            await kernel.kill(claimer)
        reapers = [await kernel.connect() for _ in range(3)]
        await kernel.witness()
        await asyncio.gather(*(kernel.reap(each) for each in reapers))
        await kernel.reap()
        assert ["ready"] * 30 == await kernel.states(ids)
        assert 30 == await kernel.value("select count(*) from smena.attempts")
        assert (0, 0) == await leftovers(kernel)


@scenario
async def test_more_claims_than_a_page_are_reaped_in_one_pass(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(PAGE + 7)
        await claimer.beat()
        await claimer.look()
        for _ in ids:
            assert 1 == len(await claimer.claim(1))
            await claimer.look()
        await kernel.kill(claimer)
        await kernel.reap()
        assert ["ready"] * len(ids) == await kernel.states(ids)
        assert (0, 0) == await leftovers(kernel)


@pytest.mark.parametrize("why", ["is new", "was cut off", "has expired"])
@scenario
async def test_nobody_is_reaped_by_one_who_cannot_know_that_the_database_was_there(database: str, why: str) -> None:
    async with Kernel(database) as kernel:
        dead, reaper, [id] = await kernel.claimer(), await kernel.claimer(2.0), await kernel.enqueue()
        await take(kernel, dead)
        await kernel.kill(dead)
        if why != "is new":
            change = {"was cut off": "renewed_at = now() - interval '1.5 s'", "has expired": "claimed_until = now()"}
            await kernel.rows(
                f"update smena.workers set unbroken_since = now() - interval '1 day', {change[why]}"
                " where incarnation = %s",
                reaper.incarnation,
            )
        reap = Reap(SCHEMA, every=1.0, witness=lambda: reaper.incarnation)
        await reap.tick(kernel.main)
        assert 0 == await reap.reap(kernel.main, dead.incarnation, "w")
        assert "running" == await kernel.state(id)


@pytest.mark.parametrize(("others_could", "renewed"), [(False, True), (True, False)])
@scenario
async def test_expired_lease_is_given_back_only_when_nobody_could_renew(
    database: str, others_could: bool, renewed: bool
) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await kernel.kill(claimer)
        if others_could:
            await kernel.witness()
        rows = await kernel.ask("workers/renew", incarnations=[claimer.incarnation], stopping=False)
        assert ([(claimer.incarnation,)] if renewed else []) == rows
