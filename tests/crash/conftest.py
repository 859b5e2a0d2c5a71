"""Fixtures of the crash tests alone."""

from crash.fix_server import away_shop, private_server, server_programs

__all__ = ["away_shop", "private_server", "server_programs"]
