//! Changes of a file: columns, rows, the schema and bytes.

use std::path::Path;

use annals::rusqlite::config::DbConfig;
use annals::rusqlite::types::Value;
use annals::rusqlite::{self, Connection, params_from_iter};
use annals::store::{OpenOptions, Store};

use super::content;
use crate::rng::Rng;
use crate::trace::remove_store;

/// The kind of a deletion that leaves no trace: no other row counts the runs of writes that no checkpoint consumed,
/// those of special indexes, and the keys of a namespace of the key-value memory.
const UNCOUNTED: &str = "a row that nothing counts is gone";
/// The kind of a change of the number of a key, which leaves no trace: it is the order of the first puts.
const RENUMBERED: &str = "a key in another place of the order: kv.id";
/// A query that asks whether a row of `write` is such a run.
const LONE_WRITE: &str = "SELECT count(*) = 1 FROM write w JOIN write o ON o.checkpoint = w.checkpoint AND o.task = w.task \
     AND iif(w.idx < 0, o.idx = w.idx, w.child IS NULL AND o.child IS NULL AND o.idx >= 0) \
     WHERE w.checkpoint IS ?1 AND w.task IS ?2 AND w.idx IS ?3 AND w.part IS ?4";

/// Lets any type into any column, and makes views and triggers short: to parse them takes most of the time of a
/// connection, and the editor uses none.
const LOOSE: &str = "UPDATE sqlite_schema SET sql = CASE type \
     WHEN 'table' THEN replace(replace(sql, 'STRICT, WITHOUT', 'WITHOUT'), ') STRICT', ')') \
     WHEN 'view' THEN format('CREATE VIEW \"%w\" AS SELECT 1', name) \
     WHEN 'trigger' THEN format('CREATE TRIGGER \"%w\" AFTER INSERT ON \"%w\" BEGIN SELECT 1; END', name, tbl_name) \
     ELSE sql END";

/// Returns whether a change leaves no trace that a check could find.
pub(super) fn is_untraced(change: &str) -> bool {
    change.starts_with(UNCOUNTED) || change.starts_with(RENUMBERED)
}

/// The bytes of a sound file, and of the same one with a schema that lets any type into any column.
pub(super) struct Base {
    sound: Vec<u8>,
    loose: Vec<u8>,
    tables: Vec<ForgedTable>,
    /// The rows of the schema: type, name and text.
    schema: Vec<(String, String, Option<String>)>,
}

struct ForgedTable {
    name: String,
    columns: Vec<String>,
    /// The columns of the primary key.
    key: Vec<String>,
    rows: usize,
}

/// A forged file.
pub(super) struct Forged {
    /// The kind of change, a colon, and its details.
    pub(super) kind: String,
    /// Hostile content alone: whether the API accepted all of it.
    pub(super) accepted: Option<bool>,
}

impl Forged {
    fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), accepted: None }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Opens a file as an editor of SQLite files does, without triggers.
fn edit(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    conn.execute_batch("PRAGMA writable_schema = ON; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE")?;
    Ok(conn)
}

/// Puts a file in the place of one that may have others beside it.
fn lay(path: &Path, content: &[u8]) -> Result<(), String> {
    remove_store(path);
    std::fs::write(path, content).map_err(told)
}

impl Base {
    /// Reads a closed file.
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        let sound = std::fs::read(path).map_err(told)?;
        let conn = edit(path).map_err(told)?;
        let read = || -> rusqlite::Result<_> {
            let mut rows = conn.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY rowid")?;
            let schema = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            let schema: Vec<(String, String, Option<String>)> = schema.collect::<rusqlite::Result<_>>()?;
            let tables = schema.iter().filter(|(kind, name, _)| kind == "table" && !name.starts_with("sqlite_"));
            let tables: Vec<ForgedTable> =
                tables.map(|(_, name, _)| table(&conn, name)).collect::<rusqlite::Result<_>>()?;
            conn.execute_batch(LOOSE)?;
            Ok((schema, tables))
        };
        let (schema, tables) = read().map_err(told)?;
        conn.close().map_err(|(_, error)| told(error))?;
        let loose = std::fs::read(path).map_err(told)?;
        Ok(Self { sound, loose, tables, schema })
    }

    /// Makes a forged file at `path`.
    pub(super) fn forge(&self, path: &Path, rng: &mut Rng) -> Result<Forged, String> {
        match rng.below(100) {
            0..70 => self.forge_rows(path, rng),
            70..82 => self.forge_schema(path, rng),
            82..90 => self.forge_bytes(path, rng),
            _ => self.hostile(path, rng),
        }
    }

    fn forge_rows(&self, path: &Path, rng: &mut Rng) -> Result<Forged, String> {
        lay(path, &self.loose)?;
        let conn = edit(path).map_err(told)?;
        let mut kinds = Vec::new();
        let count = if rng.chance(80) { 1 } else { 2 + rng.below(3) };
        // A change that a unique index refuses is followed by another one.
        for _ in 0..20 {
            if kinds.len() == count {
                break;
            }
            kinds.extend(self.change_row(&conn, rng).ok());
        }
        self.restore_schema(&conn).map_err(told)?;
        conn.close().map_err(|(_, error)| told(error))?;
        Ok(Forged::new(kinds.join(" and ")))
    }

    /// Makes a file at `path` with the loose schema, whose schema is restored, and no other change.
    pub(super) fn unchanged(&self, path: &Path) -> Result<(), String> {
        lay(path, &self.loose)?;
        let conn = edit(path).map_err(told)?;
        self.restore_schema(&conn).map_err(told)?;
        conn.close().map_err(|(_, error)| told(error))
    }

    fn restore_schema(&self, conn: &Connection) -> rusqlite::Result<()> {
        let restored = conn.unchecked_transaction()?;
        let mut statement =
            conn.prepare("UPDATE sqlite_schema SET sql = ?3 WHERE type = ?1 AND name = ?2 AND sql IS NOT ?3")?;
        for (kind, name, sql) in &self.schema {
            statement.execute(rusqlite::params![kind, name, sql])?;
        }
        restored.commit()
    }

    /// Returns a table that has rows.
    fn table(&self, rng: &mut Rng) -> &ForgedTable {
        let filled: Vec<&ForgedTable> = self.tables.iter().filter(|table| table.rows > 0).collect();
        filled[rng.below(filled.len())]
    }

    fn change_row(&self, conn: &Connection, rng: &mut Rng) -> rusqlite::Result<String> {
        let table = self.table(rng);
        let (name, column) = (&table.name, &table.columns[rng.below(table.columns.len())]);
        let place = rng.below(table.rows);
        let key = table.key_of(conn, place)?;
        let here = table.condition();
        match rng.below(20) {
            0 => {
                let is_lone = || conn.query_row(LONE_WRITE, params_from_iter(&key), |row| row.get(0));
                let is_uncounted = name == "kv" || (name == "write" && is_lone()?);
                conn.execute(&format!("DELETE FROM \"{name}\" WHERE {here}"), params_from_iter(&key))?;
                let kind = if is_uncounted { UNCOUNTED } else { "a row is gone" };
                Ok(format!("{kind}: {name} {place}"))
            }
            1 => {
                let columns = table.columns.join("\", \"");
                let copied: Vec<String> = table.columns.iter().map(|other| format!("\"{other}\"")).collect();
                let changed = copied.iter().map(|other| {
                    let is_key = table.key.iter().any(|key| format!("\"{key}\"") == *other);
                    if is_key { format!("{other} + 1") } else { other.clone() }
                });
                let changed: Vec<String> = changed.collect();
                let insert = format!(
                    "INSERT OR REPLACE INTO \"{name}\" (\"{columns}\") SELECT {} FROM \"{name}\" WHERE {here}",
                    changed.join(", ")
                );
                conn.execute(&insert, params_from_iter(&key))?;
                // The copy of an entry takes the place of the next one, and the entry goes, as its key is unique.
                Ok(if name == "kv" {
                    format!("{UNCOUNTED}: kv {place}, moved")
                } else {
                    format!("{name} with a row twice: {place}")
                })
            }
            2..5 => {
                let other = table.key_of(conn, rng.below(table.rows))?;
                let read = format!("SELECT \"{column}\" FROM \"{name}\" WHERE {here}");
                let first: Value = conn.query_row(&read, params_from_iter(&key), |row| row.get(0))?;
                let second: Value = conn.query_row(&read, params_from_iter(&other), |row| row.get(0))?;
                table.set(conn, column, second, &key)?;
                table.set(conn, column, first, &other)?;
                Ok(format!("{name}.{column} of two rows swapped: {place}"))
            }
            _ => {
                let (value, what) = self.value(conn, table, column, &key, rng)?;
                table.set(conn, column, value, &key)?;
                let target = format!("{name}.{column}");
                let target = if target == "kv.id" { RENUMBERED } else { &target };
                Ok(format!("{target} set to {what}: row {place}"))
            }
        }
    }

    /// Returns a value for a column, and its description.
    fn value(
        &self,
        conn: &Connection,
        table: &ForgedTable,
        column: &str,
        key: &[Value],
        rng: &mut Rng,
    ) -> rusqlite::Result<(Value, &'static str)> {
        let of = |table: &ForgedTable, column: &str, key: &[Value]| -> rusqlite::Result<Value> {
            let read = format!("SELECT \"{column}\" FROM \"{}\" WHERE {}", table.name, table.condition());
            conn.query_row(&read, params_from_iter(key), |row| row.get(0))
        };
        Ok(match rng.below(12) {
            0..3 => (Value::Integer(content::number(rng)), "a number"),
            3..5 => (of(table, column, &table.key_of(conn, rng.below(table.rows))?)?, "that of another row"),
            5 => {
                // Its own number: a reference becomes a cycle.
                (key.first().cloned().unwrap_or(Value::Null), "the key of the row")
            }
            6 => {
                let other = self.table(rng);
                let from = &other.columns[rng.below(other.columns.len())];
                (of(other, from, &other.key_of(conn, rng.below(other.rows))?)?, "that of another table")
            }
            7 => (Value::Null, "NULL"),
            8 => (Value::Text(content::text(rng)), "a text"),
            9 => (Value::Blob(content::bytes(rng)), "bytes"),
            10 => (Value::Real([f64::MAX, -0.0, f64::MIN_POSITIVE, 1.5][rng.below(4)]), "a float"),
            _ => match of(table, column, key)? {
                Value::Integer(number) => (Value::Integer(number.wrapping_add([1, -1, 256][rng.below(3)])), "one off"),
                Value::Blob(mut bytes) if !bytes.is_empty() => {
                    let place = rng.below(bytes.len());
                    bytes[place] ^= 1 << rng.below(8);
                    (Value::Blob(bytes), "one bit off")
                }
                Value::Blob(_) => (Value::Blob(vec![0; 1_000_000]), "a million zeros"),
                Value::Text(text) => (Value::Text(text + "x"), "a longer text"),
                _ => (Value::Integer(0), "zero"),
            },
        })
    }

    fn forge_schema(&self, path: &Path, rng: &mut Rng) -> Result<Forged, String> {
        lay(path, &self.sound)?;
        let conn = edit(path).map_err(told)?;
        let table = &self.table(rng).name;
        let (_, name, _) = &self.schema[rng.below(self.schema.len())];
        let other = self.schema[rng.below(self.schema.len())].2.clone();
        let one = |sql: &str| conn.execute(sql, [name]).map(|_| ());
        let (what, done) = match rng.below(14) {
            0 => (
                "a further trigger",
                conn.execute_batch(&format!(
                    "CREATE TRIGGER planted AFTER INSERT ON \"{table}\" BEGIN DELETE FROM kv; END"
                )),
            ),
            1 => ("a further view", conn.execute_batch("CREATE VIEW planted AS SELECT * FROM payload")),
            2 => ("a further index", conn.execute_batch(&format!("CREATE INDEX planted ON \"{table}\" (1)"))),
            3 => ("a further table", conn.execute_batch("CREATE TABLE planted (a)")),
            4 => ("a further column", conn.execute_batch(&format!("ALTER TABLE \"{table}\" ADD COLUMN planted TEXT"))),
            5 => ("an absent object", one("DELETE FROM sqlite_schema WHERE name = ?1")),
            6 => ("another name", one("UPDATE sqlite_schema SET name = name || 'x' WHERE name = ?1")),
            7 => ("another root page", one("UPDATE sqlite_schema SET rootpage = rootpage + 1 WHERE name = ?1")),
            8 => ("a root page far away", one("UPDATE sqlite_schema SET rootpage = 2147483647 WHERE name = ?1")),
            9 => ("no text", one("UPDATE sqlite_schema SET sql = NULL WHERE name = ?1")),
            10 => (
                "the text of another object",
                conn.execute("UPDATE sqlite_schema SET sql = ?2 WHERE name = ?1", rusqlite::params![name, other])
                    .map(|_| ()),
            ),
            11 => ("a comment", one("UPDATE sqlite_schema SET sql = sql || ' /* x */' WHERE name = ?1")),
            12 => {
                ("another format number", conn.execute_batch(&format!("PRAGMA user_version = {}", rng.next() as i32)))
            }
            _ => ("another application", conn.execute_batch(&format!("PRAGMA application_id = {}", rng.next() as i32))),
        };
        // SQLite refuses some of them, which leaves a sound file.
        let refused = if done.is_err() { ", refused by SQLite" } else { "" };
        _ = conn.close();
        Ok(Forged::new(format!("schema with {what}{refused}: {name}, {table}")))
    }

    fn forge_bytes(&self, path: &Path, rng: &mut Rng) -> Result<Forged, String> {
        let mut content = self.sound.clone();
        let pages = content.len() / 4096;
        let (page, other) = (4096 * rng.below(pages), 4096 * rng.below(pages));
        let kind = match rng.below(6) {
            0 => {
                content.copy_within(page..page + 4096, other);
                format!("page of another place: {page} to {other}")
            }
            1 => {
                content[page..page + 4096].fill(0);
                format!("page of zeros: {page}")
            }
            2 => {
                content.truncate(rng.below(content.len()));
                format!("end cut off: {} bytes are left", content.len())
            }
            3 => {
                let header = rng.below(100);
                content[header] = rng.next() as u8;
                format!("byte of the header: {header}")
            }
            _ => {
                let places: Vec<usize> = (0..1 + rng.below(8)).map(|_| rng.below(content.len())).collect();
                places.iter().for_each(|place| content[*place] ^= 1 << rng.below(8));
                format!("bits: {places:?}")
            }
        };
        lay(path, &content)?;
        Ok(Forged::new(kind))
    }

    fn hostile(&self, path: &Path, rng: &mut Rng) -> Result<Forged, String> {
        lay(path, &self.sound)?;
        let store = Store::open_with(path, OpenOptions::new()).map_err(told)?;
        let done = content::commit(&store, rng);
        let kind = match &done {
            Ok(()) => "hostile content: accepted".to_owned(),
            Err(error) => format!("hostile content: {}", error.code()),
        };
        Ok(Forged { kind, accepted: Some(done.is_ok()) })
    }
}

fn table(conn: &Connection, name: &str) -> rusqlite::Result<ForgedTable> {
    let mut rows = conn.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
    let columns = rows.query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let columns: Vec<(String, i64)> = columns.collect::<rusqlite::Result<_>>()?;
    let key = columns.iter().filter(|(_, place)| *place > 0).map(|(name, _)| name.clone()).collect();
    let rows: i64 = conn.query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| row.get(0))?;
    let columns = columns.into_iter().map(|(name, _)| name).collect();
    Ok(ForgedTable { name: name.to_owned(), columns, key, rows: rows as usize })
}

impl ForgedTable {
    fn condition(&self) -> String {
        let parts: Vec<String> =
            self.key.iter().enumerate().map(|(at, key)| format!("\"{key}\" IS ?{}", at + 1)).collect();
        parts.join(" AND ")
    }

    fn key_of(&self, conn: &Connection, place: usize) -> rusqlite::Result<Vec<Value>> {
        let read = format!("SELECT \"{}\" FROM \"{}\" LIMIT 1 OFFSET {place}", self.key.join("\", \""), self.name);
        conn.query_row(&read, [], |row| (0..self.key.len()).map(|at| row.get(at)).collect())
    }

    fn set(&self, conn: &Connection, column: &str, value: Value, key: &[Value]) -> rusqlite::Result<()> {
        let set =
            format!("UPDATE \"{}\" SET \"{column}\" = ?{} WHERE {}", self.name, self.key.len() + 1, self.condition());
        conn.execute(&set, params_from_iter(key.iter().chain([&value])))?;
        Ok(())
    }
}
