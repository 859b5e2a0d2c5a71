-- Gives a page of a dead incarnation's jobs to others. Which of them killed the worker cannot be seen: each becomes a
-- suspect and runs next alone. Only a suspect that dies is counted as crashed; the third crash is terminal.
-- A job found in company is never failed here: its last attempt is given back, so that it gets its run alone.
-- Judged is the row as it was locked, not as the statement's snapshot has it: a start mark may have come in between.
with page as materialized (
  select * from unnest(:lanes::int[], :los::bigint[], :his::bigint[]) as p(lane, lo, hi)
), found as materialized (
  select f.* from page p cross join lateral (
    select j.lane, j.pos, j.id, j.state, j.repeats, j.crashes, j.attempt, j.max_attempts from smena.job j
    where j.lane = p.lane and j.pos between p.lo and p.hi and j.worker = :dead::bigint and j.state in ('l', 'm')
    for update skip locked) f
), judged as materialized (
  select f.lane, f.pos, s.id as suspects, l.kind = 's' as suspect, c.job_id is not null as cancelled,
    case
      when f.state = 'm' and not f.repeats then 'u'::"char"
      when c.job_id is not null then 'c'
      when l.kind = 's' and (coalesce(f.crashes, 0) + 1 >= 3 or f.attempt >= f.max_attempts) then 'f'
      else 'r' end as verdict
  from found f
  join smena.lanes l on l.id = f.lane
  join smena.lanes s on s.queue = l.queue and s.priority = l.priority and s.kind = 's'
  left join smena.cancel_requests c on c.job_id = f.id
), moved as (
  update smena.job j set
    state = v.verdict,
    pos = case when v.verdict = 'r' then nextval('smena.pos_seq') else -j.id end,
    lane = case when v.verdict = 'r' then v.suspects else j.lane end,
    attempt = j.attempt - (v.verdict = 'r' and not v.suspect and j.attempt >= j.max_attempts)::int,
    crashes = case when v.suspect then coalesce(j.crashes, 0) + 1 else j.crashes end,
    worker = case when v.verdict = 'r' then null else j.worker end,
    finished_at = case when v.verdict = 'r' then null else clock_timestamp() end,
    failure_kind = case v.verdict when 'u' then 'OUTCOME_UNKNOWN' when 'f' then 'CRASHED' else j.failure_kind end,
    failure_side = case v.verdict when 'u' then 'undecided' when 'f' then 'ours' else j.failure_side end
  from judged v
  where j.lane = v.lane and j.pos = v.pos and j.pos > 0
  returning v.pos, j.id, j.queue, j.order_key, j.after_failed, j.started_at, v.verdict,
    coalesce(j.attempts_before, 0) + j.attempt as attempt
), history as (
  insert into smena.attempts (job_id, attempt, pos, outcome, kind, side, detail, worker, started_at)
  select id, attempt, pos,
    case verdict when 'u' then 'unknown' when 'c' then 'cancelled' when 'f' then 'failed' else 'crashed' end,
    case verdict when 'u' then 'OUTCOME_UNKNOWN' when 'c' then null else 'CRASHED' end,
    case verdict when 'u' then 'undecided' when 'c' then null else 'ours' end,
    jsonb_build_object('message', 'the worker ' || :worker_name::text || ' stopped renewing its lease'),
    :worker_name::text, started_at from moved
), unheaded as (
  delete from smena.order_heads h using moved m
  where h.queue = m.queue and h.order_key = m.order_key and h.job_id = m.id
    and (m.verdict = 'c' or m.verdict = 'f' and m.after_failed is distinct from 'b')
), answered as (
  delete from smena.cancel_requests c using moved m where c.job_id = m.id and m.verdict <> 'r'
)
select m.id, m.pos, m.verdict from moved m
