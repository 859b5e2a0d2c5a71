"""Drains a queue of no-op jobs with one worker process, and PgQueuer the same on the same server in the same run.

    python benchmarks/drain.py [--jobs 100000] [--rounds 3] [--peers] [--json FILE]

Counted are committed terminal states read back from the database, divided by the time from the first start to the last
recorded outcome; never handler calls. Ours and the peer take turns. Nothing is switched off: leases, fences, time-outs,
duties and events are on, synchronous commit is on. The peer runs in an environment of its own (`.venv-peers`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent
PAYLOAD = "abcdefghijklmnopqrstuvwxyz" * 4
PEERS = HERE.parent / ".venv-peers"


def ours(dsn: str, jobs: int, concurrency: int) -> dict[str, Any]:
    """One drain of ours: jobs per second of committed completions."""
    environment = {**os.environ, "SMENA_DSN": dsn, "SMENA_SCHEMA": "smena_bench", "PYTHONPATH": str(HERE)}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists smena_bench cascade")
    began = time.monotonic()
    child = [sys.executable, str(HERE / "noop.py")]
    subprocess.run([*child, "fill", str(jobs)], env=environment, check=True)
    filled = jobs / (time.monotonic() - began)
    subprocess.run([*child, "work", str(concurrency)], env=environment, check=True)
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select count(*), extract(epoch from max(finished_at) - min(started_at))::float8,"
            " count(*) filter (where state <> 'd') from smena_bench.job"
        ).fetchone()
    assert row is not None
    assert (jobs, 0) == (row[0], row[2]), f"{row[2]} of {row[0]} jobs are not done"
    return {"jobs_per_s": row[0] / row[1], "enqueued_per_s": filled}


def pgqueuer(dsn: str, jobs: int, batch: int) -> dict[str, Any]:
    """One drain of PgQueuer, counted in its own log table."""
    python = PEERS / "bin" / "python"
    output = subprocess.run(
        [python, HERE / "peers" / "pgqueuer_drain.py", dsn, str(jobs), str(batch)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", default=os.environ.get("SMENA_DSN"))
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--peers", action="store_true", help="also PgQueuer; made by scripts/bench in .venv-peers")
    parser.add_argument("--peer-batch", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.dsn is None:
        from smena import embedded

        with embedded.server(HERE / "results" / "postgres") as server:
            run(server.dsn, options)
    else:
        run(options.dsn, options)


def run(dsn: str, options: argparse.Namespace) -> None:
    rows: dict[str, list[float]] = {"smena": [], "smena enqueue": []}
    for _ in range(options.rounds):
        found = ours(dsn, options.jobs, options.concurrency)
        rows["smena"].append(found["jobs_per_s"])
        rows["smena enqueue"].append(found["enqueued_per_s"])
        if options.peers:
            peer = pgqueuer(dsn, options.jobs, options.peer_batch)
            rows.setdefault(f"pgqueuer {peer['version']}", []).append(peer["jobs_per_s"])
    with psycopg.connect(dsn) as connection:
        version = connection.info.server_version
    print(f"drain: {options.jobs} no-op jobs, one worker process, PostgreSQL {version // 10000}.{version % 10000}")
    print(f"{'':20}{'median':>12}{'lowest':>12}{'highest':>12}   per second")
    for name, values in rows.items():
        print(f"{name:20}{statistics.median(values):12,.0f}{min(values):12,.0f}{max(values):12,.0f}")
    peers = [name for name in rows if name.startswith("pgqueuer")]
    for name in peers:
        print(f"smena / {name}: {statistics.median(rows['smena']) / statistics.median(rows[name]):.2f}")
    if options.json:
        options.json.write_text(json.dumps({"jobs": options.jobs, "server": version, "rates": rows}, indent=2))


if __name__ == "__main__":
    main()
