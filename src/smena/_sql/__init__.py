"""SQL statements, one per file. `statement("jobs/claim", schema)` gives one, ready for any driver."""

from smena._sql.load import Statement, in_schema, statement

__all__ = ["Statement", "in_schema", "statement"]
