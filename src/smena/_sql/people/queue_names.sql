-- The queues there are.
select name from smena.queues order by name
