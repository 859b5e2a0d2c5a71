-- The stretches of lo+1 … hi in which no row is visible: not yet committed, rolled back, or moved on. With `ready_too`
-- a ready row counts as missing.
with present as (
  select j.pos from smena.lanes l cross join lateral (
    select j.pos from smena.job j where j.lane = l.id and j.pos > :lo::bigint and j.pos <= :hi::bigint
      and (j.state <> 'r' or not :ready_too::bool) offset 0) j
), edges as (
  select pos, lag(pos, 1, :lo::bigint) over (order by pos) as before from present
  union all
  select :hi::bigint + 1, coalesce(max(pos), :lo::bigint) from present
)
select before + 1, pos - 1 from edges where pos > before + 1 order by 1
