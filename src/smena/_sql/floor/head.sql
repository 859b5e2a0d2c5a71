-- The last position drawn.
select last_value, is_called from smena.pos_seq
