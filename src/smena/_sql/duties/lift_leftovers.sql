-- Jobs still ready in segments past their retention get fresh positions, so that the segment can go.
with old as materialized (
  select s.lo, s.hi from smena.segments s
  where s.closed_at < clock_timestamp() - make_interval(secs => :keep::float8)
), late as materialized (
  select j.lane, j.pos, r.id as returned
  from old o cross join smena.lanes l
  join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = case l.kind when 's' then 's' else 'r' end
  cross join lateral (
    select j.lane, j.pos from smena.job j
    where j.lane = l.id and j.pos >= o.lo and j.pos < o.hi and j.state = 'r'
    order by j.pos limit :page::int
    for update skip locked) j
), moved as (
  update smena.job j set pos = nextval('smena.pos_seq'), lane = late.returned
  from late
  where j.lane = late.lane and j.pos = late.pos and j.pos > 0
  returning 1
)
select count(*) from moved
