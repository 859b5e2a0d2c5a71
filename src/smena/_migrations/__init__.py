"""Migrations of the job store: numbered SQL files and what applies them."""

from smena._migrations.runner import Applied, migrate, newest, pending, pending_sql, status

__all__ = ["Applied", "migrate", "newest", "pending", "pending_sql", "status"]
