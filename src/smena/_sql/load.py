"""Loads statements from the `.sql` files beside this module.

The files are plain SQL that psql runs: tables are written `smena.job` and parameters `:name`, psql's own variables.
Loading puts the user's schema in place of the word `smena` and numbers the parameters for the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from smena.errors import ConfigurationError

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_SCHEMA = re.compile(r"\bsmena\.")
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement: `numbered` has $1, $2 … for `names` in order; `named` has %(name)s for the DB-API."""

    name: str
    numbered: str
    named: str
    colons: str
    names: tuple[str, ...] = field(default=())


def in_schema(sql: str, schema: str) -> str:
    """`sql` with the schema `smena` replaced by `schema`."""
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ConfigurationError(
            f"schema {schema!r} cannot be used: a schema name has 1 to 40 small letters, digits or underscores"
        )
    if schema == "smena":
        return sql
    sql = _SCHEMA.sub(f'"{schema}".', sql)
    return sql.replace("schema if not exists smena;", f'schema if not exists "{schema}";')


@cache
def statement(name: str, schema: str = "smena") -> Statement:
    """The statement in file `name`.sql, for `schema`."""
    text = resources.files(__package__).joinpath(f"{name}.sql").read_text("utf-8")
    # Comments are for the reader of the file; without them no apostrophe or colon in prose is taken for SQL.
    sql = in_schema(_COMMENT.sub("", text).strip(), schema)
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    numbered = _PARAMETER.sub(number, sql)
    named = _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
    return Statement(name, numbered, named, sql, tuple(names))
