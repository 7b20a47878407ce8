//! The reading calls beside those of a snapshot: listings, operations, search, usage, branches, walks through the past,
//! what a pruning would delete, the log as a watcher sees it, and the views of the file.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use annals::base::Timestamp;
use annals::history::{PrunePolicy, Snapshot, Thread, UsageQuery};
use annals::rusqlite::{Connection, ErrorCode, OpenFlags};
use annals::store::log::{LogExt, LogPosition};
use annals::store::operation::OperationQuery;
use annals::store::{SearchQuery, Store, StoreError, ThreadQuery};
use annals_runs::{SnapshotRuns, StoreRuns, ThreadRuns};

use super::{View, pairs};

/// Entries of a walk that are read. The sound store has fewer in each.
const WALK_MAX: usize = 200;

impl View {
    /// Notes the entries of a walk, which goes on after an error, and must end.
    fn walk<T: Debug>(&mut self, call: &str, walk: Result<impl Iterator<Item = Result<T, StoreError>>, StoreError>) {
        match walk {
            Err(error) => _ = self.note::<()>(call, Err(error)),
            Ok(entries) => {
                let read = entries.take(WALK_MAX).map(|entry| _ = self.note(call, entry)).count();
                assert!(read < WALK_MAX, "{call}: a walk that does not end");
            }
        }
    }
}

/// Makes the calls that concern the whole store.
pub(super) fn of_store(view: &mut View, store: &Store) {
    let queries = [
        ThreadQuery::new(),
        ThreadQuery::new().by_id(),
        ThreadQuery::new().archived(true),
        ThreadQuery::new().trashed(true),
        ThreadQuery::new().pinned(true),
        ThreadQuery::new().project("home"),
        ThreadQuery::new().label("x"),
        ThreadQuery::new().title_contains("tri"),
        ThreadQuery::new().graph("book"),
    ];
    for query in queries {
        let query = query.limit(50);
        if let Some(page) = view.note("threads with", store.threads_with(query.clone()))
            && let Some(last) = page.first()
        {
            view.note("threads after", store.threads_with(query.after(last)));
        }
    }
    view.note("search index", store.search_index());
    for text in ["boats", "question", "\"answer answer\"", "q", "zeppelin"] {
        view.note("search", store.search(SearchQuery::new(text)));
        view.note("search heads", store.search(SearchQuery::new(text).thread("a").on_head().limit(3)));
    }
    view.note("usage", store.usage(UsageQuery::new().by_day().by_thread().by_node().by_model()));
    view.walk("operations of all", store.operations());
    view.note("stored operations", store.backend().operations(&OperationQuery::new(None, 50)));
    for point in ["a", "a~2", "a@named", "fork"] {
        view.note("point", store.point(point));
        view.note("range", store.range(format!("{point}..fork")).map(|(from, to)| (from.id(), to.id())));
    }
    view.note("position", store.backend().follow().unwrap().position(0));
    view.note("records", store.backend().follow().unwrap().changes_after(&LogPosition::START, None, 50));
    view.walk(
        "watch",
        store.watch_from(LogPosition::START).map(|mut watch| {
            std::iter::from_fn(move || watch.next(Duration::ZERO).transpose()).scan(false, |failed, entry| {
                // A watcher that fails is at the same position as before.
                (!std::mem::replace(failed, entry.is_err())).then_some(entry)
            })
        }),
    );
}

/// Makes the calls that concern a thread.
pub(super) fn of_thread(view: &mut View, thread: &Thread) {
    let backend = thread.store().backend();
    view.note("info", thread.info());
    view.note("forks", thread.forks());
    view.note("forked from", thread.forked_from());
    view.note("fields", thread.fields());
    view.note("branches", thread.branches());
    view.note("all branches", thread.all_branches());
    view.note("stored branches", backend.branches(thread.id(), thread.namespace()));
    if thread.id().as_str() == "a" {
        view.note("branch", thread.branch("named"));
    }
    view.walk("operations", thread.operations());
    view.walk("steps", thread.steps());
    view.note("open interrupts", thread.open_interrupts());
    view.note("signals", thread.signals());
    view.note("lease", thread.last_lease());
    view.note("order", thread.store().control_orders(&[(thread.id(), None)]));
    view.note("cancel reason", thread.cancel_reason());
    let policy = PrunePolicy::new().keep_last(1).older_than(Timestamp::from_micros(i64::MAX));
    if let Some(plan) = view.note("plan", thread.prune_plan(&policy)) {
        view.note("estimate", plan.estimate());
    }
}

/// Makes the calls that concern a snapshot.
pub(super) fn of_snapshot(view: &mut View, at: &Snapshot) {
    view.walk("lineage", Ok::<_, StoreError>(at.lineage()));
    for channel in ["messages", "log", "topic"] {
        view.walk("evolution", Ok::<_, StoreError>(at.evolution(channel)));
    }
    view.note("interrupts", at.interrupts());
    view.note("input", at.input());
    view.note("result", at.result());
    view.note("pickaxe", at.pickaxe("boats"));
    let backend = at.store().backend();
    view.note("stored state", backend.state(at.point()));
    view.note("ancestors", backend.ancestors(at.point(), &[0, 1, 2]));
    let mut versions = 0;
    let visited = backend.versions(at.point(), None, 0, &mut |_| {
        versions += 1;
        Ok(versions < WALK_MAX)
    });
    view.note("versions", visited.map(|()| versions));
    for id in ["missing", "0"] {
        view.note("message", at.message("messages", id));
        view.note("item evolution", at.item_evolution("messages", id).map(|found| found.take(WALK_MAX).count()));
    }
}

/// Steps of SQLite's machine after which the read of a view is not expected to end.
const VIEW_STEPS_MAX: i32 = 500_000_000;
/// Steps of SQLite's machine between two counts of them.
const STEPS_BETWEEN: i32 = 10_000;

/// Reads each view of the file as a program does that has SQLite alone. Returns the views that did not end.
pub(super) fn views(path: &Path) -> Vec<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(mut conn) = Connection::open_with_flags(path, flags) else { return Vec::new() };
    let names =
        pairs(&conn, "SELECT name, type FROM sqlite_schema WHERE type = 'view' AND name LIKE 'v\\_%' ESCAPE '\\'");
    let mut endless = Vec::new();
    for (name, _) in names {
        let mut calls = 0;
        let is_endless = move || {
            calls += 1;
            calls > VIEW_STEPS_MAX / STEPS_BETWEEN
        };
        conn.progress_handler(STEPS_BETWEEN, Some(is_endless)).unwrap();
        let read = || -> annals::rusqlite::Result<usize> {
            let mut statement = conn.prepare(&format!("SELECT * FROM {name} LIMIT 1000"))?;
            let mut rows = statement.query([])?;
            let mut count = 0;
            while rows.next()?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        if read().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)) {
            endless.push(name);
        }
    }
    endless
}
