-- Drops the ledger rows of an incarnation in whose range nothing of it is left running. A row that somebody holds
-- locked keeps its ledger row, and the next pass comes back for it.
delete from smena.claims c
where c.incarnation = :dead::bigint and not exists (
  select from smena.job j
  where j.lane = c.lane and j.pos between c.lo and c.hi and j.worker = :dead::bigint and j.state in ('l', 'm')
  offset 0)
returning 1
