CREATE TABLE {table} ({columns})
