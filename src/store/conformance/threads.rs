//! Listings of threads by their facts and their status.

use super::build::*;

/// More checkpoints than a table of threads lags behind.
const MANY: u64 = 300;

fn list(backend: &dyn Log, query: &ThreadQuery) -> Vec<ThreadInfo> {
    backend.list_threads(query).expect("threads are listed")
}

fn listed(backend: &dyn Log, query: &ThreadQuery) -> Vec<String> {
    list(backend, query).into_iter().map(|info| info.id().to_string()).collect()
}

/// Returns the threads of a query, page by page.
fn paged(backend: &dyn Log, query: &ThreadQuery) -> Vec<String> {
    let (mut query, mut found) = (query.clone().limit(3), Vec::new());
    loop {
        let page = list(backend, &query);
        let Some(last) = page.last() else { return found };
        query = query.after(last);
        found.extend(page.iter().map(|info| info.id().to_string()));
        assert!(found.len() as u64 <= 2 * MANY, "a cursor repeats");
    }
}

fn info(place: &CasePlace<'_>) -> ThreadInfo {
    place.backend.thread_info(&place.thread).expect("a thread is read").expect("the thread exists")
}

/// Makes the table of threads anew, if there is one.
fn rebuild(backend: &dyn Log) {
    backend.capabilities().file.map_or(Ok(()), FileStore::rebuild_threads).expect("the table is made anew");
}

/// Adds a thread with many checkpoints, so that a table of threads follows those before.
fn follow(backend: &dyn Log) {
    let busy = root_of(backend, "busy");
    let head = busy.head().unwrap_or(0);
    busy.add_chain(head + 1..=head + MANY);
}

/// The status and the facts of threads change without a checkpoint, before and after a table of threads follows them.
pub(super) fn by_status(backend: &dyn Log) {
    let places = roots(backend, ["ends", "runs", "asks", "fails", "sleeps", "stops", "stated"]);
    let [ends, _, asks, fails, sleeps, stops, stated] = &places;
    for place in &places {
        place.add(match place.thread.as_str() {
            "ends" | "stated" => begin(1),
            "stops" => begin(1).metadata(r#"{"cancelled":"too late","graph":"book"}"#),
            _ => begin(1).tasks(&["node"]),
        });
    }
    follow(backend);
    let by = |status: StatusKind, expected: &[&str]| {
        assert_eq!(listed(backend, &ThreadQuery::new().status(status)), expected, "{status:?}");
        let one = |id: &&&str| info(&root_of(backend, id)).status == status;
        assert_eq!(expected.iter().filter(one).count(), expected.len(), "a listing shows a status as the thread");
    };
    let query = |query: ThreadQuery, expected: &[&str]| assert_eq!(listed(backend, &query), expected);
    let mark = |place: &CasePlace<'_>, index, mark| {
        place.write(1, 1, vec![write(index, "special", "a value").with_mark(Some(mark))]);
    };
    by(StatusKind::Running, &["sleeps", "fails", "asks", "runs"]);
    mark(asks, -3, WriteMark::Waits);
    mark(fails, -1, WriteMark::Failed);
    sleeps.wait(1, WriteMark::WakesAt(moment(7)), 7);
    by(StatusKind::Interrupted, &["asks"]);
    by(StatusKind::Failed, &["fails"]);
    // A run is given up with the error of its task, and another error takes its place.
    mark(fails, -1, WriteMark::GivenUp);
    by(StatusKind::GivenUp, &["fails"]);
    by(StatusKind::Failed, &[]);
    mark(fails, -1, WriteMark::Failed);
    by(StatusKind::Failed, &["fails"]);
    by(StatusKind::Sleeping, &["sleeps"]);
    by(StatusKind::Cancelled, &["stops"]);
    by(StatusKind::Running, &["runs"]);
    query(ThreadQuery::new().graph("book"), &["stops"]);
    let set = |n, place, facts: [(&str, &str); 2]| {
        operate(backend, n, facts.iter().map(|(name, text)| fact(place, name, None, Some(text))).collect());
    };
    set(400, stated, [("project", "home"), ("labels", r#"["a","ü"]"#)]);
    set(401, ends, [("archived", "true"), ("pinned", "true")]);
    query(ThreadQuery::new().project("home").label("ü"), &["stated"]);
    query(ThreadQuery::new().archived(true).pinned(true), &["ends"]);
    by(StatusKind::Done, &["busy", "stated"]);
    // The interrupt is answered by a superstep, and the head moves back to it.
    asks.add(on(2, 1));
    by(StatusKind::Interrupted, &[]);
    query(ThreadQuery::new().limit(1), &["asks"]);
    follow(backend);
    operate(backend, 402, vec![moves(asks, Some(2), Some(1))]);
    by(StatusKind::Interrupted, &["asks"]);
    // A move of a head is not an activity.
    query(ThreadQuery::new().limit(2), &["busy", "asks"]);
    rebuild(backend);
    by(StatusKind::Interrupted, &["asks"]);
    query(ThreadQuery::new().project("home"), &["stated"]);
    // An error, an interrupt and a sleep that are cleared leave their tasks due.
    for (place, index) in [(asks, -3), (fails, -1), (sleeps, -3)] {
        place.write(1, 1, vec![NewWrite::new(index, "special", WriteValue::Null)]);
        assert_eq!(info(place).status, StatusKind::Running, "{}", place.thread);
    }
    let mut running = listed(backend, &ThreadQuery::new().status(StatusKind::Running));
    running.sort_unstable();
    assert_eq!(running, ["asks", "fails", "runs", "sleeps"]);
    assert_eq!(info(stops).status, StatusKind::Cancelled);
}

pub(super) fn pages(backend: &dyn Log) {
    let places: Vec<CasePlace<'_>> = (0..MANY).map(|n| root_of(backend, &format!("t{n:03}"))).collect();
    places.iter().for_each(|place| place.add(begin(1)));
    for (n, place) in (0..).zip(&places).step_by(10) {
        operate(backend, 10 + n, vec![fact(place, "project", None, Some("p"))]);
    }
    places[20].add(on(2, 1));
    let names = || (0..MANY).map(|n| format!("t{n:03}"));
    let rest = names().rev().filter(|name| name != "t020");
    let expected: Vec<String> = std::iter::once("t020".to_owned()).chain(rest).collect();
    assert_eq!(listed(backend, &ThreadQuery::new().limit(1_000)), expected);
    assert_eq!(paged(backend, &ThreadQuery::new()), expected, "page by page");
    assert_eq!(paged(backend, &ThreadQuery::new().by_id()), names().collect::<Vec<_>>());
    let project = ThreadQuery::new().project("p");
    let of_project: Vec<String> = expected.iter().filter(|id| id.ends_with('0')).cloned().collect();
    assert_eq!(paged(backend, &project), of_project);
    assert_eq!(paged(backend, &project.clone().by_id()).len(), of_project.len());
    assert_eq!(listed(backend, &project.clone().since(moment(2))), ["t020"]);
    delete(backend, &[&places[20], &places[30]]);
    assert_eq!(paged(backend, &project).len(), of_project.len() - 2);
    places[30].add(begin(1));
    assert_eq!(listed(backend, &ThreadQuery::new().limit(1)), ["t030"], "an id is used again");
    assert_eq!(paged(backend, &project).len(), of_project.len() - 2, "without the facts that it had");
}

/// Messages, tokens and costs are counted once, on all branches and in all namespaces, before and after a table of
/// threads follows them, and without content that was pruned.
pub(super) fn counted(backend: &dyn Log) {
    let place = root_of(backend, "t");
    let inside = place.inside("sub:1");
    // Puts a message with tokens.
    let said = |position: u64, tokens: Option<(u32, u32)>| {
        let mut index = ItemIndex::default();
        (index.input_tokens, index.output_tokens) = tokens.unzip();
        index.kind = Some("ai".into());
        put_payload(position, bytes([0x80]).with_index(index))
    };
    let found = || {
        let counts = info(&place).counts;
        let listed = list(backend, &ThreadQuery::new());
        let listed = listed.iter().find(|info| *info.id() == place.thread).expect("the thread is listed");
        assert_eq!(listed.counts, counts, "a listing counts as the thread");
        clean(backend);
        counts.unwrap_or_default()
    };
    let counts = |messages, input_tokens, output_tokens, cost_nano_usd: u64, why: &str| {
        assert_eq!(found(), ThreadCounts { messages, input_tokens, output_tokens, cost_nano_usd }, "{why}");
    };
    let first = begin(1).items("list", 1, vec![said(0, None), said(1, Some((10, 2)))]);
    place.add(first.items("values", 1, vec![put(0, "x"), put(1, "y")]));
    counts(2, 10, 2, 0, "values of other lists do not count as messages");
    place.add(on(2, 1).items("list", 2, vec![said(1, Some((11, 3))), said(2, None)]));
    counts(3, 10, 2, 0, "an edit does not count again");
    place.add(on(3, 2).items("list", 3, vec![said(2, Some((5, 5)))]));
    place.add(on(4, 1).items("list", 4, vec![said(2, Some((7, 1)))]));
    counts(3, 22, 8, 0, "an abandoned branch counts");
    let stated = on(5, 4).items("list", 5, vec![said(3, Some((1_000, 1_000)))]);
    place.add(stated.metadata(r#"{"usage":{"input_tokens":100,"output_tokens":20,"cost_usd":0.1}}"#));
    counts(4, 122, 28, 100_000_000, "a statement counts in place of the messages");
    inside.add(begin(1).items("list", 1, vec![said(0, Some((9, 9)))]));
    inside.add(on(2, 1).metadata(r#"{"usage":[{"output_tokens":1,"cost_usd":0.2},{"cost_usd":-1},7]}"#));
    counts(4, 122, 29, 300_000_000, "the statements of a subgraph count");
    follow(backend);
    counts(4, 122, 29, 300_000_000, "a table follows");
    inside.add(on(3, 2).metadata(r#"{"usage":{"input_tokens":1}}"#));
    place.add(on(6, 5).items("list", 6, vec![said(4, Some((1, 1)))]));
    counts(5, 124, 30, 300_000_000, "checkpoints after the mark of a table");
    follow(backend);
    operate(backend, 500, vec![moves(&place, Some(6), Some(3))]);
    counts(3, 124, 30, 300_000_000, "the head decides the messages alone");
    let span = |n, first, last| PruneSpan::new(place.record(n).branch, first, last);
    assert_eq!(place.prune_spans(&[span(6, 0, 9)]).checkpoints, 2);
    counts(3, 117, 29, 300_000_000, "a statement stays, and the tokens of pruned messages go");
    assert_eq!(place.prune_spans(&[span(2, 1, 1)]).checkpoints, 1);
    let after = found();
    rebuild(backend);
    assert_eq!(found(), after);
    follow(backend);
    place.add(on(7, 3).items("list", 7, vec![said(5, Some((1, 0)))]));
    assert_eq!(found(), ThreadCounts { messages: 4, input_tokens: after.input_tokens + 1, ..after });
}

pub(super) fn queue(backend: &dyn Log) {
    let query = ThreadQuery::new().queue("work");
    let enqueue = |name: &str, n: u64, metadata: &str, tasks: &[&str]| {
        root_of(backend, name).add(begin(n).tasks(tasks).metadata(metadata));
    };
    let work = |priority: u8| format!(r#"{{"graph": "work", "priority": {priority}}}"#);
    let runs = (1..).zip([("a", 0), ("b", 9), ("c", 0), ("d", 9), ("e", 5)]);
    runs.for_each(|(n, (name, priority))| enqueue(name, n, &work(priority), &["x"]));
    enqueue("plain", 6, r#"{"graph": "work"}"#, &["x"]);
    enqueue("done", 7, &work(9), &[]);
    enqueue("other", 8, r#"{"graph": "other"}"#, &["x"]);
    let lists = |expected: [&str; 6]| assert_eq!([listed(backend, &query), paged(backend, &query)], [expected; 2]);
    for _ in 0..2 {
        lists(["b", "d", "e", "a", "c", "plain"]);
        // The table of threads follows, and agrees with the log.
        follow(backend);
    }
    let failed = write(-1, "special", "a value").with_mark(Some(WriteMark::Failed));
    root_of(backend, "b").write(2, 1, vec![failed]);
    enqueue("late", 20, &work(7), &["x"]);
    // One that failed waits for nothing.
    lists(["d", "late", "e", "a", "c", "plain"]);
    assert!(listed(backend, &ThreadQuery::new().queue("none")).is_empty());
}
