-- The highest position that the log knows of: the sequence must not be behind it. A parked job lies at minus its id.
select greatest(
  (select max(t.pos) from smena.lanes l cross join lateral (
    select j.pos from smena.job j where j.lane = l.id and j.pos > 0 order by j.pos desc limit 1) t),
  (select max(-t.pos) from smena.lanes l cross join lateral (
    select j.pos from smena.job j where j.lane = l.id and j.pos < 0 order by j.pos limit 1) t),
  (select max(f.floor) from smena.floors f),
  0)
