//! Verifies that a listing of checkpoints is complete: an entry that an index does not show leaves a gap.
//!
//! In the order of the ids of a namespace, each branch is one unbroken range whose ordinals go up by one, and later
//! branches have greater ids, because only a child of the head stays on its branch. So the checkpoint before another
//! one is its parent on the same branch, or the last one on the branch before. *Absent:* checkpoints that were looked
//! up by an id.

use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::source;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::checkpoint;
use rusqlite::{Connection, params};
use std::collections::HashMap;

/// The fields of a checkpoint that say which one comes before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListingEntry {
    pub(crate) seq: i64,
    pub(crate) namespace: i64,
    pub(crate) branch: i64,
    pub(crate) ordinal: i64,
    /// The parent, if it is on the same branch.
    before: Option<i64>,
    /// If it was pruned, the number of pruned checkpoints directly before it on its branch, as it knows of.
    pub(crate) pruned_below: i64,
}

impl ListingEntry {
    /// Returns the fields of a verified row.
    pub(crate) fn of(row: &RecordRow<'_>) -> Self {
        let &checkpoint::Row { seq, namespace, branch, ordinal, parent, .. } = &row.row;
        let before = parent.filter(|_| row.parent_branch == Some(branch));
        let pruned_below = if row.is_pruned() { source::pruned_below(row.parents) } else { 0 };
        Self { seq, namespace, branch, ordinal, before, pruned_below }
    }

    fn gap(self) -> crate::store::sqlite::fault::Fault {
        corrupt(format!("checkpoint {}", self.seq), "a checkpoint beside it is missing in the listing")
    }

    /// Verifies that this is the last checkpoint on the greatest branch below `below`.
    pub(crate) fn must_be_last(self, conn: &Connection, below: i64) -> Res<()> {
        let (greatest, goes_on) = past(conn, self.namespace, (self.branch, self.ordinal), below)?;
        if greatest == Some(self.branch) && !goes_on { Ok(()) } else { Err(self.gap()) }
    }

    /// Verifies that `older` comes directly before this checkpoint in their namespace.
    pub(crate) fn must_follow(self, conn: &Connection, older: Self) -> Res<()> {
        match self.before {
            Some(before) if before == older.seq => Ok(()),
            Some(_) => Err(self.gap()),
            None => older.must_be_last(conn, self.branch),
        }
    }

    /// Verifies that no checkpoint comes before this one in its namespace.
    fn must_be_first(self, conn: &Connection) -> Res<()> {
        let (greatest, _) = past(conn, self.namespace, (self.branch, self.ordinal), self.branch)?;
        if self.before.is_none() && greatest.is_none() { Ok(()) } else { Err(self.gap()) }
    }
}

/// Returns the greatest branch of a namespace below `below`, and whether a branch has rows past an ordinal.
fn past(conn: &Connection, namespace: i64, (branch, ordinal): (i64, i64), below: i64) -> Res<(Option<i64>, bool)> {
    let params = params![namespace, branch, ordinal, below];
    conn.one(sql::PAST, params)
}

/// The listing of one namespace or of several, from the newest checkpoint to the oldest.
#[derive(Default)]
pub(crate) struct Succession(HashMap<i64, ListingEntry>);

impl Succession {
    /// Adds the checkpoint that a page was asked to begin below.
    pub(crate) fn begin_below(&mut self, link: ListingEntry) {
        self.0.insert(link.namespace, link);
    }

    /// Verifies the next entry of a listing. The first one of a namespace is its head if the listing `begins_at_heads`.
    pub(crate) fn add(&mut self, conn: &Connection, link: ListingEntry, begins_at_heads: bool) -> Res<()> {
        match self.0.insert(link.namespace, link) {
            Some(newer) => newer.must_follow(conn, link),
            None if begins_at_heads => link.must_be_last(conn, i64::MAX),
            None => Ok(()),
        }
    }

    /// Verifies the end of a listing that has no further page.
    pub(crate) fn end(&self, conn: &Connection) -> Res<()> {
        self.0.values().try_for_each(|oldest| oldest.must_be_first(conn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::tests::{Bench, raw, thread};

    /// A namespace whose second branch leaves the first one after its first checkpoint.
    fn two_branches() -> (Bench, Connection) {
        let (mut bench, t) = (Bench::new(), thread("a"));
        let first = bench.add(&t, None, Vec::new());
        let second = bench.add(&t, Some(first), Vec::new());
        bench.add(&t, Some(second), Vec::new());
        let left = bench.add(&t, Some(first), Vec::new());
        bench.add(&t, Some(left), Vec::new());
        let conn = raw(&bench.path());
        let places = "SELECT group_concat(seq || ':' || branch || '.' || ordinal) FROM checkpoint";
        let places: String = conn.query_row(places, [], |row| row.get(0)).unwrap();
        assert_eq!(places, "1:1.0,2:1.1,3:1.2,4:2.1,5:2.2");
        (bench, conn)
    }

    fn entry(seq: i64, branch: i64, ordinal: i64, before: Option<i64>) -> ListingEntry {
        ListingEntry { seq, namespace: 1, branch, ordinal, before, pruned_below: 0 }
    }

    #[test]
    fn an_entry_follows_its_parent_or_the_last_one_of_the_branch_before() {
        let (_bench, conn) = two_branches();
        let all = [(1, 1, 0, None), (2, 1, 1, Some(1)), (3, 1, 2, Some(2)), (4, 2, 1, None), (5, 2, 2, Some(4))];
        let all = all.map(|(seq, branch, ordinal, before)| entry(seq, branch, ordinal, before));
        for (at, newer) in all.iter().enumerate() {
            for (below, older) in all[..at].iter().enumerate() {
                let follows = newer.must_follow(&conn, *older);
                assert_eq!(follows.is_ok(), below + 1 == at, "{} after {}", newer.seq, older.seq);
            }
        }
        let last = all.map(|entry| entry.must_be_last(&conn, i64::MAX).is_ok());
        assert_eq!(last, [false, false, false, false, true]);
        let first = all.map(|entry| entry.must_be_first(&conn).is_ok());
        assert_eq!(first, [true, false, false, false, false]);
    }

    #[test]
    fn a_listing_begins_at_the_head_or_below_the_entry_before_it() {
        let (_bench, conn) = two_branches();
        let (third, fourth, fifth) = (entry(3, 1, 2, Some(2)), entry(4, 2, 1, None), entry(5, 2, 2, Some(4)));
        assert!(Succession::default().add(&conn, fifth, true).is_ok());
        assert!(Succession::default().add(&conn, fourth, true).is_err());
        assert!(Succession::default().add(&conn, third, false).is_ok());
        let mut below = Succession::default();
        below.begin_below(fifth);
        assert!(below.add(&conn, third, true).is_err());
        let mut below = Succession::default();
        below.begin_below(fifth);
        below.add(&conn, fourth, true).unwrap();
        below.add(&conn, third, true).unwrap();
        assert!(below.end(&conn).is_err());
        below.add(&conn, entry(2, 1, 1, Some(1)), true).unwrap();
        below.add(&conn, entry(1, 1, 0, None), true).unwrap();
        below.end(&conn).unwrap();
    }
}
