-- What the last floor pass left: the floor of each lane and, in lane 0, of the whole log, with the count of rewinds.
select l.id, coalesce(f.floor, 0), case when l.id = 0 then f.straggler end
from (select id from smena.lanes union all select 0) l left join smena.floors f on f.lane = l.id
