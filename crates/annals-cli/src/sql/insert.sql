INSERT INTO {table} VALUES ({places})
