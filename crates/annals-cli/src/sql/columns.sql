-- The views of the file, each with its columns.
SELECT v.name, group_concat(c.name, ', ' ORDER BY c.cid)
FROM main.sqlite_schema v JOIN pragma_table_info(v.name) c
WHERE v.type = 'view' GROUP BY v.name ORDER BY v.name
