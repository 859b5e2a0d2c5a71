-- Where the store was told to live, and where it lives now.
select i.id::text, i.system_identifier, i.database_oid, c.system_identifier, d.oid::bigint, d.datname::text
from smena.installation i, pg_control_system() c, pg_database d
where d.datname = current_database()
