-- What the last floor pass left: the floor of each lane and, in lane 0, of the whole log.
select l.id, coalesce(f.floor, 0) from (select id from smena.lanes union all select 0) l
left join smena.floors f on f.lane = l.id
