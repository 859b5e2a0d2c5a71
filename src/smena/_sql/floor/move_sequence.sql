-- Moves the sequence: the next position drawn is the one after.
select setval('smena.pos_seq', :position::bigint)
