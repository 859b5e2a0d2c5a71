-- Keeps every drawer of positions out, for as long as the sequence is moved.
lock table smena.job in share row exclusive mode
