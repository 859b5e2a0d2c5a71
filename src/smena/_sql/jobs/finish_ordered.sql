-- Finishes jobs that have an order key and makes the next job of each key ready in the same transaction.
-- The next one is the lowest id that is blocked. If a person holds its row just now, the key is left without a head
-- and the activation duty comes back for it: skipping to a later job would break the order.
with given as materialized (
  select * from jsonb_to_recordset(:rows::jsonb) as x(lane int, pos bigint, result jsonb)
), done as (
  update smena.job j set state = 'd', finished_at = clock_timestamp(), result = g.result
  from given g
  where j.lane = g.lane and j.pos = g.pos and j.worker = :incarnation::bigint and j.state in ('l', 'm')
  returning j.lane, j.pos, j.id, j.queue, j.order_key
), next as materialized (
  select d.queue, d.order_key, n.lane, n.pos
  from done d cross join lateral (
    select b.lane, b.pos from smena.job_parked b
    where b.state = 'b' and b.queue = d.queue and b.order_key = d.order_key
    order by b.id limit 1) n
), locked as materialized (
  select b.lane, b.pos from next n join smena.job_parked b on b.lane = n.lane and b.pos = n.pos
  where b.state = 'b' for update of b skip locked
), started as (
  update smena.job j set
    state = case when j.run_at > clock_timestamp() then 's'::"char" else 'r' end,
    pos = case when j.run_at > clock_timestamp() then j.pos else nextval('smena.pos_seq') end
  from locked k
  where j.lane = k.lane and j.pos = k.pos and j.pos < 0
  returning j.id, j.queue, j.order_key
), headed as (
  update smena.order_heads h set job_id = s.id from started s where h.queue = s.queue and h.order_key = s.order_key
), unheaded as (
  delete from smena.order_heads h using done d
  where h.queue = d.queue and h.order_key = d.order_key and h.job_id = d.id
    and not exists (select from started s where s.queue = d.queue and s.order_key = d.order_key)
)
select pos from done
