-- The highest position in the log: the sequence must be beyond it.
select max(t.pos) from smena.lanes l cross join lateral (
  select j.pos from smena.job j where j.lane = l.id and j.pos > 0 order by j.pos desc limit 1) t
