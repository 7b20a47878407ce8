//! A search without an index: the puts and the values of one branch after another are compared.

use super::{EntryKey, sql};
use crate::store::search::{NewestHits, Search};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::read::lineage;
use crate::store::sqlite::read::payloads::Payloads;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::payload::Room;
use crate::store::sqlite::rows::version::VALUE;
use crate::store::sqlite::view::ReadView;
use rusqlite::params_from_iter;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Adds the hits of all branches, or of those of the thread that is searched.
pub(super) fn scan(view: ReadView<'_>, search: &Search, newest: &mut NewestHits) -> Res<()> {
    let thread = search.thread.as_ref().map(|thread| thread.as_str());
    let branches = if thread.is_some() { sql::BRANCHES_OF_THREAD } else { sql::BRANCHES };
    view.conn.each(branches, params_from_iter(thread), |row| {
        let (id, namespace) = FromColumns::read(row, 0)?;
        branch(view, id, namespace, search, newest)
    })
}

/// Adds the hits of a branch. Its newest entries come first, so those that are older than the page are not built.
fn branch(view: ReadView<'_>, branch: i64, namespace: i64, search: &Search, newest: &mut NewestHits) -> Res<()> {
    let seqs: BTreeMap<i64, i64> = view.conn.all(sql::CHECKPOINTS_OF_BRANCH, [namespace, branch])?;
    let mut found = matching_puts(view, branch, search)?;
    if let (Some((first, _)), Some((last, _))) = (seqs.first_key_value(), seqs.last_key_value()) {
        add_values(view, branch, (*first, *last), search, &mut found)?;
    }
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

/// Returns the puts of a branch that match, each with its channel.
fn matching_puts(view: ReadView<'_>, branch: i64, search: &Search) -> Res<Vec<(EntryKey, Arc<str>)>> {
    let mut found = Vec::new();
    let mut room = Room::of(view.keys, blobs::read);
    view.conn.each(sql::PUTS_OF_BRANCH, [branch], |row| {
        let key = EntryKey::of_put(row)?;
        let channel = view.names.text(view.conn, Kind::List, key.channel)?;
        if search.reads(&channel)
            && key.put(view, row, &channel, &mut room, |_, entry| Ok(search.matches(&entry)))?.unwrap_or(false)
        {
            found.push((key, channel));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Adds the values of channels that match: those of a branch, from its first ordinal to its last one.
fn add_values(
    view: ReadView<'_>,
    branch: i64,
    ordinals: (i64, i64),
    search: &Search,
    found: &mut Vec<(EntryKey, Arc<str>)>,
) -> Res<()> {
    let mut payloads = Payloads::new(view)?;
    lineage::walk(view, branch, ordinals, &mut |rows| {
        for row in rows.into_iter().filter(|row| row.kind == VALUE) {
            let channel = view.names.text(view.conn, Kind::Channel, row.key)?;
            if !search.reads(&channel) {
                continue;
            }
            let key = EntryKey { branch, channel: row.key, position: None, ordinal: row.ordinal };
            if key.value(&row, &mut payloads, |_, entry| Ok(search.matches(&entry)))?.unwrap_or(false) {
                found.push((key, channel));
            }
        }
        Ok(true)
    })?;
    Ok(())
}
