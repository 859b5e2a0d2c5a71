-- Closes an incarnation of one's own whose claims may be unknown (a connection broke inside a claim, or the process
-- stops) and hands back, without costing an attempt and in their order, what it holds beyond the positions that are known
-- to run. What somebody wants cancelled is cancelled.
with closed as (
  update smena.workers set closed = true where incarnation = :incarnation::bigint
), page as materialized (
  select c.lane, c.lo, c.hi from smena.claims c where c.incarnation = :incarnation::bigint
), found as materialized (
  select f.*, case when not f.stop then nextval('smena.pos_seq') end as fresh
  from (
    select f.lane, f.pos, c.job_id is not null as stop, c.reason
    from page p cross join lateral (
      select j.lane, j.pos from smena.job j
      where j.lane = p.lane and j.pos between p.lo and p.hi and j.worker = :incarnation::bigint and j.state = 'l'
        and j.pos <> all (:known::bigint[])
      order by j.pos for update skip locked) f
    left join smena.cancel_requests c on c.worker = :incarnation::bigint and c.pos = f.pos
    order by f.pos) f
), moved as (
  update smena.job j set state = case when f.stop then 'c'::"char" else 'r' end, pos = coalesce(f.fresh, -j.id),
    lane = case when f.stop or l.kind = 's' then l.id else r.id end, attempt = j.attempt - 1,
    worker = case when f.stop then j.worker end, finished_at = case when f.stop then clock_timestamp() end
  from found f
  join smena.lanes l on l.id = f.lane
  join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = 'r'
  where j.lane = f.lane and j.pos = f.pos and j.pos > 0
  returning f.pos, j.id, j.queue, j.order_key, j.started_at, coalesce(j.attempts_before, 0) + j.attempt + 1 as attempt,
    f.stop, f.reason
), history as (
  insert into smena.attempts (job_id, attempt, pos, outcome, detail, worker, started_at)
  select id, attempt, pos, case when stop then 'cancelled' else 'handed_back' end,
    case when stop then jsonb_build_object('reason', reason) end, :worker_name::text, started_at from moved
), unheaded as (
  delete from smena.order_heads h using moved m
  where m.stop and h.queue = m.queue and h.order_key = m.order_key and h.job_id = m.id
), answered as (
  delete from smena.cancel_requests c using moved m where m.stop and c.job_id = m.id
)
select id, pos from moved
