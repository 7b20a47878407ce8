CREATE TABLE search_state (
  id INTEGER PRIMARY KEY,          -- 0: one row
  next INTEGER NOT NULL,           -- the number of the first entry that is not indexed: 2^24 * checkpoint.seq + its place there
  unsealed INTEGER NOT NULL        -- 1 if the index of an encrypted store was allowed, else 0
) STRICT;

CREATE TABLE search_erase (
  thread INTEGER PRIMARY KEY,      -- thread.id of a deleted thread with entries
  next INTEGER NOT NULL,           -- search_state.next when it was deleted: its entries are below
  namespace INTEGER NOT NULL,      -- namespace.id whose entries are being deleted
  checkpoint BLOB NOT NULL,        -- checkpoint.id whose entries are being deleted
  part INTEGER NOT NULL            -- entries of this checkpoint that are deleted
) STRICT;

CREATE INDEX search_put ON item (branch, ordinal) WHERE op = 1;

CREATE VIRTUAL TABLE search_text USING fts5(grams, content='', columnsize=0, detail=none, tokenize='ascii');
