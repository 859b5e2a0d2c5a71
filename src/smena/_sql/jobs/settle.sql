-- Every outcome but done, under the token (position and incarnation), with its row of history:
--   s  runs again after `delay` seconds        r  handed back, ready at once
--   f  failed      u  unknown      c  cancelled
-- `back` gives the attempt back; `head` lets the next job of the order key run.
with given as materialized (
  select * from jsonb_to_recordset(:rows::jsonb) as x(lane int, pos bigint, "to" "char", delay float8, back bool,
    head bool, snooze bool, unfit bool, outcome text, kind text, side text, detail jsonb)
), moved as (
  update smena.job j set
    state = g."to",
    pos = case when g."to" = 'r' then nextval('smena.pos_seq') else -j.id end,
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
