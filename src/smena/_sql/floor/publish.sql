-- Writes the floors that changed, unless the log was rewound since they were read.
insert into smena.floors as f (lane, floor, straggler)
select x.lane, x.floor, x.straggler
from unnest(:lanes::int[], :floors::bigint[], :stragglers::bigint[]) as x(lane, floor, straggler)
where (select z.straggler from smena.floors z where z.lane = 0) is not distinct from :rewinds::bigint
on conflict (lane) do update set floor = excluded.floor, straggler = excluded.straggler, updated_at = clock_timestamp()
where f.floor <> excluded.floor or f.straggler is distinct from excluded.straggler
