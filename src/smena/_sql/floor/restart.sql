-- Every floor starts again: after the sequence was moved nothing is known of what lies below. Lane 0 counts it.
with others as (
  update smena.floors set floor = 0, straggler = null, updated_at = clock_timestamp() where lane <> 0
)
insert into smena.floors as f (lane, floor, straggler) values (0, 0, 1)
on conflict (lane) do update set floor = 0, straggler = coalesce(f.straggler, 0) + 1, updated_at = clock_timestamp()
