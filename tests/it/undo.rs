//! Undo and redo beside other writers, and in files with undos that lost a race, on both backends.

use std::sync::Arc;

use annals::ErrorKind;
use annals::base::{CheckpointId, Clock, IdSource, SystemClock, Timestamp};
use annals::history::{Operation, PrunePolicy};
use annals::prelude::*;
use annals::store::log::Log;
use annals::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationTarget, OperationValue,
};
use annals::store::{MemoryBackend, OpenOptions, SqliteBackend, StoreError, Synchronous};
use parking_lot::Mutex;

use crate::PATIENT_MS;

#[derive(State, Clone, Default)]
struct Line {
    n: i64,
}

type Hook = Box<dyn FnOnce() + Send>;

/// A clock that calls a hook once. A change reads the clock after it has read its base, and before it is
/// stored, so the hook comes between the two.
#[derive(Clone, Default)]
struct HookClock(Arc<Mutex<Option<Hook>>>);

impl HookClock {
    fn set(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.lock() = Some(Box::new(hook));
    }
}

impl Clock for HookClock {
    fn now(&self) -> Timestamp {
        let hook = self.0.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        SystemClock.now()
    }
}

/// Runs a test on both backends: with a thread of three updates, the same thread of another handle, and the clock of
/// the first handle.
fn on_two_handles(test: impl Fn(&Thread, Thread, &HookClock)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = || OpenOptions::new().synchronous(Synchronous::Normal);
    let memory = Arc::new(MemoryBackend::new());
    let file = || Arc::new(SqliteBackend::open(&path, &options()).unwrap());
    for pair in [[memory.clone() as Arc<dyn Log>, memory], [file(), file()]] {
        let clock = HookClock::default();
        let [own, other] = pair;
        let own = Store::with_backend(own, options().clock(clock.clone())).thread("t").unwrap();
        (1..=3).for_each(|n| _ = add(&own, n));
        let other = Store::with_backend(other, options()).thread("t").unwrap();
        test(&own, other, &clock);
        assert_eq!(own.store().check().unwrap().problems, []);
    }
}

fn add(thread: &Thread, n: i64) -> CheckpointId {
    thread.update(Line::update().n(n)).unwrap()
}

fn shown(thread: &Thread) -> i64 {
    thread.with_state::<Line>().state().unwrap().n
}

fn head(thread: &Thread) -> CheckpointId {
    thread.head().unwrap().unwrap().id()
}

fn names(thread: &Thread) -> Vec<&'static str> {
    thread.operations().unwrap().map(|operation| operation.unwrap().name()).collect()
}

/// Undoes all operations. Nothing else writes, so a conflict never ends. Returns the head.
fn undo_all(thread: &Thread) -> CheckpointId {
    let most = thread.operations().unwrap().count();
    let count = (0..=most).take_while(|_| thread.undo().unwrap().is_some()).count();
    assert!(count <= most, "an operation is undone once");
    head(thread)
}

/// Makes all undone operations again. Returns the head.
fn redo_all(thread: &Thread) -> CheckpointId {
    let most = thread.operations().unwrap().count();
    let count = (0..=most).take_while(|_| thread.redo().unwrap().is_some()).count();
    assert!(count <= most, "an operation is made again once");
    head(thread)
}

fn conflicts<T: std::fmt::Debug>(refused: Result<T, StoreError>) {
    let error = annals::Error::from(refused.unwrap_err());
    assert!(error.is_conflict() && error.is_retryable(), "{error}");
}

#[test]
fn an_undo_that_lost_a_race_is_a_conflict_that_a_repetition_resolves() {
    on_two_handles(|thread, other, clock| {
        let (first, third) = (thread.at("~2").unwrap().id(), thread.at("@").unwrap());
        // The head is again where the undo has read it, but the update is undone.
        clock.set(move || {
            other.undo().unwrap().unwrap();
            other.rewind_to(&third).unwrap();
        });
        conflicts(thread.undo());
        assert_eq!(
            (names(thread)[..3].to_vec(), shown(thread)),
            (vec!["rewind", "undo", "update"], 3),
            "nothing is stored"
        );
        assert_eq!(thread.undo().unwrap().unwrap().name(), "rewind");
        assert_eq!(shown(thread), 2);
        assert_eq!(undo_all(thread), first);
        redo_all(thread);
        assert_eq!(shown(thread), 3, "redo goes over the undos after the last other operation");
    });
}

#[test]
fn a_redo_that_lost_a_race_is_a_conflict_that_a_repetition_resolves() {
    on_two_handles(|thread, other, clock| {
        thread.undo().unwrap().unwrap();
        let second = thread.at("@").unwrap();
        clock.set(move || {
            other.redo().unwrap().unwrap();
            other.rewind_to(&second).unwrap();
        });
        conflicts(thread.redo());
        assert!(thread.redo().unwrap().is_none(), "a rewind ends it");
        assert_eq!((thread.undo().unwrap().unwrap().name(), shown(thread)), ("rewind", 3));
        let first = undo_all(thread);
        assert_eq!((shown(thread), redo_all(thread) == first), (1, false));
        assert_eq!(shown(thread), 2);
    });
}

#[test]
fn an_undo_of_facts_is_refused_if_another_operation_came_between() {
    on_two_handles(|thread, other, clock| {
        thread.facts().title("a").save().unwrap();
        let same = other.clone();
        clock.set(move || _ = add(&same, 4));
        conflicts(thread.undo());
        assert_eq!((thread.info().unwrap().title(), shown(thread)), (Some("a"), 4));
        assert_eq!(thread.undo().unwrap().unwrap().name(), "update", "the update is the newest operation");
        thread.redo().unwrap().unwrap();
        // Another field changes.
        clock.set(move || other.facts().project("p").save().unwrap());
        conflicts(thread.undo());
        assert_eq!(thread.undo().unwrap().unwrap().name(), "facts");
        let info = thread.info().unwrap();
        assert_eq!((info.title(), info.facts.project.as_deref(), shown(thread)), (Some("a"), None, 4));
    });
}

#[test]
fn a_switch_and_names_are_refused_if_another_operation_came_between() {
    on_two_handles(|thread, other, clock| {
        let first = thread.at("~2").unwrap();
        thread.name_branch("main").unwrap();
        thread.name_branch_at("side", &first).unwrap();
        let side = thread.branch("side").unwrap();

        let same = other.clone();
        clock.set(move || same.remove_branch_name("side").unwrap());
        conflicts(thread.switch(&side));
        let again = thread.switch(&side);
        assert!(matches!(again, Err(StoreError::FieldConflict { .. })), "no branch has the name: {again:?}");
        thread.name_branch_at("side", &first).unwrap();

        let (same, of) = (other.clone(), side.clone());
        clock.set(move || same.switch(&of).unwrap());
        conflicts(thread.remove_branch_name("side"));
        assert!(thread.branch("side").unwrap().is_current, "the branch of the head has its name");

        // The branch goes on, and the head leaves it: the end that was read is not its end any more.
        let end = add(&other, 4);
        other.switch(&other.branch("main").unwrap()).unwrap();
        conflicts(thread.switch(&side));
        thread.switch(&thread.branch("side").unwrap()).unwrap();
        assert_eq!((head(thread), shown(thread)), (end, 4));

        let same = other.clone();
        clock.set(move || _ = add(&same, 5));
        conflicts(thread.switch(&thread.branch("main").unwrap()));
        thread.switch(&thread.branch("main").unwrap()).unwrap();
        assert_eq!((shown(thread), thread.branch("side").unwrap().last.state::<Line>().unwrap().n), (3, 5));
    });
}

/// Stores an undo or a redo of updates that rests on nothing: as one that lost a race did.
fn stale(thread: &Thread, kind: OperationKind, of: OperationTarget, changes: Vec<OperationChange>) {
    let mut operation = NewOperation::new(kind, thread.store().now());
    (operation.target, operation.changes) = (Some(of), changes);
    thread.store().backend().operate(&operation).unwrap();
}

fn moves(thread: &Thread, to: CheckpointId) -> Vec<OperationChange> {
    vec![OperationChange::head(thread.id().clone(), thread.namespace().clone(), Some(head(thread)), Some(to))]
}

#[test]
fn a_second_undo_of_an_operation_is_skipped() {
    on_two_handles(|thread, other, _| {
        let all = ["~2", "~1", "@"].map(|point| thread.at(point).unwrap());
        let [first, second, third] = [0, 1, 2].map(|n: usize| all[n].id());
        thread.undo().unwrap().unwrap();
        thread.rewind_to(&all[0]).unwrap();
        stale(thread, OperationKind::Undo, OperationTarget::Commits(third), moves(thread, second));

        assert!(thread.redo().unwrap().is_none(), "the update was undone before the rewind");
        assert_eq!((thread.undo().unwrap().unwrap().name(), head(thread)), ("rewind", second));
        assert_eq!((other.undo().unwrap().unwrap().name(), head(thread)), ("update", first));
        assert!(thread.undo().unwrap().is_none());
        let redone = [other.redo().unwrap(), thread.redo().unwrap()].map(|redone| redone.unwrap().name());
        assert_eq!((redone, head(thread)), (["update", "rewind"], first));
        assert!(thread.redo().unwrap().is_none());
        add(thread, 4);
        assert_eq!((undo_all(thread), redo_all(thread) == first), (first, false));
        assert_eq!(shown(thread), 4);
    });
}

#[test]
fn a_second_undo_of_facts_is_skipped() {
    on_two_handles(|thread, _, _| {
        let title = |before: Option<&str>, after: Option<&str>| {
            let text = |text: Option<&str>| text.map(|text| OperationValue::Text(text.into()));
            let (of, field) = (thread.id().clone(), OperationField::Fact("title".into()));
            OperationChange::new(of, thread.namespace().clone(), field, text(before), text(after))
        };
        thread.facts().title("a").save().unwrap();
        let Some(Ok(Operation::Stored(facts))) = thread.operations().unwrap().next() else {
            panic!("the facts are an operation")
        };
        thread.undo().unwrap().unwrap();
        thread.facts().title("a").save().unwrap();
        stale(thread, OperationKind::Undo, OperationTarget::Operation(facts.id), vec![title(Some("a"), None)]);
        let undone =
            [thread.undo(), thread.undo(), thread.undo()].map(|undone| undone.unwrap().map(|undone| undone.name()));
        assert_eq!((undone, shown(thread)), ([Some("facts"), Some("update"), Some("update")], 1));
        assert!(thread.undo().unwrap().is_none());
        redo_all(thread);
        assert_eq!((thread.info().unwrap().title(), shown(thread)), (Some("a"), 3));
    });
}

#[test]
fn no_history_with_undos_that_lost_a_race_is_stuck() {
    on_two_handles(|own, other, _| {
        for seed in 0..8 {
            let threads = [own, &other].map(|thread| thread.store().thread(format!("t{seed}")).unwrap());
            add(&threads[0], 0);
            let mut ids = IdSource::from_seed(seed);
            for n in 0..30 {
                let by = &threads[ids.random() as usize % 2];
                let all: Vec<_> = by.history().unwrap().take(6).map(Result::unwrap).collect();
                let any = |ids: &mut IdSource| all[ids.random() as usize % all.len()].clone();
                match ids.random() % 8 {
                    0 | 1 => _ = add(by, n),
                    2 => by.rewind_to(&any(&mut ids)).unwrap(),
                    3 => _ = by.undo().unwrap(),
                    4 => _ = by.redo().unwrap(),
                    5 => by.facts().title(format!("{}", n % 2)).save().unwrap(),
                    step => {
                        let kind = if step == 6 { OperationKind::Undo } else { OperationKind::Redo };
                        let target = OperationTarget::Commits(any(&mut ids).id());
                        stale(by, kind, target, moves(by, any(&mut ids).id()));
                    }
                }
            }
            undo_all(&threads[seed as usize % 2]);
            redo_all(&threads[0]);
            // From here on, no race is left: the head goes back to where it is with each undo and redo.
            let last = add(&threads[1], 100);
            undo_all(&threads[0]);
            assert_eq!(redo_all(&threads[1]), last, "seed {seed}");
        }
    });
}

#[test]
fn updates_that_were_undone_and_pruned_are_not_made_again() {
    on_two_handles(|thread, _, _| {
        add(thread, 4);
        (0..3).for_each(|_| _ = thread.undo().unwrap().unwrap());
        _ = thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        assert_eq!(thread.history().unwrap().count(), 2, "the head and the end of the branch");
        let refused = thread.redo();
        assert!(matches!(refused, Err(StoreError::CheckpointPruned { .. })), "{refused:?}");
        assert!(thread.undo().unwrap().is_none());
        assert_eq!(shown(thread), 1);
    });
}

/// The rounds of the race. More of them, in several processes, are those of `annals-sim races`.
const ROUNDS: usize = 25;

#[test]
fn undos_beside_appends_undos_and_rewinds_are_never_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = || OpenOptions::new().synchronous(Synchronous::Normal).busy_timeout_ms(PATIENT_MS);
    let open = || Store::open_with(&path, options()).unwrap();
    let (mover, undoer) = (open(), open());
    for round in 0..ROUNDS {
        let [a, b] = [&mover, &undoer].map(|store| store.thread(format!("t{round}")).unwrap());
        let first = add(&a, 0);
        add(&a, 1);
        let is_raced = |done: Result<(), StoreError>| {
            if let Err(error) = done.map_err(annals::Error::from) {
                assert!(error.is_conflict() || error.kind() == ErrorKind::Busy, "{error}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..12 {
                    let at = a.head().unwrap().unwrap();
                    add(&a, n);
                    is_raced(a.undo().map(|_| ()));
                    is_raced(a.rewind_to(&at));
                }
            });
            scope.spawn(|| (0..24).for_each(|_| is_raced(b.undo().map(|_| ()))));
        });
        redo_all(&a);
        let end = head(&b);
        assert_eq!((undo_all(&b), redo_all(&a)), (first, end), "round {round}");
    }
    assert_eq!(mover.check().unwrap().problems, []);
}
