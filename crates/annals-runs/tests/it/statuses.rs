//! The status of a thread, from the marks and the values of the special writes at its head.

use annals::base::{Map, Namespace, TaskId, Timestamp, Value};
use annals::history::{StatusKind, ThreadQuery};
use annals::store::batch::{Batch, NewCheckpoint, NewWrite, NewWrites, WriteValue};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{Source, WriteMark};
use annals_runs::prelude::*;
use annals_runs::{SpecialWrite, ThreadStatus, interrupts_write};

/// Returns a thread whose head has tasks.
fn due(tasks: u8) -> Thread {
    let thread = Store::memory().thread("t").unwrap();
    let store = thread.store();
    let id = store.mint_checkpoint(0, None);
    let mut checkpoint = NewCheckpoint::new(id, None, 0, Source::Loop, store.now());
    let kind = |n| TaskKind::Push { index: n };
    checkpoint.tasks =
        (0..tasks).map(|n| TaskRecord::new(TaskId::from_bytes([n + 1; 16]), format!("n{n}"), kind(n.into()))).collect();
    let mut batch = Batch::new(thread.id().clone(), Namespace::root(), None);
    batch.checkpoints.push(checkpoint);
    store.commit(&batch).unwrap();
    thread
}

fn write(thread: &Thread, task: u8, write: NewWrite) {
    let head = thread.head().unwrap().unwrap().id();
    let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(head));
    batch.writes.push(NewWrites::new(head, TaskId::from_bytes([task + 1; 16]), "p").with(vec![write]));
    thread.store().commit(&batch).unwrap();
}

fn text(text: &str) -> WriteValue {
    WriteValue::One(annals::base::Encoded::encode(text).unwrap().into())
}

fn interrupt(id: u8, value: &str, wake_at: Option<i64>) -> Value {
    let mut members =
        Map::from_iter([("id".to_owned(), format!("{id:032x}").into()), ("value".to_owned(), value.into())]);
    members.extend(wake_at.map(|at| ("wake_at".to_owned(), at.into())));
    Value::Map(members)
}

fn status(thread: &Thread) -> ThreadStatus {
    let info = thread.info().unwrap();
    let listed = thread.store().threads_with(ThreadQuery::new().status(info.status)).unwrap();
    assert_eq!(listed, std::slice::from_ref(&info), "a listing has the status of the thread");
    let status = ThreadStatus::of(&info);
    assert_eq!(status.kind(), info.status);
    status
}

#[test]
fn an_error_counts_until_it_is_cleared_or_its_task_has_ended() {
    let thread = due(2);
    assert_eq!(status(&thread), ThreadStatus::Running);
    write(&thread, 0, SpecialWrite::Error.write(text("no model")));
    assert_eq!(status(&thread), ThreadStatus::Failed("no model".into()));
    assert!(thread.retry().unwrap());
    assert_eq!(status(&thread), ThreadStatus::Running);
    write(&thread, 0, SpecialWrite::Error.write(text("no model")));
    write(&thread, 0, NewWrite::new(0, "x", text("a result")));
    assert_eq!(status(&thread), ThreadStatus::Running, "it has ended");
}

#[test]
fn a_run_is_given_up_by_its_error_and_another_error_takes_its_place() {
    let thread = due(1);
    write(&thread, 0, SpecialWrite::Error.write(text("too often")).with_mark(Some(WriteMark::GivenUp)));
    assert_eq!(status(&thread), ThreadStatus::Stuck("too often".into()));
    assert_eq!((status(&thread).as_str(), thread.info().unwrap().status), ("stuck", StatusKind::GivenUp));
    write(&thread, 0, SpecialWrite::Error.write(text("no network")));
    assert_eq!(status(&thread), ThreadStatus::Failed("no network".into()));
}

#[test]
fn a_thread_sleeps_if_all_that_its_tasks_wait_for_has_a_timestamp() {
    let thread = due(2);
    let asks = |interrupts| interrupts_write(interrupts).unwrap();
    write(&thread, 0, asks(vec![interrupt(1, "a", Some(9)), interrupt(2, "b", Some(7))]));
    write(&thread, 1, asks(vec![interrupt(3, "c", Some(8))]));
    assert_eq!(status(&thread), ThreadStatus::Sleeping(Timestamp::from_micros(7)));
    write(&thread, 0, asks(vec![interrupt(1, "a", Some(9)), interrupt(2, "which?", None)]));
    assert_eq!(status(&thread), ThreadStatus::Interrupted(vec!["which?".into()]));
    assert_eq!(thread.open_interrupts().unwrap().len(), 3);
    write(&thread, 0, asks(Vec::new()));
    assert_eq!(status(&thread), ThreadStatus::Sleeping(Timestamp::from_micros(8)));
}

#[test]
fn a_mark_needs_a_special_write_with_a_value() {
    let thread = due(1);
    let head = thread.head().unwrap().unwrap().id();
    for refused in [
        NewWrite::new(0, "x", text("a result")),
        SpecialWrite::Error.clear(),
        SpecialWrite::Interrupt.write(text("?")).with_mark(Some(WriteMark::WakesAt(Timestamp::from_micros(-1)))),
    ] {
        let refused = if refused.mark.is_some() { refused } else { refused.with_mark(Some(WriteMark::Failed)) };
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(head));
        batch.writes.push(NewWrites::new(head, TaskId::from_bytes([1; 16]), "p").with(vec![refused]));
        let error = thread.store().commit(&batch).unwrap_err();
        assert!(error.to_string().contains("write.mark"), "{error}");
    }
}
