SELECT 1 FROM main.sqlite_schema WHERE 'main.' || name = ?1
