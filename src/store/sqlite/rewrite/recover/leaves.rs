//! Collects the rows of tables whose trees are damaged, from every page that holds some.
//!
//! The tree of each table is walked from its root. If a page of it is damaged, its rows are collected in a file of
//! their own: first those that the walk reached, then those of the leaves that no tree leads to, which are assigned by
//! the columns of their rows. So the damage of a page costs the rows on it alone. Names, threads and namespaces are
//! also read from their unique indexes. *Absent:* the checks of rows, which are verified where they are read.
//!
//! Invariant: each page is visited once, so a walk ends whatever the bytes are.

use super::cells::{PageKind, TreePage};
use super::pages::{FilePages, PageBytes, tree_page};
use super::sql;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::file::table_group::{TableGroup, TableGroups};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::sqlite::tables::{Column, ColumnKind, OwnedColumns, TABLES, TableDescription, TableKey, TableRule};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// A page of a walk that cannot be read, or a cell of one.
pub(super) struct Defect {
    pub(super) table: &'static str,
    pub(super) place: String,
    pub(super) reason: &'static str,
    /// True if rows were on it, false if it only led to others.
    pub(super) has_rows: bool,
    /// True for the page where the table begins, of which that is not known.
    pub(super) is_root: bool,
}

/// The trees of a file.
pub(super) struct FileTrees {
    /// The pages of each damaged table that hold rows, in the order of the walk.
    damaged: HashMap<&'static str, Vec<u64>>,
    /// The tables that the file does not have, and those of which it is not known where they begin.
    absent: Vec<&'static str>,
    pub(super) unknown: Vec<&'static str>,
    /// The unique indexes of names, threads and namespaces.
    indexes: HashMap<&'static str, Vec<u64>>,
    pub(super) defects: Vec<Defect>,
    seen: BTreeSet<u64>,
}

/// The tables that are read from a unique index as well.
const INDEXED: [(&str, &str); 3] = [
    ("name", "sqlite_autoindex_name_1"),
    ("thread", "sqlite_autoindex_thread_1"),
    ("namespace", "sqlite_autoindex_namespace_1"),
];

/// A walk over one tree.
struct TreeWalk<'w> {
    pages: &'w FilePages,
    shape: Option<&'static TableDescription>,
    seen: &'w mut BTreeSet<u64>,
    rows: Vec<u64>,
    defects: Vec<Defect>,
    last: Option<OwnedColumns>,
}

/// The next step of a walk: a page to visit, or a row to take.
enum TreeStep {
    Page(u32, bool),
    Row(OwnedColumns),
}

impl FileTrees {
    /// Walks the trees of a file. `roots` are those of all tables and indexes.
    pub(super) fn walk(
        pages: &FilePages,
        roots: &HashMap<String, i64>,
        groups: Option<TableGroups>,
        collects_all: bool,
    ) -> Self {
        let is_absent = |table: &str| groups.zip(TableGroup::of(table)).is_some_and(|(groups, of)| !groups.has(of));
        let (mut seen, mut defects) = (BTreeSet::new(), Vec::new());
        let (mut absent, mut unknown) = (Vec::new(), Vec::new());
        let (mut damaged, mut indexes) = (HashMap::new(), HashMap::new());
        let root = |name: &str| roots.get(name).and_then(|root| u32::try_from(*root).ok()).unwrap_or_default();
        for shape in recovered() {
            if !roots.contains_key(shape.name) {
                if is_absent(shape.name) {
                    absent.push(shape.name);
                } else {
                    unknown.push(shape.name);
                    damaged.insert(shape.name, Vec::new());
                }
                continue;
            }
            let mut walk = TreeWalk::new(pages, Some(shape), &mut seen);
            walk.run(root(shape.name));
            if collects_all || !walk.defects.is_empty() || pages.is_displaced() {
                damaged.insert(shape.name, walk.rows);
                defects.append(&mut walk.defects);
            }
        }
        // The pages of other trees cannot be leaves of these tables.
        for name in roots.keys().filter(|name| recovered().all(|shape| shape.name != **name)) {
            let mut walk = TreeWalk::new(pages, None, &mut seen);
            walk.run(root(name));
            if let Some((table, _)) = INDEXED.iter().find(|(_, index)| index == name) {
                indexes.insert(*table, walk.rows);
            }
        }
        Self { damaged, absent, unknown, indexes, defects, seen }
    }

    /// Returns whether all tables can be read from their roots.
    pub(super) fn is_whole(&self) -> bool {
        self.damaged.is_empty()
    }

    /// Returns whether a table is read from its root.
    pub(super) fn is_read(&self, table: &str) -> bool {
        !self.damaged.contains_key(table) && !self.absent.contains(&table)
    }

    /// Collects the rows of the damaged tables in an empty database. It has the absent tables as well, without rows.
    pub(super) fn collect(&self, pages: &FilePages, conn: &Connection) -> Res<()> {
        conn.execute_batch(sql::SCRATCH_FILE)?;
        conn.execute_batch(engine_sql::BEGIN_READ)?;
        for shape in recovered().filter(|shape| !self.is_read(shape.name)) {
            conn.execute_batch(&shape.create())?;
            let Some(places) = self.damaged.get(shape.name) else { continue };
            for page in places.iter().filter_map(|place| pages.at(*place)) {
                found_on(pages, &page).0.into_iter().try_for_each(|row| shape.insert(conn, row))?;
            }
        }
        TableGroup::note_all(conn)?;
        for page in pages.unseen(&self.seen) {
            let (rows, kind) = found_on(pages, &page);
            let all: Vec<&OwnedColumns> = rows.iter().collect();
            if let Some(shape) = assign(&all, kind).filter(|shape| self.damaged.contains_key(shape.name)) {
                rows.into_iter().try_for_each(|row| shape.insert(conn, row))?;
            }
        }
        for (table, places) in &self.indexes {
            let Some(shape) = recovered().find(|shape| shape.name == *table) else { continue };
            let is_damaged = self.damaged.contains_key(table);
            for page in places.iter().filter(|_| is_damaged).filter_map(|place| pages.at(*place)) {
                let rows = found_on(pages, &page).0.into_iter().filter_map(|row| of_index(table, row));
                rows.into_iter().try_for_each(|row| shape.insert(conn, row))?;
            }
        }
        conn.execute_batch(engine_sql::COMMIT)?;
        Ok(())
    }
}

impl<'w> TreeWalk<'w> {
    fn new(pages: &'w FilePages, shape: Option<&'static TableDescription>, seen: &'w mut BTreeSet<u64>) -> Self {
        Self { pages, shape, seen, rows: Vec::new(), defects: Vec::new(), last: None }
    }

    fn defect(&mut self, place: String, reason: &'static str, has_rows: bool) {
        let table = self.shape.map_or("", |shape| shape.name);
        self.defects.push(Defect { table, place, reason, has_rows, is_root: false });
    }

    /// Notes a page that cannot be read. The kind of a root is not known then.
    fn unreadable(&mut self, place: String, reason: &'static str, is_root: bool) {
        let table = self.shape.map_or("", |shape| shape.name);
        self.defects.push(Defect { table, place, reason, has_rows: !is_root, is_root });
    }

    fn run(&mut self, root: u32) {
        let mut steps = vec![TreeStep::Page(root, true)];
        while let Some(step) = steps.pop() {
            match step {
                TreeStep::Row(row) => self.row(row),
                TreeStep::Page(number, is_root) => self.page(number, is_root, &mut steps),
            }
        }
    }

    fn page(&mut self, number: u32, is_root: bool, steps: &mut Vec<TreeStep>) {
        let place = format!("page {number}");
        let Some((at, bytes)) = self.pages.page(number) else {
            return self.unreadable(place, "it is not in the file", is_root);
        };
        let is_of_table = self.shape.map(|shape| shape.is_numbered());
        // The root of an empty table is a leaf without cells.
        let empty = |is_of_table| if is_of_table { 13 } else { 10 };
        if is_root
            && bytes[1..5] == [0; 4]
            && is_of_table.map_or(matches!(bytes[0], 10 | 13), |is| bytes[0] == empty(is))
        {
            self.seen.insert(at);
            return;
        }
        let page = tree_page(&bytes).filter(|page| is_of_table.is_none_or(|is| is == page.kind.is_of_table()));
        let Some(page) = page else { return self.unreadable(place, "it is a page of something else", is_root) };
        let mut rows = rows_of(self.pages, &page);
        let found: Vec<&OwnedColumns> = rows.iter().flatten().collect();
        if self.shape.is_some_and(|shape| is_of_other(shape, &found, page.kind)) {
            return self.defect(place, "it holds rows of another table", true);
        }
        if !self.seen.insert(at) {
            return self.defect(place, "two pages lead to it", false);
        }
        if page.kind != PageKind::TableInterior {
            self.rows.push(at);
        }
        let key = self.shape.map_or(1, TableDescription::key_columns);
        let mut below = Vec::new();
        for (index, row) in rows.iter_mut().enumerate() {
            match page.cell(index) {
                Some(cell) => below.extend(cell.child.map(|child| TreeStep::Page(child, false))),
                None => self.defect(format!("{place}, cell {index}"), "it cannot be read", page.has_rows()),
            }
            match row.take() {
                Some(mut row) => {
                    row.truncate(key);
                    below.push(TreeStep::Row(row));
                }
                None if page.has_rows() => self.defect(format!("{place}, cell {index}"), "its row is damaged", true),
                None => {}
            }
        }
        below.extend(page.last_child().map(|child| TreeStep::Page(child, false)));
        steps.extend(below.into_iter().rev());
    }

    /// Verifies that rows ascend: SQLite does not find one that is out of order.
    fn row(&mut self, row: OwnedColumns) {
        let Some(shape) = self.shape else { return };
        if self.last.as_ref().is_some_and(|last| shape.order(last, &row) != Ordering::Less) {
            self.defect("rows".into(), "their keys do not ascend", false);
        }
        self.last = Some(row);
    }
}

/// Returns the row of each cell of a page, if it can be read.
fn rows_of(pages: &FilePages, page: &TreePage<'_>) -> Vec<Option<OwnedColumns>> {
    let row = |index: usize| {
        let cell = page.cell(index).filter(|_| page.has_rows())?;
        Some(numbered(pages.record(page.local(&cell), cell.length, cell.rest)?, cell.rowid))
    };
    (0..page.count).map(row).collect()
}

/// Returns the rows of a page that can be read, and its kind.
fn found_on(pages: &FilePages, bytes: &PageBytes) -> (Vec<OwnedColumns>, PageKind) {
    match tree_page(bytes) {
        Some(page) => (rows_of(pages, &page).into_iter().flatten().collect(), page.kind),
        None => (Vec::new(), PageKind::TableInterior),
    }
}

/// Puts the number of a row in the place of the column that stands for it. A row of another tree has none.
fn numbered(mut row: OwnedColumns, rowid: Option<i64>) -> OwnedColumns {
    if let (Some(rowid), Some(first @ Value::Null)) = (rowid, row.first_mut()) {
        *first = Value::Integer(rowid);
    }
    row
}

/// Returns the tables that a recovery reads.
pub(super) fn recovered() -> impl Iterator<Item = &'static TableDescription> {
    TABLES.iter().copied().filter(|table| table.is(TableRule::Recovered))
}

impl TableDescription {
    fn is_numbered(&self) -> bool {
        self.key == TableKey::Number
    }

    /// Returns whether a row has the columns of the table.
    fn fits(&self, row: &OwnedColumns) -> bool {
        use ColumnKind::{Any, Blob, Integer, Stored, Text};
        let is = |(value, column): (&Value, &Column)| match (value, column.kind) {
            (Value::Null, _) => column.is_nullable,
            (_, Any)
            | (Value::Integer(_), Integer | Stored)
            | (Value::Text(_), Text)
            | (Value::Blob(_), Blob | Stored) => true,
            _ => false,
        };
        row.len() == self.columns.len() && row.iter().zip(self.columns).all(is)
    }

    /// Returns whether at least half of the rows have the columns of the table.
    fn is_of(&self, rows: &[&OwnedColumns]) -> bool {
        2 * rows.iter().filter(|row| self.fits(row)).count() >= rows.len()
    }

    /// Compares the keys of two rows.
    fn order(&self, a: &OwnedColumns, b: &OwnedColumns) -> Ordering {
        let descending = if let TableKey::Descending(columns) = self.key { columns - 1 } else { usize::MAX };
        let columns = a.iter().zip(b).take(self.key_columns()).enumerate();
        let orders = columns.map(|(at, (a, b))| if at == descending { compare(b, a) } else { compare(a, b) });
        orders.fold(Ordering::Equal, Ordering::then)
    }

    /// Inserts a row, unless one with its key is there.
    fn insert(&self, conn: &Connection, mut row: OwnedColumns) -> Res<()> {
        row.resize(self.columns.len(), Value::Null);
        if self.is_numbered() && !matches!(row[0], Value::Integer(_)) {
            return Ok(());
        }
        let places = vec!["?"; row.len()].join(", ");
        let insert = sql::COLLECT.replace("{table}", self.name).replace("{places}", &places);
        conn.run(&insert, params_from_iter(row)).map(|_| ())
    }
}

/// Compares values as SQLite does: NULL, numbers, texts, bytes.
fn compare(a: &Value, b: &Value) -> Ordering {
    let class = |value: &Value| match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    };
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Blob(a), Value::Blob(b)) => a.cmp(b),
        _ => class(a).cmp(&class(b)),
    }
}

/// Returns the table to which the rows of a page belong.
fn assign(rows: &[&OwnedColumns], kind: PageKind) -> Option<&'static TableDescription> {
    let fits = |shape: &&TableDescription| shape.is_numbered() == kind.is_of_table() && shape.is_of(rows);
    let shapes: Vec<&'static TableDescription> = recovered().filter(|shape| !rows.is_empty() && fits(shape)).collect();
    let named = |name: &str| shapes.iter().find(|shape| shape.name == name).copied();
    match (named("item"), named("version"), named("name"), named("namespace")) {
        (Some(item), Some(version), ..) => Some(if is_of_items(rows) { item } else { version }),
        (_, Some(version), ..) => Some(version),
        (_, _, Some(name), Some(namespace)) => {
            let verify = |table: &str| rows.iter().filter(|row| verifies(table, row)).count();
            Some(if verify("name") > verify("namespace") { name } else { namespace })
        }
        // A hash of 16 bytes tells a blob from the rows of other trees.
        _ => shapes.into_iter().find(|shape| {
            shape.name != "blob" || rows.iter().any(|row| matches!(&row[1], Value::Blob(hash) if hash.len() == 16))
        }),
    }
}

/// Returns whether the rows of a page are those of another tree.
fn is_of_other(shape: &TableDescription, rows: &[&OwnedColumns], kind: PageKind) -> bool {
    let is_none = !rows.is_empty() && !rows.iter().any(|row| shape.fits(row));
    is_none || (!shape.is_of(rows) && assign(rows, kind).is_some())
}

/// Returns whether rows that have the columns of both are items and not versions: their checks verify, or, in a file
/// with keys, several have the same second column.
fn is_of_items(rows: &[&OwnedColumns]) -> bool {
    let int = |row: &OwnedColumns, at: usize| match row.get(at) {
        Some(Value::Integer(number)) => *number,
        _ => 0,
    };
    if rows.iter().any(|row| verifies("item", row)) {
        return true;
    }
    // Each checkpoint has one version with a check.
    let has_check = |row: &&&OwnedColumns| row.get(7) != Some(&Value::Null);
    let is_next = |pair: &[&OwnedColumns]| int(pair[0], 1) == int(pair[1], 1) && int(pair[0], 0) == int(pair[1], 0);
    rows.iter().all(|row| has_check(&row)) && rows.windows(2).any(is_next)
}

/// Returns whether the last column of a row is the check of the others, in a file without keys.
fn verifies(table: &str, row: &OwnedColumns) -> bool {
    let mut check = RowCheck::of(table);
    let Some((last, columns)) = row.split_last() else { return false };
    columns.iter().for_each(|column| _ = check.value(ValueRef::from(column)));
    *last == Value::Integer(check.finish())
}

/// Returns the row of a table for which an entry of its unique index stands.
fn of_index(table: &'static str, mut entry: OwnedColumns) -> Option<OwnedColumns> {
    let id = entry.pop()?;
    let mut row = vec![id];
    row.append(&mut entry);
    if table == "thread" {
        // The timestamp follows from its checkpoints.
        row.push(Value::Integer(0));
    }
    let shape = recovered().find(|shape| shape.name == table)?;
    let mut check = RowCheck::of(table);
    row.iter().for_each(|column| _ = check.value(ValueRef::from(column)));
    row.push(Value::Integer(check.finish()));
    shape.fits(&row).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::PageKind::{IndexLeaf, TableLeaf};
    use super::*;

    fn ints(numbers: &[i64]) -> OwnedColumns {
        numbers.iter().map(|number| Value::Integer(*number)).collect()
    }

    #[test]
    fn rows_are_assigned_by_their_columns() {
        let text = || Value::Text("a".into());
        let name = |check| vec![Value::Integer(1), Value::Integer(0), text(), Value::Integer(check)];
        let check = RowCheck::of("name").int(1).int(0).text("a").finish();
        assert_eq!(assign(&[&name(check)], TableLeaf).map(|shape| shape.name), Some("name"));
        let check = RowCheck::of("namespace").int(1).int(0).text("a").finish();
        assert_eq!(assign(&[&name(check)], TableLeaf).map(|shape| shape.name), Some("namespace"));
        let version = |ordinal, check| [ints(&[1, ordinal, 3, 0, 1]), vec![Value::Null, Value::Integer(9), check]];
        let rows: Vec<OwnedColumns> = (0..4).map(|n| version(n, Value::Integer(n)).concat()).collect();
        let rows: Vec<&OwnedColumns> = rows.iter().collect();
        assert_eq!(assign(&rows, IndexLeaf).map(|shape| shape.name), Some("version"));
        assert_eq!(assign(&[&ints(&[1, 2, 3, 4, 5, 6, 7])], TableLeaf).map(|shape| shape.name), None);
        assert_eq!(assign(&[], TableLeaf).map(|shape| shape.name), None);
    }

    #[test]
    fn an_entry_of_a_unique_index_stands_for_its_row() {
        let row = of_index("thread", vec![Value::Text("t".into()), Value::Integer(4)]).unwrap();
        assert_eq!(row[..3], [Value::Integer(4), Value::Text("t".into()), Value::Integer(0)]);
        assert!(of_index("thread", vec![Value::Integer(4), Value::Text("t".into())]).is_none());
        let row = of_index("name", vec![Value::Integer(3), Value::Text("m".into()), Value::Integer(8)]).unwrap();
        assert!(verifies("name", &row));
    }
}
