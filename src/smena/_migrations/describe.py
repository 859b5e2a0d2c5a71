"""The shape of a store, as text that can be compared: what `schema.txt` beside this file was made with.

    python -m smena._migrations.describe postgresql://… > src/smena/_migrations/schema.txt

A test compares a fresh store, and one that was migrated step by step, with that file, so that each change of the schema
is seen in review. PostgreSQL's own catalogue is asked, so no pg_dump of a matching version is needed.
"""

from __future__ import annotations

import sys
from typing import Any

import psycopg

_COLUMNS = """
select c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
  pg_get_expr(d.adbin, d.adrelid), array_to_string(c.reloptions, ' ')
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('r', 'p', 'v') and c.relname !~ '^job_s[0-9]'
order by c.relname, a.attnum
"""
_OTHERS = """
select 'index ' || pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = %(schema)s::regnamespace and c.relname !~ '^job_s[0-9]'
union all
select 'constraint ' || t.conrelid::regclass || ' ' || t.conname || ' ' || pg_get_constraintdef(t.oid)
from pg_constraint t
where t.connamespace = %(schema)s::regnamespace and t.conrelid <> 0 and t.contype in ('p', 'u', 'c', 'f')
  and t.conrelid::regclass::text !~ 'job_s[0-9]'
union all
select 'sequence ' || s.seqrelid::regclass || ' cache ' || s.seqcache
from pg_sequence s join pg_class c on c.oid = s.seqrelid
where c.relnamespace = %(schema)s::regnamespace
union all
select 'trigger ' || pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = %(schema)s::regnamespace and not t.tgisinternal
order by 1
"""
_BODIES = """
select 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') returns '
  || pg_get_function_result(p.oid) || case when p.prosecdef then ' security definer' else '' end
  || ' ' || md5(replace(p.prosrc, %(prefix)s, 'smena.')) || coalesce(' acl ' || (
    select string_agg(case when a.grantee = 0 then 'public' else 'owner' end, ',' order by a.grantee)
    from aclexplode(p.proacl) a), '')
from pg_proc p where p.pronamespace = %(schema)s::regnamespace
order by 1
"""


def describe(connection: psycopg.Connection[Any], schema: str = "smena") -> str:
    """One line for each column, index, constraint, trigger, view and function; segments are left out."""
    values = {"schema": f'"{schema}"', "prefix": f'"{schema}".'}
    lines = []
    table = None
    for name, kind, column, type, required, identity, default, options in connection.execute(_COLUMNS, values):
        if name != table:
            table = name
            lines.append(f"{'view' if kind == 'v' else 'table'} {name}" + (f" ({options})" if options else ""))
        words = [f"  {column} {type}", "not null" if required else "", "identity" if identity else "", default or ""]
        lines.append(" ".join(word for word in words if word))
    lines += [line for (line,) in connection.execute(_OTHERS, values)]
    lines += [line for (line,) in connection.execute(_BODIES, values)]
    # The same text whatever the schema is called and however the server quotes it.
    return "\n".join(lines).replace(f'"{schema}".', "smena.").replace(f"{schema}.", "smena.") + "\n"


if __name__ == "__main__":
    with psycopg.connect(sys.argv[1]) as connection:
        sys.stdout.write(describe(connection))
