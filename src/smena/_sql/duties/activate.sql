-- Finds order keys that have blocked jobs and no head, and makes their lowest job the head. The keys are walked by
-- index, one step a key, not a row. The primary key of order_heads is what makes two heads of one key impossible.
with recursive keys(queue, order_key) as (
  (select b.queue, b.order_key from smena.job_parked b where b.state = 'b' order by b.queue, b.order_key limit 1)
  union all
  select n.queue, n.order_key from keys k cross join lateral (
    select b.queue, b.order_key from smena.job_parked b
    where b.state = 'b' and (b.queue, b.order_key) > (k.queue, k.order_key)
    order by b.queue, b.order_key limit 1) n
), idle as materialized (
  select k.queue, k.order_key from keys k
  where not exists (select from smena.order_heads h where h.queue = k.queue and h.order_key = k.order_key)
  limit :page::int
), first as materialized (
  select i.queue, i.order_key, f.lane, f.pos, f.id from idle i cross join lateral (
    select b.lane, b.pos, b.id from smena.job_parked b
    where b.state = 'b' and b.queue = i.queue and b.order_key = i.order_key
    order by b.id limit 1) f
), locked as materialized (
  -- Named by both its keys, so that no index makes this a walk.
  select l.* from first f cross join lateral (
    select b.lane, b.pos, b.id, b.queue, b.order_key from smena.job_parked b
    where b.lane = f.lane and b.pos = f.pos
      and b.state = 'b' and b.queue = f.queue and b.order_key = f.order_key and b.id = f.id
    for update skip locked) l
), headed as (
  insert into smena.order_heads (queue, order_key, job_id)
  select queue, order_key, id from locked order by queue, order_key
  on conflict do nothing
  returning job_id
), started as (
  update smena.job j set
    state = case when j.run_at > clock_timestamp() then 's'::"char" else 'r' end,
    pos = case when j.run_at > clock_timestamp() then j.pos else nextval('smena.pos_seq') end
  from locked k join headed h on h.job_id = k.id
  where j.lane = k.lane and j.pos = k.pos and j.pos < 0
  returning 1
)
select count(*) from started
