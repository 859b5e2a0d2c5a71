"""`smena db`: the store's schema, its place, and who may do what in it."""

from __future__ import annotations

import click

from smena import _migrations
from smena._ops import people
from smena._ops.listing import clock
from smena._ops.people import Home
from smena.cli.commands import Group, json_option, option
from smena.cli.documents import read_document
from smena.cli.grants import MAY, grants
from smena.cli.screen import Column, on_terminal, print_items, remark, say, table
from smena.cli.target import Target, on_target
from smena.cli.text import one_line
from smena.cli.times import exact, parsed
from smena.database import masked
from smena.errors import SchemaError, SchemaOutdated


@click.group(cls=Group, examples=("smena db migrate", "smena db status", "smena db grant shop --enqueue"))
def db() -> None:
    """Make and inspect the store: migrations, roles, and where it lives."""


@db.command("migrate", examples=("smena db migrate", "smena db migrate --phase pre"))
@option("--phase", type=click.Choice(("pre", "post")), help="Only what must run before, or after, the new release.")
@on_target
def migrate(target: Target, phase: str | None) -> None:
    """Bring the store to this release.

    Safe to run at any time and by several processes at once. Without --phase all of it. In a rolling deploy
    `--phase pre` runs before the new release starts, `--phase post` when no process of the old one is left.
    """
    with target.connection() as connection:
        pending = _migrations.pending(connection, target.schema)
        early = [migration for migration in pending if migration.phase == "pre"]
        if phase == "post" and early:
            raise SchemaOutdated(f"{early[0]} was not applied: run `smena db migrate --phase pre` first")
    done = _migrations.migrate(target.dsn, target.schema, phase=phase)
    for migration in done:
        say(f"applied {migration}")
    where = f"schema {target.schema} of {masked(target.dsn)}"
    left = len(pending) - len(done)
    say(f"{where} is up to date" if left <= 0 else f"{where}: {left} left for the other phase")


@db.command("status", examples=("smena db status", "smena db status --json"))
@json_option
@on_target
def status(target: Target, as_json: bool) -> None:
    """Show which migrations are applied, and whether the store is where it was made.

    Ends with 4 when this release cannot work on the store as it is.
    """
    with target.connection():
        pass  # says what is wrong when it cannot be had
    rows = _migrations.status(target.dsn, target.schema)
    trouble: SchemaError | None = None
    home: Home | None = None
    try:
        target.look()
        home = target.run(people.home)
    except SchemaError as error:
        trouble = error
    if as_json:
        items = [
            {
                "number": row.migration.number,
                "phase": row.migration.phase,
                "name": row.migration.name,
                "applied_at": _iso(row.applied_at),
            }
            for row in rows
        ]
        print_items(
            items,
            schema=target.schema,
            installation=home.installation if home else None,
            at_home=home.is_kept if home else None,
            problem=str(trouble) if trouble else None,
        )
    else:
        now = target.run(clock)
        table(
            (Column("migration", whole=True), Column("phase", whole=True), Column("name"), Column("applied")),
            [
                (
                    f"{row.migration.number:04}",
                    row.migration.phase,
                    row.migration.name,
                    exact(_iso(row.applied_at), now) if row.applied_at else "no",
                )
                for row in rows
            ],
        )
        if home is not None:
            say()
            say(f"installation {home.installation}")
            if not home.is_kept:
                say("this is a copy: workers refuse it until `smena db adopt --yes`")
    if trouble is not None:
        if as_json:
            click.get_current_context().exit(trouble.exit_code)
        raise trouble


@db.command("sql", examples=("smena db sql > migration.sql", "smena db sql --all --schema shop_jobs"))
@option("--all", "everything", is_flag=True, help="The SQL of a fresh store, without looking at a database.")
@on_target
def print_sql(target: Target, everything: bool) -> None:
    """Print the SQL that `smena db migrate` would run, for whoever may run it.

    Without a DSN, or with --all, all of it; else what this database lacks.
    """
    if not everything and target.has_dsn:
        with target.connection():
            pass
        dsn = target.dsn
    else:
        dsn = None
    wrote = False
    for part in _migrations.pending_sql(dsn, target.schema):
        click.echo(part)
        wrote = True
    if not wrote:
        remark("nothing to do: the store is up to date")


@db.command("adopt", examples=("smena db adopt", "smena db adopt --yes", "smena db adopt --apart --yes"))
@option("--apart", is_flag=True, help="The original lives on: take new idempotency keys for all jobs.")
@option("--reason", metavar="TEXT", help="Why; kept in the audit.")
@option("--yes", is_flag=True, help="Do it without asking.")
@on_target
def adopt(target: Target, apart: bool, reason: str | None, yes: bool) -> None:
    """Let workers work on a restored or copied store.

    A copy holds jobs that the original may be running too, so workers refuse it until somebody says that it is meant
    to work. Taking over from an original that is gone, jobs keep their idempotency keys: what was under way there is
    then recognised by the other side and not done twice. With --apart, a copy beside a living original, they get new
    ones: the two never share a key, and a job that waits in both is done by both.
    """
    target.look()
    home = target.run(people.home)
    if home.is_kept and not apart:
        say(f"database {one_line(home.database)} is where this store was made or adopted: nothing to do")
        return
    say(_plan(home, target, apart))
    if not yes:
        if not on_terminal():
            remark("smena: nothing was changed: to do it, add --yes")
            click.get_current_context().exit(2)
        if not click.confirm("Adopt it?", err=True):
            remark("nothing was changed")
            click.get_current_context().exit(2)
    installation = target.run(lambda: people.patiently(people.adopt(reason, apart=apart)))
    say(f"adopted: installation {installation} lives in database {home.database}")


def _plan(home: Home, target: Target, apart: bool) -> str:
    if apart:
        keys = "an installation of its own: every job gets a new idempotency key, also those that wait here"
    else:
        keys = f"the continuation of installation {home.installation}: its original must be gone for good"
    waiting = _waiting(target)
    return (
        f"to adopt: schema {target.schema} of {masked(target.dsn)}\n"
        f"  made in    system {home.was[0]}, database {home.was[1]}\n"
        f"  now in     system {home.now[0]}, database {home.now[1]} ({home.database})\n"
        f"  becomes    {keys}\n"
        f"  will run   {waiting}"
    )


def _waiting(target: Target) -> str:
    total = 0
    capped = False
    for text in target.run(people.queues):
        for state, count in read_document(text)["counts"].items():
            if state in ("ready", "running", "scheduled", "blocked"):
                total += count["count"]
                capped = capped or count["capped"]
    return f"the jobs that wait in it, about {total:,}{'+' if capped else ''} when last counted"


@db.command(
    "grant",
    examples=(
        "smena db grant shop --enqueue | psql shop",
        "smena db grant shop_worker --enqueue --work",
        "smena db grant support --read --operate --apply",
    ),
)
@click.argument("role")
@option("--enqueue", is_flag=True, help="Store jobs; not read them.")
@option("--work", is_flag=True, help="Run as a worker, with all duties.")
@option("--read", is_flag=True, help="Read jobs, queues, workers and the audit.")
@option("--operate", is_flag=True, help="Read, and requeue, cancel, correct and delete jobs, pause queues.")
@option("--apply", is_flag=True, help="Run the SQL instead of printing it.")
@on_target
def grant(target: Target, role: str, apply: bool, **may: bool) -> None:
    """Print the SQL that lets a role do its part, and no more.

    An application's role need not own the schema. A role whose handlers store jobs needs --enqueue beside --work.
    Run the SQL as the owner, and again after an upgrade.
    """
    wanted = [name for name in MAY if may[name]]
    if not wanted:
        raise click.UsageError(f"what may {role} do? give one or more of {', '.join(f'--{name}' for name in MAY)}")
    text = grants(role, wanted, target.schema)
    if not apply:
        click.echo(text, nl=False)
        return
    target.look()
    with target.connection(autocommit=True) as connection:
        connection.execute(text.encode())
    say(f"{one_line(role)} may {', '.join(wanted)} in schema {target.schema} of {masked(target.dsn)}")


def _iso(moment: str | None) -> str | None:
    """PostgreSQL's own spelling of a moment, as JSON has it."""
    then = parsed(moment)
    return moment if then is None else then.isoformat()
