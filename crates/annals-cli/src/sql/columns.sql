-- The views of the connection, each with its columns.
SELECT v.name, group_concat(c.name, ', ' ORDER BY c.cid)
FROM (SELECT name FROM sqlite_temp_schema WHERE type = 'view' UNION SELECT name FROM main.sqlite_schema WHERE type = 'view') v
  JOIN pragma_table_info(v.name) c
GROUP BY v.name ORDER BY v.name
