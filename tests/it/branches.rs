//! Heads that move: rewinds, named branches, undo and redo, on both backends.

use std::time::Duration;

use annals::base::{CheckpointId, IdSource, TaskId};
use annals::history::{Operation, ThreadBranch};
use annals::prelude::*;
use annals::store::batch::{Batch, NewCheckpoint, NewWrite, NewWrites, Parent, WriteValue};
use annals::store::log::LogExt;
use annals::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use annals::store::{OpenOptions, Source, StoreError};

use super::on_both::on_both;

#[derive(State, Clone, Default)]
struct Note {
    n: i64,
    #[channel(append)]
    log: List<i64>,
}

fn add(thread: &Thread, n: i64) -> Snapshot {
    let id = thread.update(Note::update().n(n).log([n])).unwrap();
    thread.at(id).unwrap()
}

fn log(thread: &Thread) -> Vec<i64> {
    let state = thread.with_state::<Note>().state().unwrap();
    assert_eq!(state.n, state.log.iter().next_back().copied().unwrap_or(0), "all channels are those of the head");
    state.log.to_vec()
}

fn names(thread: &Thread) -> Vec<&'static str> {
    thread.operations().unwrap().map(|operation| operation.unwrap().name()).collect()
}

fn shown(branches: &[ThreadBranch]) -> Vec<(Option<&str>, i64, bool)> {
    let value = |branch: &ThreadBranch| branch.last.state::<Note>().unwrap().n;
    branches.iter().map(|branch| (branch.name.as_deref(), value(branch), branch.is_current)).collect()
}

#[test]
fn a_rewind_moves_the_head_and_deletes_nothing() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let all = [1, 2, 3, 4].map(|n| add(&thread, n));
        thread.rewind_to(&all[1]).unwrap();
        assert_eq!((log(&thread), thread.head().unwrap().unwrap()), (vec![1, 2], all[1].clone()));
        assert_eq!(thread.at("~1").unwrap(), all[0]);
        assert_eq!(thread.history().unwrap().count(), 4, "the history has all checkpoints");
        assert_eq!(store.threads().unwrap()[0].head.point, *all[1].point(), "listings show the head");
        add(&thread, 5);
        assert_eq!(log(&thread), [1, 2, 5]);
        assert_eq!(all[3].state::<Note>().unwrap().log.to_vec(), [1, 2, 3, 4]);
        thread.rewind_to(&all[3]).unwrap();
        add(&thread, 6);
        assert_eq!(log(&thread), [1, 2, 3, 4, 6]);
        store.clear_head_cache();
        assert_eq!(log(&thread), [1, 2, 3, 4, 6], "the state in the file is that in the cache");
        thread.rewind_to(&thread.head().unwrap().unwrap()).unwrap();
        assert_eq!(names(&thread)[..3], ["update", "rewind", "update"], "a rewind to the head is no operation");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_checkpoint_elsewhere_is_refused() {
    on_both(|store| {
        let (thread, other) = (store.thread("t").unwrap(), store.thread("other").unwrap());
        add(&thread, 1);
        let elsewhere = add(&other, 1);
        let part = add(&thread.in_namespace("part").unwrap(), 1);
        for wrong in [elsewhere, part] {
            assert!(matches!(thread.rewind_to(&wrong), Err(StoreError::Invalid { field: "rewind", .. })));
            assert!(matches!(thread.name_branch_at("x", &wrong), Err(StoreError::Invalid { field: "branch", .. })));
        }
        assert!(matches!(store.thread("none").unwrap().name_branch("x"), Err(StoreError::Invalid { .. })));
        assert_eq!(names(&thread), ["update"]);
    });
}

#[test]
fn a_late_update_on_a_moved_head_is_a_conflict() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let (first, second) = (add(&thread, 1), add(&thread, 2));
        thread.rewind_to(&first).unwrap();
        let note = thread.with_state::<Note>();
        let late = note.update_at(Some(second.id()), Note::update().n(3)).unwrap_err();
        assert!(late.is_conflict());
        note.update_at(Some(first.id()), Note::update().n(4).log([4])).unwrap();
        assert_eq!(log(&thread), [1, 4]);
    });
}

#[test]
fn undo_goes_back_over_updates_and_rewinds_and_redo_forward() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let first = add(&thread, 1);
        add(&thread, 2);
        add(&thread, 3);
        thread.rewind_to(&first).unwrap();
        add(&thread, 4);
        let undone: Vec<_> = (0..4).map(|_| thread.undo().unwrap().unwrap().name()).collect();
        assert_eq!(undone, ["update", "rewind", "update", "update"]);
        assert_eq!(log(&thread), [1]);
        assert!(thread.undo().unwrap().is_none(), "the first checkpoint of a thread stays");
        for expected in [vec![1, 2], vec![1, 2, 3], vec![1], vec![1, 4]] {
            thread.redo().unwrap().expect("something was undone");
            assert_eq!(log(&thread), expected);
        }
        assert!(thread.redo().unwrap().is_none());
        thread.undo().unwrap().unwrap();
        add(&thread, 5);
        assert!(thread.redo().unwrap().is_none(), "a new change ends it");
        assert_eq!(log(&thread), [1, 5]);
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn handles_of_one_file_undo_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let threads = [(); 2].map(|()| Store::open(&path).unwrap().thread("t").unwrap());
    for n in 1..=20 {
        add(&threads[0], n);
    }
    let mut expected: Vec<i64> = (1..=20).collect();
    for n in [0, 0, 1, 1, 1, 0, 1, 0, 0] {
        threads[n].undo().unwrap().unwrap();
        expected.pop();
        assert_eq!(log(&threads[1 - n]), expected);
    }
    threads[1].redo().unwrap().unwrap();
    expected.push(12);
    assert_eq!(log(&threads[0]), expected);
    threads[0].undo().unwrap().unwrap();
    add(&threads[1], 30);
    threads[0].undo().unwrap().unwrap();
    threads[0].undo().unwrap().unwrap();
    assert_eq!(log(&threads[1]), (1..=10).collect::<Vec<i64>>());
    assert_eq!(threads[0].store().check().unwrap().problems, []);
}

/// A thread as undo sees it: the values of the log after each operation that is done, and those that were undone.
#[derive(Default)]
struct Model {
    done: Vec<Vec<i64>>,
    undone: Vec<Vec<i64>>,
}

impl Model {
    fn now(&self) -> &[i64] {
        self.done.last().map_or(&[], Vec::as_slice)
    }

    fn did(&mut self, log: Vec<i64>) {
        self.done.push(log);
        self.undone.clear();
    }
}

#[test]
fn random_operations_equal_a_model_of_two_stacks() {
    on_both(|store| {
        for seed in 0..8_u64 {
            let thread = store.thread(format!("t{seed}")).unwrap();
            let mut ids = annals::base::IdSource::from_seed(seed);
            let mut model = Model::default();
            let (mut all, mut steps) = (Vec::new(), Vec::new());
            for n in 0..120 {
                let step = ids.random() % 8;
                steps.push(step);
                match step {
                    _ if all.is_empty() => {}
                    3 => {
                        let (snapshot, values): &(Snapshot, Vec<i64>) = &all[ids.random() as usize % all.len()];
                        let is_move = thread.head().unwrap().as_ref() != Some(snapshot);
                        thread.rewind_to(snapshot).unwrap();
                        if is_move {
                            model.did(values.clone());
                        }
                        continue;
                    }
                    4 | 5 => {
                        let undone = thread.undo().unwrap();
                        assert_eq!(undone.is_some(), model.done.len() > 1, "seed {seed}, {steps:?}");
                        if undone.is_some() {
                            model.undone.extend(model.done.pop());
                        }
                    }
                    6 | 7 => {
                        let redone = thread.redo().unwrap();
                        assert_eq!(redone.is_some(), !model.undone.is_empty(), "seed {seed}, {steps:?}");
                        model.done.extend(model.undone.pop());
                    }
                    _ => {}
                }
                if step < 3 || all.is_empty() {
                    let mut values = model.now().to_vec();
                    values.push(n);
                    all.push((add(&thread, n), values.clone()));
                    model.did(values);
                }
                assert_eq!(log(&thread), model.now(), "seed {seed}, {steps:?}");
            }
            let ends = thread.all_branches().unwrap();
            let is_end = |snapshot: &Snapshot| {
                !thread.history().unwrap().any(|other| other.unwrap().parent().unwrap().as_ref() == Some(snapshot))
            };
            for (snapshot, _) in &all {
                let listed = ends.iter().any(|branch| branch.last == *snapshot);
                let is_head = thread.head().unwrap().as_ref() == Some(snapshot);
                assert_eq!(listed, is_end(snapshot) || is_head, "seed {seed}, checkpoint {}", snapshot.id());
            }
        }
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn branches_have_names_that_follow_the_head() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let first = add(&thread, 1);
        add(&thread, 2);
        thread.name_branch("bus").unwrap();
        add(&thread, 3);
        thread.name_branch_at("train", &first).unwrap();
        assert_eq!(shown(&thread.branches().unwrap()), [(Some("bus"), 3, true), (Some("train"), 1, false)]);
        thread.switch(&thread.branch("train").unwrap()).unwrap();
        add(&thread, 4);
        assert_eq!(log(&thread), [1, 4]);
        assert_eq!(shown(&thread.branches().unwrap()), [(Some("train"), 4, true), (Some("bus"), 3, false)]);
        thread.rewind_to(&first).unwrap();
        add(&thread, 5);
        assert_eq!(shown(&thread.branches().unwrap()), [(Some("train"), 5, true), (Some("bus"), 3, false)]);
        let all = thread.all_branches().unwrap();
        assert_eq!(shown(&all[2..]), [(None, 4, false)], "the checkpoint before the rewind is abandoned");
        assert!(all[2].is_abandoned() && !all[0].is_abandoned() && !all[1].is_abandoned());
        thread.switch(&all[2]).unwrap();
        assert_eq!(log(&thread), [1, 4], "an abandoned branch goes on");
        thread.name_branch("plane").unwrap();
        thread.name_branch("boat").unwrap();
        let expected = [(Some("boat"), 4, true), (Some("bus"), 3, false), (Some("train"), 5, false)];
        assert_eq!(shown(&thread.branches().unwrap()), expected, "a branch is renamed");
        thread.undo().unwrap().unwrap();
        assert_eq!(thread.branches().unwrap()[0].name.as_deref(), Some("plane"));
        thread.undo().unwrap().unwrap();
        assert_eq!(thread.branches().unwrap()[0].name.as_deref(), None);
        thread.undo().unwrap().unwrap();
        assert_eq!(shown(&thread.branches().unwrap()), [(Some("train"), 5, true), (Some("bus"), 3, false)]);
        assert_eq!(log(&thread), [1, 5], "a switch is undone");
        thread.remove_branch_name("bus").unwrap();
        assert!(matches!(thread.branch("bus"), Err(StoreError::BranchNotFound { .. })));
        assert!(matches!(thread.remove_branch_name("bus"), Err(StoreError::BranchNotFound { .. })));
        assert!(matches!(thread.name_branch("train"), Ok(())), "it has this name");
        thread.name_branch_at("bus", &first).unwrap();
        let taken = thread.name_branch("bus").unwrap_err();
        assert!(taken.to_string().contains("the name of another branch"), "{taken}");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn operations_say_who_made_them_and_survive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("actors.db");
    {
        let store = Store::open_with(&path, OpenOptions::new().actor("desk")).unwrap();
        let thread = store.thread("t").unwrap();
        let first = add(&thread, 1);
        add(&thread, 2);
        thread.rewind_to(&first).unwrap();
        thread.by("Zoë").name_branch("main").unwrap();
    }
    let store = Store::open(&path).unwrap();
    let thread = store.thread("t").unwrap();
    assert_eq!(log(&thread), [1], "the head that was moved is durable");
    let operations: Vec<_> = thread.operations().unwrap().map(Result::unwrap).collect();
    let shown: Vec<_> = operations.iter().map(|operation| (operation.name(), operation.actor())).collect();
    let expected =
        [("name branch", Some("Zoë")), ("rewind", Some("desk")), ("update", Some("desk")), ("update", Some("desk"))];
    assert_eq!(shown, expected);
    assert!(operations.windows(2).all(|pair| pair[0].at() >= pair[1].at()));
    thread.undo().unwrap().unwrap();
    thread.undo().unwrap().unwrap();
    assert_eq!(log(&thread), [1, 2]);
    drop((store, thread));

    let to = folder.path().join("recovered.db");
    let report = Store::recover(&path, &to).unwrap();
    assert!(report.is_complete() && report.operations == 4, "{report:?}");
    let thread = Store::open(&to).unwrap().thread("t").unwrap();
    assert_eq!(log(&thread), [1, 2]);
    assert_eq!(thread.redo().unwrap().map(|operation| operation.name()), Some("rewind"));
    assert_eq!(log(&thread), [1]);
}

#[test]
fn the_branches_of_lost_races_are_numbered() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let first = thread.set("n", 0).unwrap();
        thread.set("n", 1).unwrap();
        let lose = || {
            let late = thread.write().set("n", 2).on_head(Some(first));
            late.on_conflict(annals::history::OnConflict::Branch).commit().unwrap()
        };
        let lost = [lose(), lose()];
        thread.name_branch_at("conflict-7", &thread.at(lost[1]).unwrap()).unwrap();
        lose();
        let names: Vec<_> = thread.branches().unwrap().iter().filter_map(|branch| branch.name.clone()).collect();
        for name in ["conflict-1", "conflict-7", "conflict-8"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        assert_eq!(thread.at("conflict-1").unwrap().id(), lost[0], "the name is a point");
    });
}

#[test]
fn lineages_meet_across_threads() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let all: Vec<_> = (0..200).map(|n| add(&thread, n)).collect();
        let fork = all[99].fork_to("fork").unwrap();
        let later: Vec<_> = (0..70).map(|n| add(&fork, n)).collect();
        thread.rewind_to(&all[149]).unwrap();
        let side = add(&thread, 7);
        for (a, b, common) in [
            (&all[199], &later[69], Some(&all[99])),
            (&all[120], &side, Some(&all[120])),
            (&side, &all[199], Some(&all[149])),
            (&all[3], &all[3], Some(&all[3])),
            (&all[0], &later[0], Some(&all[0])),
            (&side, &later[30], Some(&all[99])),
        ] {
            assert_eq!(a.common_ancestor(b).unwrap().as_ref(), common);
            assert_eq!(b.common_ancestor(a).unwrap().as_ref(), common);
        }
        let other = add(&store.thread("other").unwrap(), 1);
        assert_eq!(other.common_ancestor(&side).unwrap(), None);
        let lineage: Vec<_> = later[0].lineage().map(Result::unwrap).collect();
        assert_eq!((lineage.len(), &lineage[2], lineage.last()), (102, &all[99], all.first()));
        let groups: Vec<_> = fork.operations().unwrap().map(Result::unwrap).collect();
        assert!(
            matches!(groups.last(), Some(Operation::Commits(group)) if group.source == annals::store::Source::Fork)
        );
    });
}

#[test]
fn a_deleted_thread_takes_its_operations_along() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let first = add(&thread, 1);
        add(&thread, 2);
        thread.rewind_to(&first).unwrap();
        thread.name_branch("main").unwrap();
        _ = store.delete_thread("t").unwrap();
        while store.reclaim().unwrap() != annals::store::Erasure::Erased {}
        add(&thread, 3);
        assert_eq!((log(&thread), names(&thread)), (vec![3], vec!["update"]));
        assert_eq!(shown(&thread.branches().unwrap()), [(None, 3, true)]);
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn an_update_of_a_head_that_stays_is_stored_although_a_branch_has_a_greater_id() {
    on_both(|store| {
        let thread = store.thread("late").unwrap();
        let head = add(&thread, 1).id();
        let later = store.now().saturating_add(Duration::from_secs(3_600));
        let aside = |seed: u64, ahead: &CheckpointId| {
            let id = IdSource::from_seed(seed).checkpoint(later, 1, Some(ahead));
            let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
            batch.checkpoints.push(NewCheckpoint::new(id, Some(Parent::Local(head)), 1, Source::Update, store.now()));
            thread.commit_branch(&batch).unwrap().last
        };
        let newest = aside(1, &head);
        let second = thread.with_state::<Note>().update_at(Some(head), Note::update().n(2).log([2])).unwrap();
        assert!(second > newest, "it got a new id");
        let newest = aside(2, &second);
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
        let early = store.mint_checkpoint(2, None);
        batch.checkpoints.push(NewCheckpoint::new(early, Some(Parent::Local(head)), 1, Source::Update, store.now()));
        let moved = store.commit(&batch).unwrap_err();
        assert!(matches!(moved, StoreError::Conflict { found: Some(found), .. } if found == second), "{moved}");
        batch.expect[0].head = Some(second);
        let refused = store.commit(&batch).unwrap_err();
        assert!(matches!(refused, StoreError::StaleId { newest: found, .. } if found == newest), "{refused}");
        assert!(annals::Error::from(refused).kind().is_retryable());
        assert_eq!(log(&thread), [1, 2], "nothing was written");
        add(&thread, 3);
        assert_eq!(log(&thread), [1, 2, 3]);
    });
}

/// In memory and in a file numbers are dense; those of a server come from its clock.
#[test]
fn refused_batches_take_no_number() {
    on_both(|store| {
        let (thread, other) = (store.thread("t").unwrap(), store.thread("other").unwrap());
        let (head, of_other) = (add(&thread, 1).id(), add(&other, 1).id());
        let last = add(&thread, 2);
        let batch = |of: &Thread, head: CheckpointId| {
            let id = store.mint_checkpoint(1, Some(&last.id()));
            let mut batch = Batch::new(of.id().clone(), of.namespace().clone(), Some(head));
            let parent = Some(Parent::Local(head));
            batch.checkpoints.push(NewCheckpoint::new(id, parent, 1, Source::Update, store.now()));
            batch
        };
        let stale = batch(&thread, head);
        assert!(matches!(store.commit(&stale), Err(StoreError::Conflict { .. })));
        let mut chain = batch(&other, of_other);
        chain.then.push(stale);
        assert!(matches!(store.commit(&chain), Err(StoreError::Conflict { .. })), "all of a chain are stored, or none");
        let next = [add(&other, 2), add(&thread, 3)].map(|snapshot| snapshot.record().seq);
        assert_eq!(next, [1, 2].map(|n| last.record().seq + n));
    });
}

#[test]
fn a_batch_that_is_stored_aside_keeps_its_writes_and_its_operation() {
    on_both(|store| {
        let thread = store.thread("late").unwrap();
        let head = add(&thread, 1).id();
        let id = |after: &CheckpointId| store.mint_checkpoint(1, Some(after));
        let first = id(&head);
        let second = id(&first);
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
        let checkpoint =
            |id, parent| NewCheckpoint::new(id, Some(Parent::Local(parent)), 1, Source::Update, store.now());
        batch.checkpoints = vec![checkpoint(first, head), checkpoint(second, first)];
        let (task, note) = (TaskId::from_bytes([3; 16]), NewWrite::new(-8, "__attempt__", WriteValue::Null));
        batch.writes.push(NewWrites::new(head, task, "").with(vec![note]));
        let (of, root) = (thread.id().clone(), thread.namespace().clone());
        let mut operation = NewOperation::new(OperationKind::Facts, store.now());
        let text = Some(OperationValue::Text("late".into()));
        let end = Some(OperationValue::Checkpoint(second));
        let (title, tip) = (OperationField::Fact("title".into()), OperationField::Branch("tip".into()));
        operation.changes = vec![
            OperationChange::head(of.clone(), root.clone(), Some(second), Some(first)),
            OperationChange::new(of.clone(), root.clone(), title, None, text),
            OperationChange::new(of, root, tip, None, end),
        ];
        batch.operation = Some(operation);
        let moved = add(&thread, 2).id();
        assert!(matches!(store.commit(&batch), Err(StoreError::Conflict { .. })));
        let stored = thread.commit_branch(&batch).unwrap();
        assert!(stored.last > moved, "the ids are new");
        assert_eq!(thread.head().unwrap().unwrap().id(), moved, "the head stays");
        assert_eq!(thread.info().unwrap().title(), Some("late"));
        let named = |name: &str| thread.branch(name).unwrap().last.id();
        assert_eq!((named("tip"), named(&stored.name)), (stored.last, stored.last), "it names the stored checkpoint");
        let written = store.backend().writes(&thread.point(head)).unwrap();
        assert_eq!(written.iter().map(|write| (write.task, write.index)).collect::<Vec<_>>(), [(task, -8)]);
    });
}
