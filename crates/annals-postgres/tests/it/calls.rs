//! Round trips of calls, which the client counts. A connection prepares a statement when it runs it first, so each call
//! is repeated, and the last one counts.

use std::sync::Arc;

use annals::base::{Namespace, ThreadId};
use annals::history::CopyOptions;
use annals::prelude::{Message, Messages, State};
use annals::store::batch::{Batch, NewCheckpoint, Parent};
use annals::store::lease::{LeaseOwner, NewLease};
use annals::store::log::{ClaimQuery, LogExt};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{OpenOptions, Store};
use annals_graph::prelude::*;
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("calls::of_a_log".into(), Box::new(of_a_log)),
        ("calls::of_a_graph".into(), Box::new(of_a_graph)),
        ("calls::of_an_approval".into(), Box::new(of_an_approval)),
        ("calls::of_a_copy".into(), Box::new(of_a_copy)),
        ("calls::plans_of_empty_tables".into(), Box::new(plans_of_empty_tables)),
    ]
}

/// Calls until every connection knows the statements, and returns the round trips of the last call.
fn round_trips(backend: &PostgresBackend, mut call: impl FnMut()) -> u64 {
    for _ in 0..6 {
        call();
    }
    let before = backend.round_trips();
    call();
    backend.round_trips() - before
}

fn stores(server: &Server) -> (Arc<PostgresBackend>, impl Fn() -> Store) {
    let backend = Arc::new(server.backend());
    let of = Arc::clone(&backend);
    (backend, move || Store::with_backend(of.clone(), OpenOptions::new()))
}

pub(crate) fn of_a_log(server: &Server) {
    let (backend, open) = stores(server);
    let append = |store: &Store| {
        let thread = store.thread("t").expect("an id");
        thread.append("messages", [Message::human("hi")]).expect("it is appended");
    };
    let store = open();
    assert_eq!(round_trips(&backend, || append(&store)), 2, "a warm append reads the head and commits");
    let history = || _ = store.thread("t").expect("an id").history().expect("a history").next();
    assert_eq!(round_trips(&backend, history), 1, "a page of the history");
    let head = store.thread("t").expect("an id").head().expect("a head").expect("a head");
    assert_eq!(round_trips(&backend, || _ = head.values().expect("a state")), 1, "the state at a checkpoint");
    assert_eq!(round_trips(&backend, || _ = head.len("messages").expect("a length")), 1, "the length of a list");
    let mut number = 0;
    let claim = || {
        number += 1;
        let owner = LeaseOwner::new([number; 16]);
        let (now, until) = (annals::base::Timestamp::from_micros(1), annals::base::Timestamp::from_micros(2));
        let lease = match number % 2 {
            1 => NewLease::claim(owner, now, until),
            _ => NewLease::release(LeaseOwner::new([number - 1; 16])),
        };
        let thread = ThreadId::new("t").expect("an id");
        store.commit(&Batch::of_lease(thread, lease)).expect("the lease is free");
    };
    assert_eq!(round_trips(&backend, claim), 1, "the lease of a thread");
    let mut number = 0;
    let claims = || {
        number += 1;
        let thread = ThreadId::new(format!("queued {number}")).expect("an id");
        let mut batch = Batch::new(thread.clone(), Namespace::root(), None);
        let id = store.mint_checkpoint(0, None);
        let mut new = NewCheckpoint::new(id, None, 0, annals::store::Source::Input, store.now());
        new.metadata = Some(r#"{"graph": "work"}"#.into());
        new.tasks.push(TaskRecord::new(annals::base::NULL_TASK, "x", TaskKind::Push { index: 0 }));
        batch.checkpoints.push(new);
        store.commit(&batch).expect("it is queued");
        let until = store.now().saturating_add(std::time::Duration::from_secs(60));
        let query = ClaimQuery::new([store.mint_owner(), store.mint_owner()], store.now(), until).queue("work", []);
        let runs = store.backend().claim(&query).expect("runs are claimed").runs;
        assert_eq!(runs.iter().map(|run| run.info.id()).collect::<Vec<_>>(), [&thread]);
    };
    assert_eq!(round_trips(&backend, claims), 2, "a commit, and a claim of runs");
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    turns: i64,
}

pub(crate) fn of_a_graph(server: &Server) {
    let (backend, open) = stores(server);
    let answer = |chat: &Chat| Ok(Chat::update().messages([Message::ai("hello")]).turns(chat.turns + 1));
    let graph = StateGraph::<Chat>::new().node("answer", answer).edge(START, "answer").edge("answer", END).compile();
    let graph = graph.expect("a graph");
    let store = open();
    let turn = |store: &Store| {
        let thread = store.thread("t").expect("an id");
        let done = graph.invoke(&thread, Chat::update().messages([Message::human("hi")])).expect("it runs");
        assert_eq!(done.state().messages.len() as i64, 2 * done.state().turns);
    };
    assert_eq!(round_trips(&backend, || turn(&store)), 3, "a turn reads the head and commits twice");
    assert!(round_trips(&backend, || turn(&open())) <= 4, "a cold turn reads the state as well");
    // Past the index snapshot the values before it take another one.
    for _ in 0..30 {
        turn(&store);
    }
    assert!(round_trips(&backend, || turn(&open())) <= 5, "a cold turn on a long thread");
    assert_eq!(store.check().expect("a check").problems, []);
}

/// A run is interrupted, and another store resumes it.
fn of_an_approval(server: &Server) {
    let (_, open) = stores(server);
    let graph = StateGraph::<Chat>::new()
        .node("ask", |chat: &Chat, context: &Context| {
            let resumed = context.interrupt("go on?")?;
            Ok(Chat::update().turns(chat.turns + resumed.as_int().unwrap_or_default()))
        })
        .edge(START, "ask")
        .edge("ask", END)
        .compile()
        .expect("a graph");
    let waiting = graph.invoke(&open().thread("t").expect("an id"), Chat::update().turns(1)).expect("it runs");
    assert!(!waiting.is_done());
    let store = open();
    let thread = store.thread("t").expect("an id");
    assert_eq!(thread.head().expect("a head").expect("a head").interrupts().expect("they are read").len(), 1);
    let done = graph.invoke(&thread, Command::resume(4)).expect("it runs");
    assert_eq!(done.state().turns, 5);
    assert_eq!(store.check().expect("a check").problems, []);
}

/// A copy reads three times for each message (the state, what it changed of the list, the item), and all else by pages.
fn of_a_copy(server: &Server) {
    const MESSAGES: u64 = 192;
    let (backend, open) = stores(server);
    let file = Store::memory();
    for n in 0..MESSAGES {
        let thread = file.thread("t").expect("an id");
        thread.append("messages", [Message::human(format!("hi {n}"))]).expect("it is appended");
    }
    file.copy_to(&open(), CopyOptions::new()).expect("it is copied there");
    let read = || {
        let report = open().copy_to(&Store::memory(), CopyOptions::new()).expect("it is copied back");
        assert_eq!((report.refused.len(), report.threads[0].checkpoints), (0, MESSAGES));
    };
    let trips = round_trips(&backend, read);
    assert!((MESSAGES..3 * MESSAGES + 40).contains(&trips), "{trips}");
}

/// Statements that were planned while their tables were empty are planned anew: calls do not read a whole thread that
/// another process has filled since.
fn plans_of_empty_tables(server: &Server) {
    const CHECKPOINTS: u64 = 4_000;
    const CALLS: u64 = 400;
    let (url, root) = (server.empty(), Namespace::root());
    let schema = url.rsplit_once("%3D").expect("the URL names the schema").1.to_owned();
    let reader = PostgresBackend::connect(&format!("{url}&application_name={schema}")).expect("it opens");
    let thread = ThreadId::new("t").expect("an id");
    let read = || reader.head_with_writes(&thread, &root).expect("a head is read");
    assert!(read().is_none());
    let tables =
        ["thread", "namespace", "branch", "checkpoint", "item", "task_write"].map(|of| format!("{schema}.{of}"));
    server.run(&format!("VACUUM ANALYZE {}", tables.join(", ")));
    for _ in 0..20 {
        assert!(read().is_none());
    }
    let backend = PostgresBackend::connect(&url).expect("it opens");
    let store = Store::with_backend(Arc::new(backend), OpenOptions::new());
    let (mut head, mut step) = (None, 0);
    while step < CHECKPOINTS as i64 {
        let mut batch = Batch::new(thread.clone(), root.clone(), head);
        for _ in 0..1_000 {
            let id = store.mint_checkpoint(step, head.as_ref());
            let source = annals::store::Source::Update;
            batch.checkpoints.push(NewCheckpoint::new(id, head.map(Parent::Local), step, source, store.now()));
            (head, step) = (Some(id), step + 1);
        }
        store.commit(&batch).expect("it is stored");
    }
    for _ in 0..CALLS {
        assert_eq!(read().map(|head| head.checkpoint), head);
    }
    drop((reader, store));
    let first = |sql: &str| server.select(sql).first().and_then(|count| count.parse::<u64>().ok());
    // The server has counted what a connection has read when that has ended.
    let open = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'");
    while first(&open) != Some(0) {}
    let read = format!("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = '{schema}'");
    let rows = first(&read).expect("a sum");
    assert!((CALLS..CALLS * CHECKPOINTS / 4).contains(&rows), "{rows} entries of indexes were read");
}
