-- The stretches within lo … hi of each given one in which no row is visible: not yet committed, rolled back, or moved
-- on. With `ready_too` a ready row counts as missing.
with stretch as (
  select s.lo, s.hi from unnest(:los::bigint[], :his::bigint[]) as s(lo, hi)
), present as materialized (
  select s.lo, j.pos from stretch s cross join smena.lanes l cross join lateral (
    select j.pos from smena.job j where j.lane = l.id and j.pos between s.lo and s.hi
      and (j.state <> 'r' or not :ready_too::bool) offset 0) j
), edges as (
  select pos, lag(pos, 1, lo - 1) over (partition by lo order by pos) as before from present
  union all
  select s.hi + 1, coalesce(p.top, s.lo - 1)
  from stretch s left join (select lo, max(pos) as top from present group by lo) p on p.lo = s.lo
)
select before + 1, pos - 1 from edges where pos > before + 1 order by 1
