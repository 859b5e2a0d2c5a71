-- Who this store is, and whether it still lives in the database it was made or adopted in.
select i.id::text,
  i.system_identifier = c.system_identifier and i.database_oid = d.oid::bigint as at_home
from smena.installation i, pg_control_system() c, pg_database d
where d.datname = current_database()
