-- Is a ready job left in these stretches?
select exists (
  select from unnest(:los::bigint[], :his::bigint[]) as h(lo, hi) cross join smena.lanes l cross join lateral (
    select 1 from smena.job j where j.lane = l.id and j.pos between h.lo and h.hi and j.state = 'r' limit 1) r)
