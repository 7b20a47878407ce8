//! The tables of a file, each described once.
//!
//! A declaration of [`declared`] names the columns of a table with their types, its key, its owner, and whether
//! its rows are only added and have a check. From it follow the row as a structure, its check, its statements by key,
//! the search for rows without an owner, and the shape by which a recovery knows the rows of a damaged file. A test
//! compares the declarations with the schema. *Absent:* the meaning of columns, and queries of several tables.

mod column;
mod declared;
pub(crate) mod row_check;
pub(crate) mod sql;
pub(crate) mod text;

pub(crate) use self::column::{ColumnKind, ColumnType, RowColumns, RunColumn, StoredColumn, TaskColumn};
pub(crate) use self::declared::*;
use self::row_check::{ChecksumKey, RowCheck};
use super::fault::Res;
use super::query::FromColumns;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, Statement};

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: ColumnKind,
    pub(crate) is_nullable: bool,
    /// The tables to one of whose keys it refers. A row belongs to the row there, if the column holds nothing else.
    pub(crate) owners: &'static [&'static str],
}

impl Column {
    /// Describes a column of a type.
    pub(crate) const fn of<'r, T: ColumnType<'r>>(name: &'static str, owners: &'static [&'static str]) -> Self {
        Self { name, kind: T::KIND, is_nullable: T::IS_NULLABLE, owners }
    }
}

/// The key of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKey {
    /// The first column, which is the number of the row.
    Number,
    /// The first columns.
    Columns(usize),
    /// The first columns, of which the last one descends.
    Descending(usize),
}

/// A property of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableRule {
    /// A trigger refuses that a row is changed, or deleted outside an erasure.
    AppendOnly,
    /// A recovery reads its rows.
    Recovered,
    /// A column of another table refers to each of its rows.
    Used,
}

/// A table of the file.
#[derive(Debug)]
pub(crate) struct TableDescription {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    pub(crate) key: TableKey,
    pub(crate) rules: &'static [TableRule],
}

impl TableDescription {
    /// Returns the number of columns of the key.
    pub(crate) const fn key_columns(&self) -> usize {
        match self.key {
            TableKey::Number => 1,
            TableKey::Columns(columns) | TableKey::Descending(columns) => columns,
        }
    }

    /// Returns the order of the last column of the key.
    const fn last_order(&self) -> &'static str {
        if matches!(self.key, TableKey::Descending(_)) { " DESC" } else { "" }
    }

    /// Returns whether the table has a rule.
    pub(crate) fn is(&self, rule: TableRule) -> bool {
        self.rules.contains(&rule)
    }

    /// Returns the position of a column.
    pub(crate) const fn position(&self, name: &str) -> usize {
        let mut at = 0;
        while !text::equals(self.columns[at].name, name) {
            at += 1;
        }
        at
    }

    /// Names the row whose columns a visit shows.
    pub(crate) fn place(&self, each: impl FnOnce(&mut dyn FnMut(ValueRef<'_>))) -> String {
        let mut key = Vec::with_capacity(self.key_columns());
        each(&mut |column| {
            if key.len() < self.key_columns() {
                let name = if self.key == TableKey::Number { "" } else { self.columns[key.len()].name };
                let value = match column {
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
                    ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                    _ => "?".to_owned(),
                };
                key.push(if name.is_empty() { value } else { format!("{name} {value}") });
            }
        });
        let key = key.join(", ");
        if self.key == TableKey::Number { format!("{} {key}", self.name) } else { format!("{} ({key})", self.name) }
    }
}

/// The columns of a row, which outlive its statement.
pub(crate) type OwnedColumns = Vec<Value>;

/// Decodes rows of a table.
pub(crate) fn decoded<'r, R: TableRow<'r>>(rows: &'r [OwnedColumns]) -> Res<Vec<R>> {
    rows.iter().map(|columns| R::of(columns)).collect()
}

/// A row of a table, borrowed from a statement or from what is to be stored.
pub(crate) trait TableRow<'r>: Copy {
    const TABLE: &'static TableDescription;
    const COLUMNS: &'static [Column];
    /// All rows, or those that a condition behind it names.
    const SELECT: &'static str;
    const BY_KEY: &'static str;
    const INSERT: &'static str;
    const PUT: &'static str;
    const DELETE: &'static str;
    /// The rows from a number on, in the order of the first column.
    const FROM: &'static str;
    /// The rows with a number in the first column, in the order of the key.
    const UNDER: &'static str;
    const DELETE_UNDER: &'static str;
    const COUNT: &'static str;
    const EXISTS: &'static str;
    /// The greatest number in the first column.
    const GREATEST: &'static str;

    /// Reads the columns, without the check that may follow.
    fn read_columns(columns: &mut RowColumns<'r, '_>) -> Res<Self>;

    /// Visits the columns in their order: the numbers that they stand for, or the stored distances.
    fn each(&self, is_stored: bool, visit: impl FnMut(ValueRef<'_>));

    /// Reads a row whose columns start at `first`, and whose check is verified elsewhere.
    fn read(row: &'r Row<'_>, first: usize) -> Res<Self> {
        Self::read_columns(&mut RowColumns::new(Self::TABLE, row, first))
    }

    /// Decodes a row from its columns, read by [`owned`](Self::owned).
    fn of(columns: &'r [Value]) -> Res<Self> {
        Self::read_columns(&mut RowColumns::of(Self::TABLE, columns))
    }

    /// Returns the columns of a row. They match the format.
    fn owned(row: &'r Row<'_>) -> Res<OwnedColumns> {
        Self::read(row, 0)?;
        Ok((0..Self::COLUMNS.len()).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?)
    }

    /// Reads the columns of a query that follow those of the table.
    fn after<T: FromColumns>(row: &Row<'_>) -> Res<T> {
        Ok(T::read(row, Self::COLUMNS.len())?)
    }

    /// Names the row.
    fn place(&self) -> String {
        Self::TABLE.place(|visit| self.each(false, visit))
    }

    /// Returns the check of the columns.
    fn row_check(&self) -> RowCheck {
        let mut check = RowCheck::of(Self::TABLE.name);
        self.each(false, |column| _ = check.value(column));
        check
    }

    /// Runs a statement that stores the row, with the check that follows its columns. Returns the number of rows that
    /// it changed.
    fn store(&self, conn: &Connection, sql: &str, check: Option<i64>) -> Res<usize> {
        self.store_by(&mut *conn.prepare_cached(sql)?, None, check)
    }

    /// Runs a prepared statement that stores the row. `before` is the row that it stored last: numbers that are the
    /// same are bound already. A statement that has stored none yet has NULL in each column.
    fn store_by(&self, statement: &mut Statement<'_>, before: Option<&Self>, check: Option<i64>) -> Res<usize> {
        let (mut bound, mut at) = ([Some(None); COLUMNS_COMPARED], 0);
        if let Some(before) = before {
            before.each(true, |column| {
                bound.get_mut(at).into_iter().for_each(|bound| *bound = number_or_null(column));
                at += 1;
            });
        }
        let (mut at, mut done) = (0, Ok(()));
        let mut bind = |column: ValueRef<'_>| {
            let number = number_or_null(column);
            if done.is_ok() && (number.is_none() || bound.get(at) != Some(&number)) {
                done = statement.raw_bind_parameter(at + 1, ToSqlOutput::Borrowed(column));
            }
            at += 1;
        };
        self.each(true, &mut bind);
        check.into_iter().for_each(|check| bind(ValueRef::Integer(check)));
        done?;
        Ok(statement.raw_execute()?)
    }
}

/// The first columns of a row, which are compared with those of the row before it.
const COLUMNS_COMPARED: usize = 16;

/// Returns the content of a column if that is a number or NULL.
fn number_or_null(column: ValueRef<'_>) -> Option<Option<i64>> {
    match column {
        ValueRef::Null => Some(None),
        ValueRef::Integer(number) => Some(Some(number)),
        ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => None,
    }
}

/// A row without a check, or with one that its columns include.
pub(crate) trait Bare<'r>: TableRow<'r> {
    fn insert(&self, conn: &Connection) -> Res<()> {
        self.store(conn, Self::INSERT, None).map(|_| ())
    }

    /// Stores the row in place of the one that has its key.
    fn put(&self, conn: &Connection) -> Res<()> {
        self.store(conn, Self::PUT, None).map(|_| ())
    }
}

/// A row whose last column is the check of the others.
pub(crate) trait Checked<'r>: TableRow<'r> {
    /// Reads and verifies a row.
    fn verified(row: &'r Row<'_>) -> Res<Self> {
        Self::verified_columns(RowColumns::new(Self::TABLE, row, 0))
    }

    /// Decodes and verifies a row from its columns.
    fn verified_of(columns: &'r [Value]) -> Res<Self> {
        Self::verified_columns(RowColumns::of(Self::TABLE, columns))
    }

    fn verified_columns(mut columns: RowColumns<'r, '_>) -> Res<Self> {
        let found = Self::read_columns(&mut columns)?;
        columns.verify(found.row_check().finish())?;
        Ok(found)
    }

    fn insert(&self, conn: &Connection) -> Res<()> {
        self.store(conn, Self::INSERT, Some(self.row_check().finish())).map(|_| ())
    }
}

/// A row whose last column is the check of the others, with the key of the checksums if the file has one.
pub(crate) trait KeyChecked<'r>: TableRow<'r> {
    /// Reads and verifies a row.
    fn verified(keys: &impl ChecksumKey, row: &'r Row<'_>) -> Res<Self> {
        let mut columns = RowColumns::new(Self::TABLE, row, 0);
        let found = Self::read_columns(&mut columns)?;
        columns.verify(found.row_check().finish_keyed(keys))?;
        Ok(found)
    }

    /// Reads a row, and returns whether its check matches.
    fn compared(keys: &impl ChecksumKey, row: &'r Row<'_>) -> Res<(Self, bool)> {
        let mut columns = RowColumns::new(Self::TABLE, row, 0);
        let found = Self::read_columns(&mut columns)?;
        let check = found.row_check().finish_keyed(keys);
        Ok((found, columns.next::<ValueRef<'_>>("xxh3")? == ValueRef::Integer(check)))
    }

    fn insert(&self, conn: &Connection, keys: &impl ChecksumKey) -> Res<()> {
        self.store(conn, Self::INSERT, Some(self.row_check().finish_keyed(keys))).map(|_| ())
    }

    /// Stores the row in place of the one that has its key.
    fn put(&self, conn: &Connection, keys: &impl ChecksumKey) -> Res<()> {
        self.store(conn, Self::PUT, Some(self.row_check().finish_keyed(keys))).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::file::schema::statements;
    use crate::store::sqlite::sql::{OBJECT_NAMES, SCHEMA, TABLE_COLUMNS, TRIGGERS};
    use std::collections::BTreeSet;

    #[test]
    fn the_declarations_are_those_of_the_schema() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&statements(SCHEMA)).unwrap();
        let mut objects = conn.prepare(OBJECT_NAMES).unwrap();
        let mut names = |kind: &str| -> BTreeSet<String> {
            objects.query_map([kind], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(names("table"), TABLES.iter().map(|table| table.name.to_owned()).collect());
        let append_only = TABLES.iter().filter(|table| table.is(TableRule::AppendOnly));
        let triggers: BTreeSet<String> = append_only.flat_map(triggers).collect();
        let mut stored = conn.prepare(TRIGGERS).unwrap();
        let stored: BTreeSet<String> = stored.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(stored, triggers);
        let mut columns = conn.prepare(TABLE_COLUMNS).unwrap();
        for table in TABLES {
            let found = columns.query_map([table.name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
            let found: Vec<(String, String, bool, i64)> = found.unwrap().map(Result::unwrap).collect();
            let declared = table.columns.iter().enumerate().map(|(at, column)| {
                let kind = match column.kind {
                    ColumnKind::Integer => "INTEGER",
                    ColumnKind::Text => "TEXT",
                    ColumnKind::Blob => "BLOB",
                    ColumnKind::Stored | ColumnKind::Any => "ANY",
                };
                let key = if at < table.key_columns() { at as i64 + 1 } else { 0 };
                // A number is never NULL, and a column of any type says of NULL what its codec knows.
                let is_required = match column.kind {
                    ColumnKind::Any => found[at].2,
                    _ => !column.is_nullable && (at > 0 || table.key != TableKey::Number),
                };
                (column.name.to_owned(), kind.to_owned(), is_required, key)
            });
            assert_eq!(declared.collect::<Vec<_>>(), found, "{}", table.name);
        }
    }

    /// Returns the triggers that refuse to change a row, and to delete one outside an erasure.
    fn triggers(table: &&TableDescription) -> [String; 2] {
        let name = table.name;
        // The special slots of tasks are replaced.
        let (of, but) = match name {
            "write" => ("OLD.idx >= 0 AND ", ", but for the special slots"),
            _ => ("", ""),
        };
        let refuse = |but: &str| format!("BEGIN SELECT RAISE(ABORT, 'annals: {name} is append-only{but}'); END");
        let erasure = format!("{of}NOT EXISTS (SELECT 1 FROM tombstone WHERE thread = 0)");
        [
            format!("CREATE TRIGGER {name}_no_update BEFORE UPDATE ON {name}\n{}", refuse("")),
            format!("CREATE TRIGGER {name}_no_delete BEFORE DELETE ON {name} WHEN {erasure}\n{}", refuse(but)),
        ]
    }

    #[test]
    fn a_table_for_damaged_rows_has_the_key_of_the_real_one() {
        assert_eq!(tombstone::TABLE.create(), "CREATE TABLE tombstone (thread INTEGER PRIMARY KEY, state)");
        let items = "CREATE TABLE item (branch, channel, slot, ordinal, op, task, value, xxh3, \
                     PRIMARY KEY (branch, channel, slot, ordinal DESC)) WITHOUT ROWID";
        assert_eq!(item::TABLE.create(), items);
    }

    #[test]
    fn a_row_is_named_by_its_key() {
        let row = operation_change::Row {
            namespace: 3,
            kind: 1,
            key: "main",
            operation: 9,
            newest: 0,
            before: ValueRef::Null,
            after: ValueRef::Null,
        };
        assert_eq!(row.place(), "operation_change (namespace 3, kind 1, key \"main\", operation 9)");
        assert_eq!(tombstone::Row { thread: 4, state: 0 }.place(), "tombstone 4");
    }

    #[test]
    fn a_row_without_an_owner_is_searched_by_each_column_that_names_one() {
        let query = "SELECT count(*) FROM operation_change WHERE namespace NOT IN (SELECT id FROM namespace) \
                     OR operation NOT IN (SELECT id FROM operation)";
        assert_eq!(operation_change::TABLE.orphans().as_deref(), Some(query));
        assert_eq!(thread::TABLE.orphans(), None);
        let query = "SELECT count(*) FROM namespace WHERE thread NOT IN (SELECT id FROM thread \
                     UNION SELECT thread FROM tombstone)";
        assert_eq!(namespace::TABLE.orphans().as_deref(), Some(query));
    }

    #[test]
    fn a_row_that_nothing_refers_to_is_searched_by_the_columns_that_refer_to_its_table() {
        let query = "SELECT count(*) FROM blob WHERE id NOT IN (SELECT data FROM payload WHERE typeof(data) = 'integer' \
                     UNION SELECT text FROM payload WHERE typeof(text) = 'integer')";
        assert_eq!(blob::TABLE.orphans().as_deref(), Some(query));
        let query = "SELECT count(*) FROM operation WHERE id NOT IN (SELECT operation FROM operation_change)";
        assert_eq!(operation::TABLE.orphans().as_deref(), Some(query));
    }

    #[test]
    fn the_rows_under_a_number_come_in_the_order_of_the_key() {
        let query = "SELECT thread, name FROM name_user WHERE thread = ?1 ORDER BY thread, name";
        assert_eq!(name_user::Row::UNDER, query);
        assert!(item::Row::UNDER.ends_with(" WHERE branch = ?1 ORDER BY branch, channel, slot, ordinal DESC"));
    }
}
