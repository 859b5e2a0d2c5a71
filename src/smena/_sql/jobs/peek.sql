-- Which lanes have something ready beyond this worker's floors. LIMIT 1 in a lateral keeps it a probe per lane.
select f.lane
from unnest(:lanes::int[], :floors::bigint[]) as f(lane, floor)
cross join lateral (
  select 1 from smena.job j where j.lane = f.lane and j.pos > f.floor and j.state = 'r' order by j.pos limit 1
) r
