//! Every reading call of the API on a file that may be hostile, and some that write. Errors are expected; the caller
//! looks for panics, time and memory.

use annals::store::log::LogPosition;
use std::sync::Arc;
use std::time::Duration;

use annals::history::{ExportOptions, MessageQuery, PrunePolicy, Snapshot, diff};
use annals::store::kv::KvNamespaceQuery;
use annals::store::log::LogExt;
use annals::store::{ItemRange, KvQuery, SearchOptions, SearchQuery, Store, StoreError};
use annals_graph::prelude::*;

use super::open;
use crate::observe::Deadline;
use crate::rng::Rng;
use crate::trace::ScratchFolder;

/// Checkpoints of each namespace of which some are read.
const CHECKPOINTS: usize = 12;
/// Percentage of those behind the head that are read: they share most of their rows, so that more files find more than
/// more checkpoints of each.
const READ_PERCENT: usize = 20;

/// Reads by all calls that `observe` does not use. An error ends the reads of a snapshot or a thread alone.
pub(super) fn all(store: &Store, rng: &mut Rng, deadline: Deadline) {
    _ = store.stats();
    _ = store.timers(None);
    _ = store.search(SearchQuery::new("the"));
    _ = store.kv().search(KvQuery::all());
    _ = store.kv().list_namespaces(KvNamespaceQuery::new());
    if let Ok(beside) = store.backend().side_tables() {
        _ = beside.kv_indexed(None, store.now(), &mut |_, _| Ok(!deadline.has_passed()));
    }
    if let Ok(mut watch) = store.watch_from(LogPosition::START) {
        while !deadline.has_passed() && matches!(watch.next(Duration::ZERO), Ok(Some(_))) {}
    }
    for record in store.threads().unwrap_or_default() {
        let Ok(thread) = store.thread(record.id.as_str()) else { continue };
        _ = thread.head();
        for namespace in store.backend().namespaces(&record.id).unwrap_or_default() {
            let Ok(history) = thread.with_namespace(namespace).history() else { continue };
            for (place, snapshot) in history.take(CHECKPOINTS).map_while(Result::ok).enumerate() {
                if deadline.has_passed() {
                    return;
                }
                if place == 0 || rng.chance(READ_PERCENT) {
                    _ = snapshot_reads(&snapshot);
                }
            }
        }
    }
}

fn snapshot_reads(snapshot: &Snapshot) -> Result<(), StoreError> {
    _ = snapshot.values();
    _ = snapshot.blames();
    _ = snapshot.interrupts();
    _ = snapshot.next().count();
    if let Ok(Some(parent)) = snapshot.parent() {
        _ = diff(&parent, snapshot);
    }
    let channels: Vec<Arc<str>> = snapshot.channels()?;
    for channel in channels {
        _ = snapshot.get(&channel);
        _ = snapshot.len(&channel);
        _ = snapshot.tail(&channel, 3);
        _ = snapshot.items(&channel, ItemRange::All);
        _ = snapshot.messages(&channel, ItemRange::All);
        _ = snapshot.find_messages(&channel, &MessageQuery::new().text("a"));
        _ = snapshot.token_usage(&channel);
        _ = snapshot.export_messages(&channel, &ExportOptions::new(), &mut std::io::sink());
    }
    Ok(())
}

/// Opens the file for writing, indexes its texts, changes, forks, prunes and deletes threads, and compacts it.
pub(super) fn write(scratch: &ScratchFolder) {
    let Ok(store) = open(scratch, false) else { return };
    _ = store.enable_search(SearchOptions::new());
    _ = store.rebuild_threads();
    for (place, record) in store.threads().unwrap_or_default().into_iter().enumerate() {
        let Ok(thread) = store.thread(record.id.as_str()) else { continue };
        _ = thread.with_schema(DynSchema::new().last("note").build()).update(DynUpdate::new().set("note", "forged"));
        if let Ok(Some(head)) = thread.head() {
            _ = head.fork_to(format!("forged-{place}"));
        }
        if place % 2 == 0 {
            _ = store.delete_thread(record.id.as_str());
        } else {
            _ = thread.prune(&PrunePolicy::new().keep_last(2));
        }
    }
    _ = store.kv().put(["forged"], "key", Value::from(annals::base::Map::new()));
    _ = store.kv().sweep();
    _ = store.reclaim();
    _ = store.search(SearchQuery::new("the"));
    _ = store.compact();
    _ = store.check();
}
