"""A payment provider that misbehaves, for the demo: its own process, its own books.

    python -m smena.demo.provider --port 0 --ledger charges.jsonl --seed 1 --latency 0.02

The first line on standard output is the port. POST /charges takes `{"purchase": 17, "amount": "29.33"}` under a header
`Idempotency-Key`:

    201  charged now, or earlier under this key: the same answer each time
    400  not a charge at all              409  the key belongs to another charge
    422  an amount of 0.00                503  nothing was charged; try again
    (connection closed)  charged, but the answer is lost: the caller cannot know

GET /ledger tells what was really charged since the ledger file was begun, GET /stats how the calls to this process
went. Which calls go wrong depends on the seed, the purchase and how often it was asked for, not on time or order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import click
from aiohttp import web

from smena.demo.charges import ChargeApi
from smena.demo.faults import Faults
from smena.demo.ledger import Ledger, LedgerError


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--ledger", "path", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Ledger file.")
@click.option("--seed", default=1, show_default=True, help="Decides which calls go wrong.")
@click.option("--latency", default=0.02, show_default=True, help="Seconds that every call takes.")
@click.option("--unavailable", default=0.05, show_default=True, help="Share of calls answered 503.")
@click.option("--dropped", default=0.02, show_default=True, help="Share of calls charged without an answer.")
@click.option("--until-eof", is_flag=True, help="End when standard input closes, as it does when a parent is killed.")
def main(port: int, path: Path, seed: int, latency: float, unavailable: float, dropped: float, until_eof: bool) -> None:
    """Runs the demo's payment provider until it is told to end (SIGTERM or SIGINT)."""
    try:
        faults = Faults(seed=seed, unavailable=unavailable, dropped=dropped, latency=latency)
        ledger = Ledger(path)
    except (ValueError, LedgerError, OSError) as error:
        raise click.ClickException(str(error)) from error
    try:
        asyncio.run(_serve(ChargeApi(ledger, faults).app(), port, until_eof))
    except OSError as error:
        raise click.ClickException(f"Port {port} of 127.0.0.1 cannot be served: {error.strerror}.") from error
    finally:
        ledger.close()


async def _serve(app: web.Application, port: int, until_eof: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not loop.add_signal_handler: Windows has none.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(runner.addresses[0][1], flush=True)
        if until_eof:
            threading.Thread(target=_wait_for_eof, args=(loop, stop), daemon=True).start()
        await stop.wait()
    finally:
        await runner.cleanup()


def _wait_for_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, not sys.stdin: a daemon thread inside a buffered read aborts the interpreter when it ends.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    # The loop may be closed already, when a signal came first.
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    main()
