-- Drops one segment whose work is done and past its retention; null when there is none.
select smena.drop_segment(
  (select f.floor from smena.floors f where f.lane = 0), make_interval(secs => :keep::float8))
