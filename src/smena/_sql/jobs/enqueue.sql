-- Stores jobs of one task. One JSON document carries all rows; the position is drawn inside the INSERT, under its
-- table lock, which the floor's argument needs. No rows come back when the queue's lane does not exist yet.
with lane as (
  select l.id, l.queue from smena.lanes l join smena.queues q on q.id = l.queue
  where q.name = :queue::text and l.priority = :priority::int and l.kind = 'n'
), input as materialized (
  select nextval('smena.pos_seq') as id, x.a, x.o, x.i, x.n,
    coalesce(:run_at::text::timestamptz, clock_timestamp() + make_interval(secs => :run_in::float8)) as run_at
  from jsonb_to_recordset(:rows::text::jsonb) as x(n int, a jsonb, o text, i text)
  where exists (select from lane)
  order by x.n
)
insert into smena.job (lane, queue, pos, id, state, task, args, max_attempts, repeats, run_at, expires_at, order_key,
  after_failed, idempotency_key, headers)
select l.id, l.queue,
  case when i.o is not null or i.run_at > clock_timestamp() then -i.id else i.id end, i.id,
  case when i.o is not null then 'b'::"char" when i.run_at > clock_timestamp() then 's' else 'r' end,
  :task::text, i.a, :max_attempts::int, :repeats::bool, i.run_at,
  clock_timestamp() + make_interval(secs => :expires_in::float8), i.o,
  case when i.o is not null then :after_failed::text::"char" end, i.i, :headers::text::jsonb
from input i, lane l
order by i.id
returning id
