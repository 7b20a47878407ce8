//! The groups of tables that a file gets at their first use, with their indexes and views.
//!
//! A group is made as a whole, in the transaction that stores its first row, and stays. The user version in the header
//! of the file has a bit for each group of the file, so each transaction sees whether it is there, and a damaged schema
//! hides none. *Absent:* the search index, which is made and removed by its user.

use super::schema;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::sql;
use rusqlite::Connection;

/// A group of tables that a file has from its first row on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableGroup {
    /// The keys of an encrypted file.
    Keys,
    Timers,
    Leases,
    /// The key-value memory.
    Memory,
    Cache,
}

/// The bits of the user version that stand for groups: those of its second byte.
const BITS: i64 = 0xff00;

/// The groups of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableGroups {
    /// The user version of the file.
    user_version: i64,
}

impl TableGroups {
    /// Reads the groups, as the open transaction sees them.
    pub(crate) fn read(conn: &Connection) -> Res<Self> {
        Ok(Self { user_version: conn.prepare_cached(sql::READ_FORMAT)?.query_row([], |row| row.get(0))? })
    }

    /// Returns whether the file has a group.
    pub(crate) fn has(self, group: TableGroup) -> bool {
        self.user_version & group.bit() != 0
    }

    /// Returns whether all groups that are noted exist in this format.
    pub(crate) fn are_known(self) -> bool {
        TableGroup::ALL.into_iter().fold(self.user_version & BITS, |rest, group| rest & !group.bit()) == 0
    }

    /// Returns the format of the file.
    pub(crate) fn format(self) -> i64 {
        format_of(self.user_version)
    }
}

/// Returns the format that a user version names, without the bits of groups.
pub(crate) fn format_of(user_version: i64) -> i64 {
    user_version & !BITS
}

impl TableGroup {
    pub(crate) const ALL: [Self; 5] = [Self::Keys, Self::Timers, Self::Leases, Self::Memory, Self::Cache];

    /// Returns the tables and views of the group.
    fn objects(self) -> &'static [&'static str] {
        match self {
            Self::Keys => &["store_key"],
            Self::Timers => &["timer", "v_timers"],
            Self::Leases => &["lease", "lease_group"],
            Self::Memory => &["kv", "kv_namespace", "kv_vector", "kv_lifetime", "v_kv"],
            Self::Cache => &["cache"],
        }
    }

    fn bit(self) -> i64 {
        1 << (8 + self as usize)
    }

    /// Returns the group that a table or a view belongs to; `None` for one of every file.
    pub(crate) fn of(object: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.objects().contains(&object))
    }

    /// Returns whether the file has the group.
    pub(crate) fn exists(self, conn: &Connection) -> Res<bool> {
        Ok(TableGroups::read(conn)?.has(self))
    }

    /// Makes the group in the open transaction, unless the file has it.
    pub(crate) fn make(self, conn: &Connection) -> Res<()> {
        debug_assert!(!conn.is_autocommit(), "a group is made with its first row");
        let groups = TableGroups::read(conn)?;
        if !groups.has(self) {
            conn.execute_batch(&schema::statements_of(Some(self)))?;
            note(conn, groups.user_version | self.bit())?;
        }
        Ok(())
    }

    /// Notes that a file has all groups, whose tables the caller has made.
    pub(crate) fn note_all(conn: &Connection) -> Res<()> {
        note(conn, Self::ALL.into_iter().fold(sql::FORMAT, |all, group| all | group.bit()))
    }
}

fn note(conn: &Connection, user_version: i64) -> Res<()> {
    Ok(conn.execute_batch(&sql::SET_FORMAT.replace("{number}", &user_version.to_string()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::tables::TABLES;

    fn connect(path: &std::path::Path) -> Connection {
        Connection::open(path).unwrap()
    }

    #[test]
    fn each_connection_sees_a_group_once_it_is_made_and_not_after_a_rollback() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let (writer, reader) = (connect(&path), connect(&path));
        writer.execute_batch(&schema::statements_of(None)).unwrap();
        writer.execute_batch(sql::MARK).unwrap();
        for group in TableGroup::ALL {
            assert!(!group.exists(&writer).unwrap() && !group.exists(&reader).unwrap(), "{group:?}");
            writer.execute_batch("BEGIN").unwrap();
            group.make(&writer).unwrap();
            assert!(group.exists(&writer).unwrap());
            writer.execute_batch("ROLLBACK").unwrap();
            assert!(!group.exists(&writer).unwrap() && !group.exists(&reader).unwrap(), "{group:?}");
            reader.execute_batch("BEGIN; SELECT * FROM thread").unwrap();
            reader.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
            group.make(&reader).unwrap();
            reader.execute_batch("COMMIT").unwrap();
            assert!(group.exists(&writer).unwrap() && group.exists(&reader).unwrap(), "{group:?}");
            writer.execute_batch("BEGIN").unwrap();
            // A second time it is there already.
            group.make(&writer).unwrap();
            writer.execute_batch("COMMIT").unwrap();
            schema::verify(&reader).unwrap();
            assert_eq!(TableGroups::read(&reader).unwrap().format(), sql::FORMAT);
        }
    }

    #[test]
    fn a_group_is_whole_or_absent() {
        for group in TableGroup::ALL {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(&schema::statements_of(None)).unwrap();
            conn.execute_batch("BEGIN").unwrap();
            group.make(&conn).unwrap();
            conn.execute_batch("COMMIT").unwrap();
            schema::verify(&conn).unwrap();
            let of_group = |kind: &str| {
                let mut names = conn.prepare(sql::OBJECT_NAMES).unwrap();
                let names = names.query_map([kind], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
                names.filter(|name| TableGroup::of(name) == Some(group)).collect::<Vec<_>>()
            };
            let (tables, views) = (of_group("table"), of_group("view"));
            assert_eq!(tables.len() + views.len(), group.objects().len(), "{group:?}");
            for (kind, name) in
                [("TABLE", tables), ("VIEW", views)].iter().flat_map(|(k, n)| n.iter().map(move |n| (k, n)))
            {
                conn.execute_batch(&format!("BEGIN; DROP {kind} {name}")).unwrap();
                let error = format!("{:?}", schema::verify(&conn).unwrap_err());
                assert!(error.contains(name), "{error}");
                conn.execute_batch("ROLLBACK").unwrap();
            }
            // A flip in the header hides no row.
            for user_version in [0, 1 << 8 | 1, 1 << 15 | 1] {
                conn.execute_batch(&format!("PRAGMA user_version = {user_version}")).unwrap();
                let refused = format!("{:?}", schema::verify(&conn));
                assert!(refused.contains("Corrupt") || group == TableGroup::Keys && user_version == 257, "{refused}");
            }
        }
    }

    #[test]
    fn the_tables_of_groups_are_declared() {
        let is_view = |name: &&&str| name.starts_with("v_");
        for name in TableGroup::ALL.into_iter().flat_map(TableGroup::objects).filter(|name| !is_view(name)) {
            assert!(TABLES.iter().any(|table| table.name == *name), "{name}");
        }
    }
}
