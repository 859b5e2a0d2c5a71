"""`python -m crash.work`: a worker process on the app that SMENA_APP names, without the command line."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import sys

from smena import telemetry
from smena._worker.process import Worker, WorkerOptions
from smena.errors import SmenaError


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lease", type=float)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--grace", type=float, default=25.0)
    parser.add_argument("--until-empty", action="store_true")
    parser.add_argument("--log-level", default="info")
    given = vars(parser.parse_args())
    logging.basicConfig(level=given.pop("log_level").upper(), format="%(asctime)s %(levelname)s %(message)s")
    telemetry.subscribe(telemetry.log_events)
    module, _, attribute = os.environ["SMENA_APP"].partition(":")
    try:
        app = getattr(importlib.import_module(module), attribute)
        worker = Worker(app, WorkerOptions(**given))
        asyncio.run(worker.run())
    except SmenaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 1 if given["until_empty"] and worker.failed else 0


if __name__ == "__main__":
    sys.exit(main())
