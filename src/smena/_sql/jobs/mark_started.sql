-- The start mark of a task that must not repeat: from here on a crash, a lost lease or a time-out ends in unknown.
-- Sent again when the answer was lost: nobody but its own process can have marked it.
update smena.job set state = 'm', started_at = clock_timestamp()
where lane = :lane::int and pos = :pos::bigint and worker = :incarnation::bigint and state in ('l', 'm')
returning pos
