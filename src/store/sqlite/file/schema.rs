//! The schema that a file must have: the tables, indexes, triggers and views that this version makes.
//!
//! SQLite runs the triggers and views of a file as code, and a view can stand where a table is read. So a file whose
//! schema is another one is refused before anything of it is read. A group of tables that a file gets at their first
//! use ([`table_group`](super::table_group)) is there if the header says so. *Absent:* the contents of the tables.

use super::table_group::{TableGroup, TableGroups};
use crate::store::error::{SchemaChange, StoreError};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::index::search::sql as search_sql;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::stats::RebuiltObject;
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

/// An object of a schema: a table, an index, a trigger or a view.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SchemaObject {
    kind: String,
    /// The table that it belongs to.
    table: String,
    /// The statement that made it. An index that SQLite made for a constraint has none.
    statement: Option<String>,
    /// The page at which it begins. A view, a trigger and a virtual table have none.
    has_root: bool,
}

impl SchemaObject {
    /// Returns the group to which the object belongs.
    fn group(&self) -> Option<TableGroup> {
        TableGroup::of(&self.table)
    }

    /// Returns whether a file with some groups must have the object.
    fn is_due(&self, groups: TableGroups) -> bool {
        self.group().is_none_or(|group| groups.has(group))
    }

    /// Returns whether the object is made anew from its statement, without a loss: a view, a trigger or an index that
    /// SQLite did not make for a constraint.
    fn is_remade(&self) -> bool {
        self.kind != "table" && self.statement.is_some()
    }
}

/// Characters of a name that an error shows.
const NAME_CHARS: usize = 64;

/// The objects of a schema, by name. They have an order, by which each comparison names the same one.
type Objects = BTreeMap<String, SchemaObject>;

/// The objects of a file, as SQLite makes them.
static EXPECTED: OnceLock<Objects> = OnceLock::new();

/// The objects of a file, as the statements declare them.
static DECLARED: OnceLock<Objects> = OnceLock::new();

/// The objects of the search index, with those that SQLite makes for them.
static OF_INDEX: OnceLock<Objects> = OnceLock::new();

/// Compares the schema of a file with that of the format. An application may have tables of its own in the file, and
/// indexes on them; any other object that this version does not make is refused.
pub(crate) fn verify(conn: &Connection) -> Res<()> {
    // To run the statements takes most of the time of an opening, so they are compared as they are written first.
    if compare(conn, DECLARED.get_or_init(|| declared(&statements(sql::SCHEMA)))).is_ok() {
        return Ok(());
    }
    compare(conn, expected()?)
}

fn compare(conn: &Connection, expected: &Objects) -> Res<()> {
    let groups = TableGroups::read(conn)?;
    if !groups.are_known() {
        return Err(corrupt("schema", "the header notes groups of tables that do not exist in this format"));
    }
    let (mut found, mut found_of_index) = (HashSet::new(), 0);
    let mut of_application = Vec::new();
    for (name, object) in conn.read_all(sql::SCHEMA_OBJECTS, [], read)? {
        match expected.get(&name) {
            Some(expected) if *expected == object && !expected.is_due(groups) => return Err(unnoted(&object, &name)),
            Some(expected) if *expected == object => _ = found.insert(name),
            Some(expected) => return Err(differs(expected, &object, &name)),
            // The objects of the search index are those of the format, all or none.
            None if is_of_index(&name) => match of_index()?.get(&name) {
                Some(expected) if *expected == object => found_of_index += 1,
                _ => return Err(damaged(&object.kind, &name, &SchemaChange::Differs.to_string())),
            },
            None if is_of_application(expected, &name, &object) => {
                if object.kind == "table" {
                    of_application.push(name);
                }
            }
            None => return Err(changed(&object.kind, &name, SchemaChange::Added)),
        }
    }
    if found_of_index > 0 && found_of_index != of_index()?.len() {
        return Err(damaged("index", "search_text", "is not whole"));
    }
    // A table that is missing takes its indexes and triggers along.
    let missing = || expected.iter().filter(|(name, object)| !found.contains(*name) && object.is_due(groups));
    if let Some((name, object)) = missing().find(|(_, object)| !object.is_remade()).or_else(|| missing().next()) {
        return Err(match object.is_remade() {
            true => changed(&object.kind, name, SchemaChange::Missing),
            false => damaged(&object.kind, name, &SchemaChange::Missing.to_string()),
        });
    }
    // A deletion in a table of the store would look for rows in one that refers to it, or change them.
    of_application.iter().try_for_each(|table| refers_to_none(conn, expected, table))
}

/// Verifies that no foreign key of a table of an application refers to a table of the store.
fn refers_to_none(conn: &Connection, ours: &Objects, table: &str) -> Res<()> {
    let to: Vec<String> = conn.all(sql::FOREIGN_TABLES, [table])?;
    match to.iter().any(|to| ours.contains_key(&to.to_ascii_lowercase())) {
        true => Err(changed("table", table, SchemaChange::Refers)),
        false => Ok(()),
    }
}

/// Makes the views, indexes and triggers of the format anew that are missing or differ, in the open transaction,
/// and returns them. `visit` is told of each before it is made. A file with any other difference is refused.
pub(crate) fn repair(conn: &Connection, visit: &mut dyn FnMut(&RebuiltObject)) -> Res<Vec<RebuiltObject>> {
    let (expected, groups) = (expected()?, TableGroups::read(conn)?);
    let found = objects(conn)?;
    // Nothing is made beside an object that a stranger may have added: an index of a changed table would compute its
    // expressions.
    for (name, object) in &found {
        match expected.get(name) {
            Some(ours) if ours == object && !ours.is_due(groups) => return Err(unnoted(object, name)),
            Some(ours) if ours == object || (ours.is_remade() && ours.kind == object.kind) => {}
            Some(ours) => return Err(differs(ours, object, name)),
            None if is_of_index(name) || is_of_application(expected, name, object) => {}
            None => return Err(changed(&object.kind, name, SchemaChange::Added)),
        }
    }
    let is_missing = |name: &str, object: &SchemaObject| object.is_due(groups) && !found.contains_key(name);
    if let Some((name, object)) = expected.iter().find(|(name, object)| !object.is_remade() && is_missing(name, object))
    {
        return Err(damaged(&object.kind, name, &SchemaChange::Missing.to_string()));
    }
    let mut rebuilt = Vec::new();
    let is_remade = |name: &str, object: &SchemaObject| {
        object.is_remade() && object.is_due(groups) && found.get(name) != Some(object)
    };
    for (name, object) in expected.iter().filter(|(name, object)| is_remade(name, object)) {
        let Some(statement) = &object.statement else { continue };
        let made = RebuiltObject { kind: object.kind.clone(), name: name.clone() };
        visit(&made);
        if found.contains_key(name) {
            conn.execute_batch(&format!("DROP {} {}", object.kind, quoted(name)))?;
        }
        conn.execute_batch(statement)?;
        rebuilt.push(made);
    }
    verify(conn)?;
    Ok(rebuilt)
}

/// Returns the statements of a schema without its comments, which took two pages of every file.
pub(crate) fn statements(schema: &str) -> String {
    let blocks = schema.split("\n\n").map(|block| {
        let code = block.lines().map(|line| line.split("--").next().unwrap_or_default().trim_end());
        code.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    });
    blocks.filter(|block| !block.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Returns the statements that make a group, or a new file, which has none.
pub(crate) fn statements_of(group: Option<TableGroup>) -> String {
    let all = statements(sql::SCHEMA);
    let is_of = |block: &&str| declaration(block).is_some_and(|(_, object)| object.group() == group);
    all.split("\n\n").filter(is_of).collect::<Vec<_>>().join("\n\n")
}

/// Returns the number of SQLite that changes when another connection commits.
pub(crate) fn data_version(conn: &Connection) -> Res<i64> {
    conn.one(sql::DATA_VERSION, [])
}

/// Returns the number that changes with every change of the schema.
pub(crate) fn version(conn: &Connection) -> Res<i64> {
    conn.one(sql::SCHEMA_VERSION, [])
}

/// Returns the objects that statements declare, each in a block of its own. SQLite stores them as they are written, and
/// makes an index for a constraint on the uniqueness of other keys than the number of a row.
fn declared(statements: &str) -> Objects {
    let mut objects = Objects::new();
    for (name, object) in statements.split("\n\n").filter_map(declaration) {
        let is_unique = object.statement.as_deref().is_some_and(|statement| statement.contains("UNIQUE"));
        if object.kind == "table" && is_unique {
            let index = SchemaObject { kind: "index".into(), statement: None, ..object.clone() };
            objects.insert(format!("sqlite_autoindex_{name}_1"), index);
        }
        objects.insert(name, object);
    }
    objects
}

/// Returns the object that a statement makes, with its name.
fn declaration(statement: &str) -> Option<(String, SchemaObject)> {
    let statement = statement.trim_end().trim_end_matches(';');
    let mut words = statement.split_whitespace().skip(1).filter(|word| *word != "UNIQUE");
    let (kind, name) = (words.next()?.to_lowercase(), words.next()?);
    let has_root = matches!(&*kind, "table" | "index");
    let table = match &*kind {
        "index" | "trigger" => words.skip_while(|word| *word != "ON").nth(1).unwrap_or_default(),
        _ => name,
    };
    let object = SchemaObject { kind, table: table.into(), statement: Some(statement.into()), has_root };
    Some((name.into(), object))
}

/// Returns whether the file has the objects of the format alone, and no table but that of the keys has a row.
pub(crate) fn is_without_rows(conn: &Connection) -> Res<bool> {
    let (expected, groups, found) = (expected()?, TableGroups::read(conn)?, objects(conn)?);
    if !expected.iter().filter(|(_, object)| object.is_due(groups)).eq(&found) {
        return Ok(false);
    }
    // Each store has a mark of its log, and one with a key its keys.
    let is_of_file = |name: &str| matches!(name, "store_key" | "wal_mark");
    for (name, _) in found.iter().filter(|(name, object)| object.kind == "table" && !is_of_file(name)) {
        if conn.one(&sql::HAS_ROW.replace("{table}", &quoted(name)), [])? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn expected() -> Res<&'static Objects> {
    if let Some(expected) = EXPECTED.get() {
        return Ok(expected);
    }
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(&statements(sql::SCHEMA))?;
    let objects = objects(&conn)?;
    Ok(EXPECTED.get_or_init(|| objects))
}

/// Returns the objects of the search index.
fn of_index() -> Res<&'static Objects> {
    if let Some(expected) = OF_INDEX.get() {
        return Ok(expected);
    }
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(&statements(sql::SCHEMA))?;
    conn.execute_batch(search_sql::SCHEMA)?;
    let mut objects = objects(&conn)?;
    objects.retain(|name, _| is_of_index(name));
    Ok(OF_INDEX.get_or_init(|| objects))
}

/// Returns whether a name is one of those that the search index has.
fn is_of_index(name: &str) -> bool {
    search_sql::OBJECTS.contains(&&*name.to_ascii_lowercase())
}

fn objects(conn: &Connection) -> Res<Objects> {
    Ok(conn.read_all(sql::SCHEMA_OBJECTS, [], read)?.into_iter().collect())
}

fn read(row: &Row<'_>) -> Res<(String, SchemaObject)> {
    let text = |column: usize| match row.get_ref(column)?.as_str_or_null() {
        Ok(text) => Ok(text.map(str::to_owned)),
        Err(error) => Err(corrupt("schema", error.to_string())),
    };
    let object = SchemaObject {
        kind: text(0)?.unwrap_or_default(),
        table: text(2)?.unwrap_or_default(),
        statement: text(3)?,
        has_root: row.get(4)?,
    };
    Ok((text(1)?.unwrap_or_default(), object))
}

/// Returns whether an object is a table that an application has beside those of the store, or an index on one.
fn is_of_application(ours: &Objects, name: &str, object: &SchemaObject) -> bool {
    let is_ours = |name: &str| {
        let name = name.to_ascii_lowercase();
        ours.contains_key(&name) || name.starts_with("pragma_")
    };
    match object.kind.as_str() {
        "table" => object.has_root && !is_ours(name),
        "index" => object.has_root && !is_ours(name) && !is_ours(&object.table),
        _ => false,
    }
}

/// Returns the error of an object of a group that the header does not note.
fn unnoted(object: &SchemaObject, name: &str) -> Fault {
    damaged(&object.kind, name, "is not noted in the header")
}

/// Returns the error of an object that is not the expected one of its name.
fn differs(expected: &SchemaObject, found: &SchemaObject, name: &str) -> Fault {
    match expected.is_remade() && expected.kind == found.kind {
        true => changed(&found.kind, name, SchemaChange::Differs),
        false => damaged(&found.kind, name, &SchemaChange::Differs.to_string()),
    }
}

/// Returns the error of a schema that another program has changed, with the statement that removes the added object.
fn changed(kind: &str, name: &str, change: SchemaChange) -> Fault {
    let verb = match kind {
        "index" => "DROP INDEX",
        "table" => "DROP TABLE",
        "trigger" => "DROP TRIGGER",
        "view" => "DROP VIEW",
        // No statement makes another kind.
        _ => return damaged(kind, name, &change.to_string()),
    };
    let shown: String = name.chars().take(NAME_CHARS).collect();
    let is_added = matches!(change, SchemaChange::Added | SchemaChange::Refers);
    let is_plain = shown == name && !name.chars().any(|c| c.is_control() || c == '`');
    let statement = (is_added && is_plain).then(|| format!("{verb} {}", quoted(name)));
    Fault::Store(StoreError::SchemaChanged { kind: kind.into(), name: shown, change, statement })
}

/// Returns a name as it stands in a statement: in quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the error of a schema that no statement of another program explains, or in which a table is not as it was.
fn damaged(kind: &str, name: &str, reason: &str) -> Fault {
    let shown: String = name.chars().take(NAME_CHARS).collect();
    corrupt("schema", format!("the {} {shown:?} {reason}", kind.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_makes_what_the_statements_declare() {
        assert_eq!(declared(&statements(sql::SCHEMA)), *expected().unwrap());
    }

    #[test]
    fn a_search_index_is_whole_and_unchanged() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&statements_of(None)).unwrap();
        conn.execute_batch(search_sql::SCHEMA).unwrap();
        verify(&conn).unwrap();
        let objects = of_index().unwrap();
        assert_eq!(objects.len(), search_sql::OBJECTS.len());
        conn.execute_batch("PRAGMA writable_schema = ON").unwrap();
        for name in objects.keys() {
            for (change, reason) in [
                ("DELETE FROM sqlite_schema WHERE name = ?1", "\"search_text\" is not whole".to_owned()),
                (
                    "UPDATE sqlite_schema SET sql = sql || ' ' WHERE name = ?1",
                    format!("{name:?} differs from the one that this version makes"),
                ),
            ] {
                conn.execute_batch("BEGIN").unwrap();
                assert_eq!(conn.execute(change, [name]).unwrap(), 1, "{change} {name}");
                let error = format!("{:?}", verify(&conn).unwrap_err());
                assert!(error.contains(&reason.replace('"', "\\\"")), "{change} {name}: {error}");
                conn.execute_batch("ROLLBACK").unwrap();
            }
        }
        verify(&conn).unwrap();
    }

    #[test]
    fn a_table_of_an_application_refers_to_no_table_of_the_store() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&statements_of(None)).unwrap();
        conn.execute_batch("CREATE TABLE app_a (x PRIMARY KEY); CREATE TABLE app_b (x REFERENCES app_a (x))").unwrap();
        verify(&conn).unwrap();
        conn.execute_batch("CREATE TABLE app_c (x REFERENCES Checkpoint (seq))").unwrap();
        let error = format!("{:?}", verify(&conn).unwrap_err());
        assert!(error.contains("change: Refers") && error.contains("app_c"), "{error}");
    }
}
