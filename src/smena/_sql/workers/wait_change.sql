-- Waits in the server until positions are drawn.
select smena.wait_change(:seen::bigint, :every::float8, :at_most::float8)
