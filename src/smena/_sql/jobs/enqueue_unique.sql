-- Stores jobs of which some have a unique key: those without one, and those whose key is free. A key that another open
-- transaction holds is waited for; if that transaction rolls back, the job is stored here. Keys are taken in sorted
-- order, against deadlocks. A job is left out when its key is held: `jobs/unique_holds` tells by whom.
with lane as (
  select l.id, l.queue from smena.lanes l join smena.queues q on q.id = l.queue
  where q.name = :queue::text and l.priority = :priority::int and l.kind = 'n'
), input as materialized (
  select nextval('smena.pos_seq') as id, x.a, x.o, x.i, x.u, x.n,
    coalesce(:run_at::text::timestamptz, clock_timestamp() + make_interval(secs => :run_in::float8)) as run_at
  from jsonb_to_recordset(:rows::text::jsonb) as x(n int, a jsonb, o text, i text, u text)
  where exists (select from lane)
  order by x.n
), held as (
  insert into smena.unique_keys (queue, unique_key, job_id, mode, expires_at)
  select l.queue, i.u, i.id, :mode::text, clock_timestamp() + make_interval(secs => :hold_for::float8)
  from input i, lane l
  where i.u is not null
  order by i.u, i.n
  on conflict do nothing
  returning job_id
), stored as (
  insert into smena.job (lane, queue, pos, id, state, task, args, max_attempts, repeats, run_at, expires_at, order_key,
    after_failed, unique_key, idempotency_key, headers)
  select l.id, l.queue,
    case when i.o is not null or i.run_at > clock_timestamp() then -i.id else i.id end, i.id,
    case when i.o is not null then 'b'::"char" when i.run_at > clock_timestamp() then 's' else 'r' end,
    :task::text, i.a, :max_attempts::int, :repeats::bool, i.run_at,
    clock_timestamp() + make_interval(secs => :expires_in::float8), i.o,
    case when i.o is not null then :after_failed::text::"char" end, i.u, i.i, :headers::text::jsonb
  from input i left join held h on h.job_id = i.id, lane l
  where i.u is null or h.job_id is not null
  order by i.id
  returning id
)
select i.n, s.id from input i left join stored s on s.id = i.id order by i.n
