-- Counts for people, by queue and state, none of them beyond `cap` rows. Ready work is counted from its lane's floor.
with lanes as (
  select l.id, l.queue, coalesce(f.floor, 0) as floor from smena.lanes l left join smena.floors f on f.lane = l.id
), ready as (
  select l.queue, 'ready' as state, r.n, r.oldest from lanes l cross join lateral (
    select count(*) as n, min(x.run_at) as oldest from (
      select coalesce(j.run_at, j.created_at) as run_at from smena.job j
      where j.lane = l.id and j.pos > l.floor and j.state = 'r' order by j.pos limit :cap::int) x) r
), held as (
  select j.queue, count(*) as n, min(j.started_at) as oldest
  from smena.claims c cross join lateral (
    select j.queue, j.started_at from smena.job j
    where j.lane = c.lane and j.pos between c.lo and c.hi and j.worker = c.incarnation and j.state in ('l', 'm')
    offset 0) j
  group by 1
), running as (
  select q.id as queue, 'running' as state, coalesce(h.n, 0) as n, h.oldest
  from smena.queues q left join held h on h.queue = q.id
), parked as (
  select q.id as queue, smena.state_word(s.state) as state, p.n, p.oldest
  from smena.queues q cross join unnest(array['s', 'b', 'f', 'u', 'c']::"char"[]) s(state) cross join lateral (
    select count(*) as n, min(x.at) as oldest from (
      select coalesce(b.finished_at, b.created_at) as at from smena.job_parked b
      where b.queue = q.id and b.state = s.state limit :cap::int) x) p
), done as (
  select l.queue, 'done' as state, d.n, null::timestamptz as oldest from lanes l cross join lateral (
    select count(*) as n from (
      select 1 from smena.job j
      where j.lane = l.id and j.pos <= l.floor and j.pos > 0 and j.state = 'd'
      order by j.pos desc limit :cap::int) x) d
), counts as (
  select queue, state, sum(n) as n, min(oldest) as oldest from (
    select * from ready union all select * from running union all select * from parked union all select * from done
  ) u group by 1, 2
)
insert into smena.queue_counts (queue, state, count, capped, oldest_age, measured_at)
select queue, state, least(n, :cap::int), n >= :cap::int, date_part('epoch', clock_timestamp() - oldest), clock_timestamp()
from counts
on conflict (queue, state) do update set count = excluded.count, capped = excluded.capped,
  oldest_age = excluded.oldest_age, measured_at = excluded.measured_at
