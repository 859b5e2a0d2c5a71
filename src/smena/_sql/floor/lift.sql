-- Lifts ready jobs out of stretches that were missing when the floor passed over them: they came late and get fresh
-- positions in the lane of returned work. Rows that somebody holds are left for the next pass.
with late as materialized (
  select j.lane, j.pos, r.id as returned
  from unnest(:los::bigint[], :his::bigint[]) as h(lo, hi)
  cross join smena.lanes l
  join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = case l.kind when 's' then 's' else 'r' end
  cross join lateral (
    select j.lane, j.pos from smena.job j
    where j.lane = l.id and j.pos between h.lo and h.hi and j.state = 'r'
    order by j.pos limit :page::int
    for update skip locked) j
), moved as (
  update smena.job j set pos = nextval('smena.pos_seq'), lane = late.returned
  from late
  where j.lane = late.lane and j.pos = late.pos and j.pos > 0
  returning 1
)
select count(*) from moved
