-- Cancel requests that came too late: their position is not running any more.
delete from smena.cancel_requests c
where c.requested_at < clock_timestamp() - interval '1 minute'
  and not exists (
    select from smena.job j where j.id = c.job_id and j.pos = c.pos and j.state in ('l', 'm'))
