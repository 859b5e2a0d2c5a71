-- Closes an incarnation of one's own whose claims may be unknown (a connection broke inside a claim, or the process
-- stops) and hands back, without costing an attempt, what it holds beyond the positions that are known to run.
with closed as (
  update smena.workers set closed = true where incarnation = :incarnation::bigint
), page as materialized (
  select c.lane, c.lo, c.hi from smena.claims c where c.incarnation = :incarnation::bigint
), found as materialized (
  select f.* from page p cross join lateral (
    select j.lane, j.pos from smena.job j
    where j.lane = p.lane and j.pos between p.lo and p.hi and j.worker = :incarnation::bigint and j.state = 'l'
      and j.pos <> all (:known::bigint[])
    order by j.pos for update skip locked) f
), moved as (
  update smena.job j set state = 'r', pos = nextval('smena.pos_seq'),
    lane = case when l.kind = 's' then l.id else r.id end, attempt = j.attempt - 1, worker = null
  from found f
  join smena.lanes l on l.id = f.lane
  join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = 'r'
  where j.lane = f.lane and j.pos = f.pos and j.pos > 0
  returning f.pos, j.id, j.started_at, coalesce(j.attempts_before, 0) + j.attempt + 1 as attempt
), history as (
  insert into smena.attempts (job_id, attempt, pos, outcome, worker, started_at)
  select id, attempt, pos, 'handed_back', :worker_name::text, started_at from moved
)
select id, pos from moved
