-- Makes due jobs ready, at fresh positions of the lane that waits for them. `floor` keeps the scan off the entries of
-- jobs promoted before; a full pass with floor -infinity comes by now and then for late commits.
with due as materialized (
  select p.lane, p.pos from smena.job_parked p
  where p.state = 's' and p.run_at <= clock_timestamp() and p.run_at >= :floor::timestamptz
  order by p.run_at limit :page::int
  for update skip locked
), moved as (
  update smena.job j set state = 'r', pos = nextval('smena.pos_seq')
  from due d
  where j.lane = d.lane and j.pos = d.pos and j.pos < 0
  returning j.run_at
)
select count(*), (max(run_at) - interval '5 seconds')::text from moved
