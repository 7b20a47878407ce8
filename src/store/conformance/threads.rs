//! Listings of threads by their facts and their status.

use super::build::*;
use super::operations::{moves, operate};
use crate::store::counts::ThreadCounts;
use crate::store::mark::WriteMark;
use crate::store::status::StatusKind;
use crate::store::threads::{ThreadCursor, ThreadQuery};

/// More checkpoints than a table of threads lags behind.
const MANY: u64 = 300;

fn listed(backend: &dyn Log, query: &ThreadQuery) -> Vec<String> {
    let found = backend.list_threads(query).expect("threads are listed");
    found.into_iter().map(|info| info.id().to_string()).collect()
}

/// Returns the threads of a query, page by page.
fn paged(backend: &dyn Log, query: &ThreadQuery) -> Vec<String> {
    let (mut query, mut found) = (query.clone().limit(3), Vec::new());
    loop {
        let page = backend.list_threads(&query).expect("threads are listed");
        let Some(last) = page.last() else { return found };
        query = query.after(last);
        found.extend(page.iter().map(|info| info.id().to_string()));
    }
}

fn fact(place: &CasePlace<'_>, name: &str, after: &str) -> OperationChange {
    let field = OperationField::Fact(name.into());
    OperationChange::new(
        place.thread.clone(),
        place.namespace.clone(),
        field,
        None,
        Some(OperationValue::Text(after.into())),
    )
}

/// Writes a marked special write of a task of checkpoint `n`, on its own.
fn marked(backend: &dyn Log, place: &CasePlace<'_>, n: u64, index: i32, mark: WriteMark) {
    let write = write(index, "special", "a value").with_mark(Some(mark));
    commit(backend, &place.pending(n, writes(n, task(1), "p", vec![write])));
}

/// Lets a task sleep at checkpoint 1.
fn sleeps(backend: &dyn Log, place: &CasePlace<'_>, wake_at: i64) {
    let wake_at = Timestamp::from_micros(wake_at);
    let write = write(-3, "special", "a value").with_mark(Some(WriteMark::WakesAt(wake_at)));
    let timer = NewTimer::new(id(1), task(1), Some(wake_at));
    commit(backend, &Batch { timers: vec![timer], ..place.pending(1, writes(1, task(1), "p", vec![write])) });
}

/// Adds a thread with many checkpoints, so that a table of threads follows those before.
fn follow(backend: &dyn Log) {
    let busy = root_of(backend, "busy");
    let head = busy.head().map_or(0, |_| MANY);
    let drafts = (head + 1..=head + MANY).map(|n| match n {
        1 => begin(1),
        _ => on(n, n - 1),
    });
    let batch = busy.batch((head > 0).then_some(head), drafts);
    commit(backend, &batch);
}

pub(super) fn by_activity(backend: &dyn Log) {
    let places = ["c", "a", "b", "d"].map(|name| root_of(backend, name));
    for place in &places {
        place.add(begin(1));
        place.inside("sub").add(begin(2));
    }
    places[1].add(on(3, 1));
    places[0].add(on(3, 1));
    operate(backend, 10, vec![moves(&places[0], Some(3), Some(1))]);
    let listed = |after: Option<&str>, limit: usize| {
        let mut query = ThreadQuery::new().limit(limit);
        query.after = after.map(|after| after.parse().expect("a cursor is parsed"));
        let found = backend.list_threads(&query).expect("threads are listed");
        found.into_iter().map(|info| (info.id().to_string(), info.cursor().to_string())).collect::<Vec<_>>()
    };
    let all = listed(None, 9);
    assert_eq!(all.iter().map(|(thread, _)| &**thread).collect::<Vec<_>>(), ["c", "a", "d", "b"]);
    assert_eq!([listed(None, 2), listed(Some(&all[1].1), 9)].concat(), all, "pages");
    assert!(listed(Some(&all[3].1), 9).is_empty() && listed(None, 0).is_empty());
    for damaged in ["", "7", "7.0", "x.0.a", "7.x.a", "7.0."] {
        let refused = damaged.parse::<ThreadCursor>();
        assert!(matches!(refused, Err(StoreError::Invalid { field: "cursor", .. })), "{damaged:?}: {refused:?}");
    }
    let newest = backend.list_threads(&ThreadQuery::new().limit(1)).expect("threads are listed").remove(0);
    assert_eq!((newest.head(), newest.updated_at()), (id(1), moment(3)), "the head, and the last activity");
    _ = backend.delete_threads(std::slice::from_ref(&places[0].thread)).expect("a thread is deleted");
    assert_eq!(listed(None, 9), all[1..]);
}

/// The status and the facts of threads change without a checkpoint, before and after a table of threads follows them.
pub(super) fn by_status(backend: &dyn Log) {
    let names = ["ends", "runs", "asks", "fails", "sleeps", "stops", "stated"];
    let places = names.map(|name| root_of(backend, name));
    for place in &places {
        let draft = begin(1);
        let tasks = !["ends", "stops", "stated"].contains(&place.thread.as_str());
        let mut draft = if tasks { draft.tasks(&["node"]) } else { draft };
        if place.thread.as_str() == "stops" {
            draft.0.metadata = Some(r#"{"cancelled":"too late","graph":"book"}"#.into());
        }
        place.add_at(None, draft);
    }
    follow(backend);
    let status = |name: &str| {
        let thread = ThreadId::new(name).expect("a name of a thread");
        backend.thread_info(&thread).expect("a thread is read").expect("the thread exists").status()
    };
    let by = |status: StatusKind| listed(backend, &ThreadQuery::new().status(status));
    assert_eq!(by(StatusKind::Running), ["sleeps", "fails", "asks", "runs"]);
    marked(backend, &places[2], 1, -3, WriteMark::Waits);
    marked(backend, &places[3], 1, -1, WriteMark::Failed);
    sleeps(backend, &places[4], 7);
    assert_eq!(status("asks"), StatusKind::Interrupted);
    assert_eq!(by(StatusKind::Interrupted), ["asks"]);
    assert_eq!(status("fails"), StatusKind::Failed);
    assert_eq!(by(StatusKind::Failed), ["fails"]);
    // A run is given up with the error of its task, and another error takes its place.
    marked(backend, &places[3], 1, -1, WriteMark::GivenUp);
    assert_eq!(status("fails"), StatusKind::GivenUp);
    assert_eq!(by(StatusKind::GivenUp), ["fails"]);
    assert_eq!(by(StatusKind::Failed), Vec::<String>::new());
    marked(backend, &places[3], 1, -1, WriteMark::Failed);
    assert_eq!(status("fails"), StatusKind::Failed);
    assert_eq!(by(StatusKind::Failed), ["fails"]);
    assert_eq!(status("sleeps"), StatusKind::Sleeping);
    assert_eq!(by(StatusKind::Sleeping), ["sleeps"]);
    assert_eq!(status("stops"), StatusKind::Cancelled);
    assert_eq!(by(StatusKind::Cancelled), ["stops"]);
    assert_eq!(by(StatusKind::Running), ["runs"]);
    assert_eq!(listed(backend, &ThreadQuery::new().graph("book")), ["stops"]);
    operate(backend, 400, vec![fact(&places[6], "project", "home"), fact(&places[6], "labels", r#"["a","ü"]"#)]);
    operate(backend, 401, vec![fact(&places[0], "archived", "true"), fact(&places[0], "pinned", "true")]);
    assert_eq!(listed(backend, &ThreadQuery::new().project("home").label("ü")), ["stated"]);
    assert_eq!(listed(backend, &ThreadQuery::new().archived(true).pinned(true)), ["ends"]);
    assert_eq!(by(StatusKind::Done), ["busy", "stated"], "archived threads are passed over");
    // The interrupt is answered by a superstep, and the head moves back to it.
    places[2].add(on(2, 1));
    assert_eq!(by(StatusKind::Interrupted), Vec::<String>::new());
    assert_eq!(listed(backend, &ThreadQuery::new().limit(1)), ["asks"], "the newest activity");
    follow(backend);
    operate(backend, 402, vec![moves(&places[2], Some(2), Some(1))]);
    assert_eq!(by(StatusKind::Interrupted), ["asks"]);
    assert_eq!(listed(backend, &ThreadQuery::new().limit(2)), ["busy", "asks"], "a move of a head is not an activity");
    backend.rebuild_threads().expect("the table is made anew");
    assert_eq!(by(StatusKind::Interrupted), ["asks"]);
    assert_eq!(listed(backend, &ThreadQuery::new().project("home")), ["stated"]);
    // An error, an interrupt and a sleep that are cleared leave their tasks due.
    for (place, index) in [(2, -3), (3, -1), (4, -3)] {
        let clear = NewWrite::new(index, "special", WriteValue::Null);
        commit(backend, &places[place].pending(1, writes(1, task(1), "p", vec![clear])));
    }
    for name in ["asks", "fails", "sleeps"] {
        assert_eq!(status(name), StatusKind::Running, "{name}");
    }
    let mut running = by(StatusKind::Running);
    running.sort_unstable();
    assert_eq!(running, ["asks", "fails", "runs", "sleeps"]);
}

pub(super) fn pages(backend: &dyn Log) {
    let places: Vec<CasePlace<'_>> = (0..MANY).map(|n| root_of(backend, &format!("t{n:03}"))).collect();
    for (n, place) in (0..).zip(&places) {
        place.add(begin(1));
        if n % 10 == 0 {
            operate(backend, 10 + n, vec![fact(place, "project", "p")]);
        }
    }
    places[20].add(on(2, 1));
    let all = ThreadQuery::new().limit(1_000);
    let expected: Vec<String> = (0..MANY).rev().filter(|n| *n != 20).map(|n| format!("t{n:03}")).collect();
    let expected = [vec!["t020".to_owned()], expected].concat();
    assert_eq!(listed(backend, &all), expected);
    assert_eq!(paged(backend, &ThreadQuery::new()), expected, "page by page");
    let sorted: Vec<String> = (0..MANY).map(|n| format!("t{n:03}")).collect();
    assert_eq!(paged(backend, &ThreadQuery::new().by_id()), sorted);
    let project = ThreadQuery::new().project("p");
    let of_project: Vec<String> = expected.iter().filter(|id| id.ends_with('0')).cloned().collect();
    assert_eq!(paged(backend, &project), of_project);
    assert_eq!(paged(backend, &project.clone().by_id()).len(), of_project.len());
    assert_eq!(listed(backend, &project.clone().since(moment(2))), ["t020"]);
    _ = backend.delete_threads(&[places[20].thread.clone(), places[30].thread.clone()]).expect("threads are deleted");
    assert_eq!(paged(backend, &project).len(), of_project.len() - 2);
    places[30].add(begin(1));
    assert_eq!(listed(backend, &ThreadQuery::new().limit(1)), ["t030"], "an id is used again");
    assert_eq!(paged(backend, &project).len(), of_project.len() - 2, "without the facts that it had");
}

/// Puts a message with tokens.
fn said(position: u64, tokens: Option<(u32, u32)>) -> ItemChange {
    let mut index = ItemIndex::default();
    index.kind = Some("ai".into());
    (index.input_tokens, index.output_tokens) = (tokens.map(|(read, _)| read), tokens.map(|(_, written)| written));
    put_payload(position, bytes([0x80]).with_index(index))
}

fn counts(messages: u64, input_tokens: u64, output_tokens: u64, cost_nano_usd: u64) -> Option<ThreadCounts> {
    Some(ThreadCounts { messages, input_tokens, output_tokens, cost_nano_usd })
}

/// Messages, tokens and costs are counted once, on all branches and in all namespaces, before and after a table of
/// threads follows them, and without content that was pruned.
pub(super) fn counted(backend: &dyn Log) {
    let (place, inside) = (root_of(backend, "t"), root_of(backend, "t").inside("sub:1"));
    let found = || {
        let info = backend.thread_info(&place.thread).expect("a thread is read").expect("the thread exists");
        let listed = backend.list_threads(&ThreadQuery::new()).expect("threads are listed");
        let listed = listed.iter().find(|info| *info.id() == place.thread).expect("the thread is listed");
        assert_eq!(listed.counts(), info.counts(), "a listing counts as the thread");
        info.counts().copied()
    };
    let first = begin(1).items("list", 1, vec![said(0, None), said(1, Some((10, 2)))]);
    place.add_at(None, first.items("values", 1, vec![put(0, "x"), put(1, "y")]));
    assert_eq!(found(), counts(2, 10, 2, 0), "values of other lists do not count as messages");
    place.add(on(2, 1).items("list", 2, vec![said(1, Some((11, 3))), said(2, None)]));
    assert_eq!(found(), counts(3, 10, 2, 0), "an edit does not count again");
    place.add(on(3, 2).items("list", 3, vec![said(2, Some((5, 5)))]));
    place.add_at(Some(3), on(4, 1).items("list", 4, vec![said(2, Some((7, 1)))]));
    assert_eq!(found(), counts(3, 22, 8, 0), "an abandoned branch counts");
    let mut stated = on(5, 4).items("list", 5, vec![said(3, Some((1_000, 1_000)))]);
    stated.0.metadata = Some(r#"{"usage":{"input_tokens":100,"output_tokens":20,"cost_usd":0.1}}"#.into());
    place.add_at(Some(4), stated);
    assert_eq!(found(), counts(4, 122, 28, 100_000_000), "a statement counts in place of the messages");
    let mut calls = begin(1).items("list", 1, vec![said(0, Some((9, 9)))]);
    inside.add_at(None, calls);
    calls = on(2, 1);
    calls.0.metadata = Some(r#"{"usage":[{"output_tokens":1,"cost_usd":0.2},{"cost_usd":-1},7]}"#.into());
    inside.add_at(Some(1), calls);
    let before = counts(4, 122, 29, 300_000_000);
    assert_eq!(found(), before, "the statements of a subgraph count");
    follow(backend);
    assert_eq!(found(), before);
    clean(backend);
    let mut last = on(3, 2);
    last.0.metadata = Some(r#"{"usage":{"input_tokens":1}}"#.into());
    inside.add_at(Some(2), last);
    place.add(on(6, 5).items("list", 6, vec![said(4, Some((1, 1)))]));
    assert_eq!(found(), counts(5, 124, 30, 300_000_000), "checkpoints after the mark of a table");
    clean(backend);
    follow(backend);
    operate(backend, 500, vec![moves(&place, Some(6), Some(3))]);
    assert_eq!(found(), counts(3, 124, 30, 300_000_000), "the head decides the messages alone");
    clean(backend);
    let branch = place.record(6).branch;
    let pruned = backend.prune(&place.thread, &[PruneSpan::new(branch, 0, 9)]).expect("checkpoints are pruned");
    assert_eq!(pruned.checkpoints, 2);
    assert_eq!(found(), counts(3, 117, 29, 300_000_000), "a statement stays, and the tokens of pruned messages go");
    clean(backend);
    let other = place.record(2).branch;
    assert_eq!(backend.prune(&place.thread, &[PruneSpan::new(other, 1, 1)]).expect("one is pruned").checkpoints, 1);
    let after = found();
    clean(backend);
    backend.rebuild_threads().expect("the table is made anew");
    assert_eq!(found(), after);
    clean(backend);
    follow(backend);
    place.add(on(7, 3).items("list", 7, vec![said(5, Some((1, 0)))]));
    let more = after.map(|counts| ThreadCounts { messages: 4, input_tokens: counts.input_tokens + 1, ..counts });
    assert_eq!(found(), more);
}

pub(super) fn queue(backend: &dyn Log) {
    let query = ThreadQuery::new().queue("work");
    let enqueue = |name: &str, n: u64, metadata: &str, tasks: &[&str]| {
        let mut batch = root_of(backend, name).batch(None, [begin(n).tasks(tasks)]);
        batch.checkpoints[0].metadata = Some(metadata.into());
        commit(backend, &batch);
    };
    let work = |priority: u8| format!(r#"{{"graph": "work", "priority": {priority}}}"#);
    for (n, name, priority) in [(1, "a", 0), (2, "b", 9), (3, "c", 0), (4, "d", 9), (5, "e", 5)] {
        enqueue(name, n, &work(priority), &["x"]);
    }
    enqueue("plain", 6, r#"{"graph": "work"}"#, &["x"]);
    enqueue("done", 7, &work(9), &[]);
    enqueue("other", 8, r#"{"graph": "other"}"#, &["x"]);
    let expected = ["b", "d", "e", "a", "c", "plain"];
    for _ in 0..2 {
        assert_eq!(listed(backend, &query), expected);
        assert_eq!(paged(backend, &query), expected);
        // The table of threads follows, and agrees with the log.
        follow(backend);
    }
    marked(backend, &root_of(backend, "b"), 2, -1, WriteMark::Failed);
    enqueue("late", 20, &work(7), &["x"]);
    let expected = ["d", "late", "e", "a", "c", "plain"];
    assert_eq!(listed(backend, &query), expected, "one that failed waits for nothing");
    assert_eq!(paged(backend, &query), expected);
    assert!(listed(backend, &ThreadQuery::new().queue("none")).is_empty());
}
