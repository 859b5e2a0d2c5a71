-- The transactions that may have drawn a position and not yet committed: they hold RowExclusiveLock on the log or a
-- part of it. `-1/…` is a prepared transaction, whose identity changed when it was prepared.
select distinct k.virtualtransaction
from pg_locks k
where k.locktype = 'relation' and k.mode = 'RowExclusiveLock'
  and k.database = (select d.oid from pg_database d where d.datname = current_database())
  and k.pid is distinct from pg_backend_pid()
  and k.relation in (
    select 'smena.job'::regclass union all select i.inhrelid from pg_inherits i where i.inhparent = 'smena.job'::regclass)
