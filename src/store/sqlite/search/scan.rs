//! A search without an index: the puts of one branch after another are compared.

use super::super::fault::{Res, corrupt};
use super::super::names::Kind;
use super::super::read::ReadView;
use super::super::rows::Room;
use super::{PutKey, sql};
use crate::store::search::{NewestHits, Search};
use rusqlite::params;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Adds the hits of all branches, or of those of the thread that is searched.
pub(super) fn scan(view: ReadView<'_>, search: &Search, newest: &mut NewestHits) -> Res<()> {
    let thread = search.thread.as_ref().map(|thread| thread.as_str());
    let mut statement =
        view.conn.prepare_cached(if thread.is_some() { sql::BRANCHES_OF_THREAD } else { sql::BRANCHES })?;
    let mut rows = statement.query(rusqlite::params_from_iter(thread))?;
    while let Some(row) = rows.next()? {
        branch(view, row.get(0)?, row.get(1)?, search, newest)?;
    }
    Ok(())
}

/// Adds the hits of a branch. Its newest puts come first, so those that are older than the page are not built.
fn branch(view: ReadView<'_>, branch: i64, namespace: i64, search: &Search, newest: &mut NewestHits) -> Res<()> {
    let mut found: Vec<(PutKey, Arc<str>)> = Vec::new();
    let mut puts = view.conn.prepare_cached(sql::PUTS_OF_BRANCH)?;
    let mut rows = puts.query([branch])?;
    let mut room = Room::of(view.keys);
    while let Some(row) = rows.next()? {
        PutKey::read(view, row, &mut room, |key, _, payload| {
            if payload.index.is_some_and(|index| search.matches(&index)) {
                let channel = view.names.text(view.conn, Kind::List, key.channel)?;
                if search.reads(&channel) {
                    found.push((key, channel));
                }
            }
            Ok(())
        })?;
    }
    if found.is_empty() {
        return Ok(());
    }
    let mut checkpoints = view.conn.prepare_cached(sql::CHECKPOINTS_OF_BRANCH)?;
    let seqs = checkpoints.query_map(params![namespace, branch], |row| Ok((row.get(1)?, row.get(0)?)))?;
    let seqs: HashMap<i64, i64> = seqs.collect::<rusqlite::Result<_>>()?;
    found.sort_unstable_by(|(a, in_a), (b, in_b)| {
        Reverse((a.ordinal, in_a, a.position)).cmp(&Reverse((b.ordinal, in_b, b.position)))
    });
    for (key, channel) in found {
        let seq = seqs.get(&key.ordinal);
        let seq =
            *seq.ok_or_else(|| corrupt(format!("branch {branch}"), format!("ordinal {} is missing", key.ordinal)))?;
        let place = key.place(seq, &channel)?;
        if !newest.wants(&place) {
            break;
        }
        key.add_hit(view, search, seq, &channel, newest)?;
    }
    Ok(())
}
