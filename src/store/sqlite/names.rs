//! Interned names, cached.
//!
//! An id stands for one text in the life of a file, so the text of an id stays true, whoever wrote it. The id of a text
//! changes when the name is erased and interned again: the writer, which knows of erasures, caches it, and clears its
//! cache when it rolls back; readers look it up.

use super::fault::{Res, corrupt};
use super::sql;
use crate::base::limits::NAMES_CACHE_MAX;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::sync::Arc;

/// The kind of a named thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Channel = 0,
    Node = 1,
    Task = 2,
    List = 3,
}

/// A cache of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    tables: Mutex<NameTables>,
    /// True for readers: the ids of texts are looked up.
    looks_up: bool,
}

#[derive(Debug, Default)]
struct NameTables {
    texts: HashMap<i64, (i64, Arc<str>)>,
    ids: [HashMap<Arc<str>, i64>; 4],
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
    pub(super) fn of_readers() -> Self {
        Self { looks_up: true, ..Self::default() }
    }

    /// Returns the text of a name that a row refers to.
    pub(super) fn text(&self, conn: &Connection, kind: Kind, id: i64) -> Res<Arc<str>> {
        let mut inner = self.tables.lock();
        if let Some((found, text)) = inner.texts.get(&id)
            && *found == kind as i64
        {
            return Ok(Arc::clone(text));
        }
        let row = conn
            .prepare_cached(sql::NAME_BY_ID)?
            .query_row([id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Arc<str>>(1)?)))
            .optional()?;
        match row {
            Some((found, text)) if found == kind as i64 => {
                inner.add(kind, id, Arc::clone(&text));
                Ok(text)
            }
            Some((found, _)) => Err(corrupt(format!("name {id}"), format!("kind {found} stands for a {kind:?}"))),
            None => Err(corrupt(format!("name {id}"), "a row refers to it, but it does not exist")),
        }
    }

    /// Returns the id of a name, if it is interned.
    pub(super) fn find(&self, conn: &Connection, kind: Kind, text: &str) -> Res<Option<i64>> {
        if !self.looks_up
            && let Some(&id) = self.tables.lock().ids[kind as usize].get(text)
        {
            return Ok(Some(id));
        }
        let id: Option<i64> = conn
            .prepare_cached(sql::NAME_BY_TEXT)?
            .query_row(params![kind as i64, text], |row| row.get(0))
            .optional()?;
        if let Some(id) = id.filter(|_| !self.looks_up) {
            self.tables.lock().add(kind, id, text.into());
        }
        Ok(id)
    }

    /// Interns a name, with a given id or with one that SQLite chooses, and returns its id.
    pub(super) fn insert(&self, conn: &Connection, kind: Kind, text: &str, id: Option<i64>) -> Res<i64> {
        conn.prepare_cached(sql::NAME_INSERT)?.execute(params![kind as i64, text, id])?;
        let id = conn.last_insert_rowid();
        self.tables.lock().add(kind, id, text.into());
        Ok(id)
    }
}
