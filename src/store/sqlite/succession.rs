//! Verifies that a listing of checkpoints is complete: an entry that an index does not show leaves a gap.
//!
//! In the order of the ids of a namespace, each branch is one unbroken range whose ordinals go up by one, and later
//! branches have greater ids, because only a child of the head stays on its branch. So the checkpoint before another
//! one is its parent on the same branch, or the last one on the branch before. *Absent:* checkpoints that were looked
//! up by an id.

use super::fault::{Res, corrupt};
use super::read::column;
use super::source::is_pruned_column;
use super::{prune, sql};
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;

/// The fields of a checkpoint that say which one comes before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListingEntry {
    pub(super) seq: i64,
    pub(super) namespace: i64,
    pub(super) branch: i64,
    pub(super) ordinal: i64,
    /// The parent, if it is on the same branch.
    before: Option<i64>,
    /// If it was pruned, the number of pruned checkpoints directly before it on its branch, as it knows of.
    pub(super) pruned_below: i64,
}

impl ListingEntry {
    /// Reads the fields of a verified row of `sql::record!`.
    pub(super) fn read(seq: i64, row: &Row<'_>) -> Res<Self> {
        let branch = row.get(column::BRANCH)?;
        let is_same = row.get::<_, Option<i64>>(column::PARENT_BRANCH)? == Some(branch);
        let before = if is_same { row.get(column::PARENT)? } else { None };
        let pruned_below = match is_pruned_column(row.get(column::SOURCE)?) {
            true => prune::pruned_below(row.get_ref(column::PARENTS)?),
            false => 0,
        };
        let ordinal = row.get(column::ORDINAL)?;
        Ok(Self { seq, namespace: row.get(column::NAMESPACE)?, branch, ordinal, before, pruned_below })
    }

    fn gap(self) -> super::fault::Fault {
        corrupt(format!("checkpoint {}", self.seq), "a checkpoint beside it is missing in the listing")
    }

    /// Verifies that this is the last checkpoint on the greatest branch below `below`.
    pub(super) fn must_be_last(self, conn: &Connection, below: i64) -> Res<()> {
        let (greatest, goes_on) = past(conn, self.namespace, (self.branch, self.ordinal), below)?;
        if greatest == Some(self.branch) && !goes_on { Ok(()) } else { Err(self.gap()) }
    }

    /// Verifies that `older` comes directly before this checkpoint in their namespace.
    pub(super) fn must_follow(self, conn: &Connection, older: Self) -> Res<()> {
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
    let mut statement = conn.prepare_cached(sql::PAST)?;
    let params = params![namespace, branch, ordinal, below];
    Ok(statement.query_row(params, |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// The listing of one namespace or of several, from the newest checkpoint to the oldest.
#[derive(Default)]
pub(super) struct Succession(HashMap<i64, ListingEntry>);

impl Succession {
    /// Adds the checkpoint that a page was asked to begin below.
    pub(super) fn begin_below(&mut self, link: ListingEntry) {
        self.0.insert(link.namespace, link);
    }

    /// Verifies the next entry of a listing. The first one of a namespace is its head if the listing `begins_at_heads`.
    pub(super) fn add(&mut self, conn: &Connection, link: ListingEntry, begins_at_heads: bool) -> Res<()> {
        match self.0.insert(link.namespace, link) {
            Some(newer) => newer.must_follow(conn, link),
            None if begins_at_heads => link.must_be_last(conn, i64::MAX),
            None => Ok(()),
        }
    }

    /// Verifies the end of a listing that has no further page.
    pub(super) fn end(&self, conn: &Connection) -> Res<()> {
        self.0.values().try_for_each(|oldest| oldest.must_be_first(conn))
    }
}
