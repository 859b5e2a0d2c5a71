-- The first ready position of each lane above its floor and not beyond `settled`.
select f.lane, r.pos
from unnest(:lanes::int[], :floors::bigint[]) as f(lane, floor)
left join lateral (
  select j.pos from smena.job j
  where j.lane = f.lane and j.pos > f.floor and j.pos <= :settled::bigint and j.state = 'r'
  order by j.pos limit 1) r on true
