//! Interned names, cached.
//!
//! An id stands for one text in the life of a file, so the text of an id stays true, whoever wrote it. The id of a text
//! changes when the name is erased and interned again: the writer, which knows of erasures, caches it, and clears its
//! cache when it rolls back; readers look it up.

use crate::limits::NAMES_CACHE_MAX;
use crate::store::record::TaskRecord;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checkpoint::unpack_task_records;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::seeded_map::SeededMap;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, name};
use crate::store::sqlite::verify::neighbors::{self, CountedIndexes};
use crate::store::sqlite::view::ReadView;
use parking_lot::Mutex;
use rusqlite::{Connection, Params, params};
use std::sync::Arc;

/// A cache of names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    tables: Mutex<NameTables>,
    /// True for readers: the ids of texts are looked up.
    looks_up: bool,
    /// The indexes whose entries were counted, see [`neighbors::whole`].
    pub(crate) counted: CountedIndexes,
}

#[derive(Debug, Default)]
struct NameTables {
    texts: NumberMap<i64, (i64, Arc<str>)>,
    ids: [SeededMap<Arc<str>, i64>; 4],
}

impl NameTables {
    fn add(&mut self, kind: Kind, id: i64, text: Arc<str>) {
        if self.texts.len() >= NAMES_CACHE_MAX {
            *self = Self::default();
        }
        self.texts.insert(id, (kind as i64, Arc::clone(&text)));
        self.ids[kind as usize].insert(text, id);
    }
}

impl Names {
    /// Makes the cache of readers, which are not told of erasures.
    pub(crate) fn of_readers() -> Self {
        Self { looks_up: true, ..Self::default() }
    }

    /// Returns the text of a name that a row refers to.
    pub(crate) fn text(&self, conn: &Connection, kind: Kind, id: i64) -> Res<Arc<str>> {
        let mut inner = self.tables.lock();
        if let Some((found, text)) = inner.texts.get(&id)
            && *found == kind as i64
        {
            return Ok(Arc::clone(text));
        }
        match stored(conn, name::Row::BY_KEY, [id])? {
            Some((_, found, text)) if found == kind as i64 => {
                inner.add(kind, id, Arc::clone(&text));
                Ok(text)
            }
            Some((_, found, _)) => Err(corrupt(format!("name {id}"), format!("kind {found} stands for a {kind:?}"))),
            None => Err(corrupt(format!("name {id}"), "a row refers to it, but it does not exist")),
        }
    }

    /// Returns the id of a name, if it is interned.
    pub(crate) fn find(&self, conn: &Connection, kind: Kind, text: &str) -> Res<Option<i64>> {
        if !self.looks_up
            && let Some(&id) = self.tables.lock().ids[kind as usize].get(text)
        {
            return Ok(Some(id));
        }
        let id = stored(conn, sql::NAME_BY_TEXT, params![kind as i64, text])?.map(|(id, ..)| id);
        if id.is_none() {
            neighbors::no_name(conn, kind as i64, text)?;
        }
        if let Some(id) = id.filter(|_| !self.looks_up) {
            self.tables.lock().add(kind, id, text.into());
        }
        Ok(id)
    }

    /// Interns a name under an id.
    pub(crate) fn insert(&self, conn: &Connection, kind: Kind, text: &str, id: i64) -> Res<()> {
        name::Row { id, kind: kind as i64, text }.insert(conn)?;
        self.tables.lock().add(kind, id, text.into());
        Ok(())
    }
}

/// Returns id, kind and text of a name.
fn stored(conn: &Connection, sql: &str, params: impl Params) -> Res<Option<(i64, i64, Arc<str>)>> {
    conn.read_first(sql, params, |row| {
        let name::Row { id, kind, text } = name::Row::verified(row)?;
        Ok((id, kind, text.into()))
    })
}

impl ReadView<'_> {
    /// Decodes the column of the prepared tasks of a checkpoint.
    pub(crate) fn tasks(self, column: Option<&[u8]>, place: &dyn Fn() -> String) -> Res<Vec<TaskRecord>> {
        unpack_task_records(column, place, |kind, id| self.names.text(self.conn, kind, id))
    }
}
