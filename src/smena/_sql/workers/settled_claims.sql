-- Forgets ledger rows whose jobs all have an outcome. By key, so that no dead entry is ever walked.
delete from smena.claims c using unnest(:lanes::int[], :his::bigint[]) as x(lane, hi)
where c.incarnation = :incarnation::bigint and c.lane = x.lane and c.hi = x.hi
