-- Keeps every drawer of positions and every floor pass out, for as long as the sequence is moved.
lock table smena.job, smena.floors in share row exclusive mode
