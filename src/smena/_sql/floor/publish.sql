-- Writes the floors that changed.
insert into smena.floors as f (lane, floor, straggler)
select * from unnest(:lanes::int[], :floors::bigint[], :stragglers::bigint[])
on conflict (lane) do update set floor = excluded.floor, straggler = excluded.straggler, updated_at = clock_timestamp()
where f.floor <> excluded.floor or f.straggler is distinct from excluded.straggler
