-- The lanes of a queue at a priority, made at first use. Two transactions that both use it first: the second waits.
select smena.lane(:queue::text, :priority::int)
