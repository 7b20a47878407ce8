//! The caches of the writer: what it knows of the file between two transactions, and whether that still holds.

use super::heads::RetainedHeads;
use super::ids::{NewIds, Table};
use super::leases;
use super::leases::RetainedLeases;
use super::places::BranchPlaces;
use crate::base::{Namespace, ThreadId};
use crate::limits::{NAME_USERS_MAX, NAMES_CACHE_MAX, WRITER_CACHE_MAX};
use crate::store::record::{CheckpointRef, StoredHead};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::file::schema::data_version;
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::index::threads::QueueTail;
use crate::store::sqlite::index::threads::unfollowed::Unfollowed;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::list_end::ListEnds;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::seeded_map::SeededMap;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Bare, TableRow, name_user, timer};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, params};
use std::collections::HashSet;
use std::sync::Arc;

/// The caches of the writer. A rollback, an erasure or a commit of another connection makes them wrong; heads and
/// leases are followed.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) names: Names,
    pub(crate) ids: NewIds,
    /// The number of the thread that the present batch writes to.
    pub(crate) thread: i64,
    /// The threads that are noted as users of a name; 0 is among them if there are too many to note.
    users: NumberMap<i64, Vec<i64>>,
    /// Names that were erased when the caches of names were filled.
    names_erased: i64,
    /// The numbers of namespaces and of their threads.
    pub(crate) namespaces: SeededMap<(ThreadId, Namespace), (i64, i64)>,
    pub(crate) known: NumberMap<i64, Arc<Known>>,
    pub(crate) heads: RetainedHeads,
    pub(crate) leases: RetainedLeases,
    /// The places of the newest rows at the ends of branches.
    pub(crate) places: BranchPlaces,
    /// The ends of lists that were written or read last.
    pub(crate) lists: ListEnds,
    /// Channels that are not lists.
    no_lists: HashSet<Arc<str>>,
    /// The keys of the file.
    pub(crate) keys: Arc<Keys>,
    /// True if an entry was added since the last commit.
    pub(crate) fresh: bool,
    /// The number of SQLite that changes when another connection commits: that may have erased threads.
    data_version: i64,
    /// The next seq, once a batch has read it, until another connection commits.
    pub(crate) next_seq: Option<i64>,
    /// True once the present transaction has looked for the commits of others.
    is_refreshed: bool,
    /// True once the schema was verified since another connection committed last.
    pub(crate) is_verified: bool,
    /// True if the file may have timers; `None` before that was read.
    has_timers: Option<bool>,
    /// The mark of the table of threads, once it was read.
    pub(crate) followed: Option<i64>,
    /// The tokens and the costs of the checkpoints that the table of threads does not follow yet.
    pub(crate) unfollowed: Unfollowed,
    /// The checkpoints that the table of threads does not follow yet, as the last claim has read them.
    pub(crate) queue_tail: QueueTail,
    /// Room in which the fields of a payload are collected to be hashed.
    pub(crate) room: Vec<u8>,
}

impl Caches {
    /// Returns a view of the file as the open transaction sees it.
    pub(crate) fn view<'a>(&'a self, conn: &'a Connection) -> ReadView<'a> {
        ReadView { conn, names: &self.names, keys: &self.keys }
    }

    /// Makes empty caches for a file with these keys.
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self { keys, ..Self::default() }
    }

    /// Removes entries that a rolled back transaction or batch may have added.
    pub(crate) fn rolled_back(&mut self) {
        (self.next_seq, self.is_refreshed) = (None, false);
        (self.followed, self.has_timers) = (None, None);
        (self.unfollowed, self.queue_tail) = (Unfollowed::default(), QueueTail::default());
        self.ids.forget();
        if self.fresh {
            *self = Self::new(Arc::clone(&self.keys));
        }
    }

    /// Removes entries whose rows an erasure may have removed.
    pub(crate) fn erased(&mut self) {
        self.namespaces.clear();
        self.known.clear();
        self.heads.clear();
        self.leases.clear();
        self.places.clear();
        self.lists.clear();
        (self.unfollowed, self.queue_tail) = (Unfollowed::default(), QueueTail::default());
        self.ids.forget();
        (self.next_seq, self.has_timers) = (None, None);
    }

    /// Removes the names, some of which were erased.
    pub(crate) fn names_erased(&mut self) {
        self.names = Names::default();
        self.users.clear();
        self.no_lists.clear();
        self.ids.forget();
    }

    /// Retains the entries that a committed transaction added. Returns whether it had looked for the commits of others.
    pub(crate) fn committed(&mut self) -> bool {
        let was_refreshed = std::mem::take(&mut self.is_refreshed);
        self.fresh = false;
        if self.known.len() > WRITER_CACHE_MAX {
            self.known.clear();
        }
        if self.namespaces.len() > WRITER_CACHE_MAX {
            self.namespaces.clear();
        }
        self.heads.bound();
        self.places.bound();
        self.leases.bound();
        if self.lists.len() > WRITER_CACHE_MAX {
            self.lists.clear();
        }
        if self.users.len() > NAMES_CACHE_MAX {
            self.users.clear();
        }
        self.unfollowed.bound();
        was_refreshed
    }

    /// Returns the id of a name, which is interned if it is new.
    pub(crate) fn intern(&mut self, conn: &Connection, kind: Kind, text: &str) -> Res<i64> {
        let id = match self.names.find(conn, kind, text)? {
            Some(id) => id,
            None => {
                let id = self.ids.next(conn, Table::Name)?;
                self.names.insert(conn, kind, text, id)?;
                self.fresh = true;
                self.no_lists.remove(text);
                id
            }
        };
        self.note_user(conn, id)?;
        Ok(id)
    }

    /// Notes that the thread of the batch uses a name, so that the name is erased with the last thread that does. Past
    /// a number of users only that is noted.
    pub(crate) fn note_user(&mut self, conn: &Connection, name: i64) -> Res<()> {
        let thread = self.thread;
        debug_assert!(thread > 0, "a batch that writes has a thread");
        let is_noted = |users: &Vec<i64>| users.contains(&thread) || users.contains(&0);
        if self.users.get(&name).is_some_and(is_noted) {
            return Ok(());
        }
        let mut users: Vec<i64> = conn.all(sql::NAME_USERS, [name])?;
        if !is_noted(&users) {
            let user = if users.len() < NAME_USERS_MAX { thread } else { 0 };
            name_user::Row { thread: user, name }.insert(conn)?;
            users.push(user);
            self.fresh = true;
        }
        self.users.insert(name, users);
        Ok(())
    }

    /// Returns the id under which a channel has items, if it was ever a list.
    pub(crate) fn list(&mut self, conn: &Connection, channel: &Arc<str>) -> Res<Option<i64>> {
        if self.no_lists.contains(channel) {
            return Ok(None);
        }
        let id = self.names.find(conn, Kind::List, channel)?;
        if id.is_none() {
            self.no_lists.insert(Arc::clone(channel));
        }
        Ok(id)
    }

    pub(crate) fn namespace(
        &mut self,
        conn: &Connection,
        thread: &ThreadId,
        namespace: &Namespace,
    ) -> Res<Option<i64>> {
        Ok(self.place(conn, thread, namespace)?.map(|(namespace, _)| namespace))
    }

    /// Returns the number of a thread.
    pub(crate) fn thread_number(&mut self, conn: &Connection, thread: &ThreadId) -> Res<Option<i64>> {
        refresh(conn, self)?;
        Ok(self.place(conn, thread, &Namespace::root())?.map(|(_, thread)| thread))
    }

    /// Returns the numbers of a namespace and of its thread.
    pub(crate) fn place(
        &mut self,
        conn: &Connection,
        thread: &ThreadId,
        namespace: &Namespace,
    ) -> Res<Option<(i64, i64)>> {
        let key = (thread.clone(), namespace.clone());
        if let Some(&place) = self.namespaces.get(&key) {
            return Ok(Some(place));
        }
        let place: Option<(i64, i64)> =
            conn.first(sql::NAMESPACE_BY_PATH, params![thread.as_str(), namespace.as_str()])?;
        if let Some(place) = place {
            self.namespaces.insert(key, place);
        }
        Ok(place)
    }

    /// Notes that the file has a timer.
    pub(crate) fn note_timer(&mut self) {
        self.has_timers = Some(true);
    }

    /// Returns whether the file may have timers.
    pub(crate) fn may_have_timers(&mut self, conn: &Connection) -> Res<bool> {
        if let Some(known) = self.has_timers {
            return Ok(known);
        }
        let found = TableGroup::Timers.exists(conn)? && conn.one(timer::Row::EXISTS, [])?;
        self.has_timers = Some(found);
        Ok(found)
    }

    /// Returns whether it is known that a checkpoint is the head of a namespace, and that no task has stored writes at
    /// it.
    pub(crate) fn is_bare(&self, at: &CheckpointRef) -> bool {
        let place = self.namespaces.get(&(at.thread.clone(), at.namespace.clone()));
        place.is_some_and(|(namespace, _)| self.heads.bare(*namespace) == Some(at.checkpoint))
    }

    /// Returns the head of a namespace, with the last lease of its thread, if this connection has stored it, no task
    /// has stored writes at it, and no other connection has committed since. `None` if that is not known without
    /// reading the head. `is_current` says that the log shows no commit of others.
    pub(crate) fn bare_head(
        &mut self,
        conn: &Connection,
        thread: &ThreadId,
        namespace: &Namespace,
        is_current: impl FnOnce() -> bool,
    ) -> Res<Option<StoredHead>> {
        let place = self.namespaces.get(&(thread.clone(), namespace.clone())).copied();
        let Some((number, thread)) = place else { return Ok(None) };
        let Some(head) = self.heads.bare(number) else { return Ok(None) };
        let lease = if namespace.is_root() { leases::retained(conn, self, thread)? } else { None };
        // Last, so that the lease too is that of the version that the caches know.
        if !is_current() && data_version(conn)? != self.data_version {
            return Ok(None);
        }
        Ok(Some(StoredHead::new(head, false, Vec::new()).with_lease(lease)))
    }

    pub(crate) fn known(&mut self, conn: &Connection, seq: i64) -> Res<Arc<Known>> {
        if let Some(known) = self.known.get(&seq) {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(self.view(conn).known(seq)?);
        self.known.insert(seq, Arc::clone(&known));
        Ok(known)
    }
}

/// Drops the cached numbers and names that a commit or an erasure of another handle has made stale, once in a
/// transaction.
pub(crate) fn refresh(conn: &Connection, caches: &mut Caches) -> Res<()> {
    if std::mem::replace(&mut caches.is_refreshed, true) {
        return Ok(());
    }
    let version = data_version(conn)?;
    if caches.data_version != version {
        caches.erased();
        caches.no_lists.clear();
        caches.followed = None;
        (caches.data_version, caches.is_verified) = (version, false);
        let names_erased = caches.ids.names_erased(conn)?;
        if caches.names_erased != names_erased {
            caches.names_erased();
            caches.names_erased = names_erased;
        }
    }
    Ok(())
}

/// Returns whether the schema was verified and no other connection has committed since. Asked once in a transaction;
/// `is_last` says that the log shows no commit of others since the one before it.
pub(crate) fn is_current(conn: &Connection, caches: &mut Caches, is_last: bool) -> Res<bool> {
    let is_current = caches.is_verified && (is_last || data_version(conn)? == caches.data_version);
    debug_assert!(!is_last || data_version(conn)? == caches.data_version || !caches.is_verified, "the log is ours");
    caches.is_refreshed = is_current;
    Ok(is_current)
}
