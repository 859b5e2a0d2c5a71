-- Every outcome but done, under the token (position and incarnation), with its row of history:
--   s  runs again after `delay` seconds        r  handed back, ready at once
--   f  failed      u  unknown      c  cancelled
-- `back` gives the attempt back; `head` lets the next job of the order key run. A job that somebody wants cancelled does
-- not run again. Positions are drawn in the order of the rows, so that hand-back keeps it.
with asked as materialized (
  select x.lane, x.pos, x.delay, x.back, x.snooze, x.unfit, x.kind, x.side,
    case when stop then 'c'::"char" else x."to" end as "to", x.head or stop as head,
    case when stop then 'cancelled' else x.outcome end as outcome,
    case when stop then jsonb_build_object('reason', c.reason) else x.detail end as detail, x.n
  from rows from (jsonb_to_recordset(:rows::jsonb) as (lane int, pos bigint, "to" "char", delay float8, back bool,
    head bool, snooze bool, unfit bool, outcome text, kind text, side text, detail jsonb)) with ordinality as x(lane, pos,
    "to", delay, back, head, snooze, unfit, outcome, kind, side, detail, n)
  left join smena.cancel_requests c on c.worker = :incarnation::bigint and c.pos = x.pos
  cross join lateral (select c.job_id is not null and x."to" in ('s', 'r') as stop) s
), given as materialized (
  select a.*, case when a."to" = 'r' then nextval('smena.pos_seq') end as fresh
  from (select * from asked order by n) a
), moved as (
  update smena.job j set
    state = g."to",
    pos = coalesce(g.fresh, -j.id),
    lane = case when g."to" in ('s', 'r') then
      case when l.kind = 's' and g."to" = 'r' then l.id else r.id end else j.lane end,
    attempt = j.attempt - g.back::int,
    snoozes = case when g.snooze then coalesce(j.snoozes, 0) + 1 else j.snoozes end,
    unknown_since = case when g.unfit then coalesce(j.unknown_since, clock_timestamp()) end,
    run_at = case when g."to" = 's' then clock_timestamp() + make_interval(secs => g.delay) else j.run_at end,
    worker = case when g."to" in ('s', 'r') then null else j.worker end,
    finished_at = case when g."to" in ('s', 'r') then null else clock_timestamp() end,
    failure_kind = coalesce(g.kind, j.failure_kind),
    failure_side = case when g.kind is null then j.failure_side else g.side end
  from given g
  join smena.lanes l on l.id = g.lane
  join smena.lanes r on r.queue = l.queue and r.priority = l.priority and r.kind = 'r'
  where j.lane = g.lane and j.pos = g.pos and j.pos > 0 and j.worker = :incarnation::bigint and j.state in ('l', 'm')
  returning g.pos, j.id, j.queue, j.order_key, coalesce(j.attempts_before, 0) + j.attempt + g.back::int as attempt,
    j.started_at, g.head, g.outcome, g.kind, g.side, g.detail
), history as (
  insert into smena.attempts (job_id, attempt, pos, outcome, kind, side, detail, worker, started_at)
  select id, attempt, pos, outcome, kind, side, detail, :worker_name::text, started_at from moved
  where outcome is not null
), unheaded as (
  delete from smena.order_heads h using moved m
  where m.head and h.queue = m.queue and h.order_key = m.order_key and h.job_id = m.id
), answered as (
  delete from smena.cancel_requests c using moved m where c.job_id = m.id
)
select pos from moved
