"""Drivers: each runs an operation on the caller's connection. `run` and `arun` find the right one."""

from smena._drivers.choose import arun, run

__all__ = ["arun", "run"]
