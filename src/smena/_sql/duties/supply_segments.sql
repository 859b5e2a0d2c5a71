-- Makes segments until so many lie ahead of the sequence.
select smena.supply_segments(:ahead::int)
