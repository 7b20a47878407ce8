//! Pruning threads by policies, on both backends.

use annals::base::{CheckpointId, Encoded, IdSource, Namespace, RunId, TaskId, Value};
use annals::history::{ModelUsage, PrunePolicy, ThreadQuery, UsageQuery};
use annals::prelude::*;
use annals::store::batch::{Batch, ListDelta, ListRef, NewCheckpoint, NewWrite, NewWrites, Parent, WriteValue};
use annals::store::log::{LogExt, PruneSpan};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{CheckpointRef, Source, StoreError, WriteMark};

use crate::on_both::on_both;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Chat {
    #[channel(append)]
    lines: List<String>,
    title: String,
}

fn say(thread: &Thread, line: &str) {
    // Long enough to be stored apart from the row of the channel.
    let title = format!("{} after {line}", "a title ".repeat(40));
    thread.update(Chat::update().lines([line.to_string()]).title(title)).unwrap();
}

fn state(thread: &Thread) -> Chat {
    Chat::clone(&thread.with_state::<Chat>().state().unwrap())
}

fn is_pruned<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::CheckpointPruned { .. }))
}

#[test]
fn a_policy_keeps_the_last_checkpoints() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        (0..100).for_each(|n| say(&thread, &format!("line {n}")));
        let nothing = thread.prune(&PrunePolicy::new()).unwrap();
        assert_eq!(nothing.checkpoints, 0, "nothing is pruned without a condition");
        let before: Vec<Chat> = (0..10).map(|n| thread.at(format!("~{n}")).unwrap().state().unwrap()).collect();
        let plan = thread.prune_plan(&PrunePolicy::new().keep_last(10)).unwrap();
        assert_eq!((plan.points().len(), plan.points().count()), (90, 90), "the length is that of the walk");
        assert_eq!(plan.estimate().unwrap().checkpoints, 90);
        assert_eq!(thread.history().unwrap().count(), 100, "a plan prunes nothing");
        let pruned = plan.run().unwrap();
        assert!(pruned.checkpoints == 90 && pruned.values > 0);
        assert_eq!(thread.history().unwrap().count(), 10);
        assert_eq!(thread.at("@").unwrap().lineage().count(), 10);
        for (n, before) in before.iter().enumerate() {
            assert_eq!(thread.at(format!("~{n}")).unwrap().state::<Chat>().unwrap(), *before);
        }
        assert!(is_pruned(thread.at("~10")) && is_pruned(thread.at("~99")));
        assert!(thread.at("~100").is_err());
        assert!(is_pruned(thread.at("~9").unwrap().parent()));
        assert_eq!(thread.prune(&PrunePolicy::new().keep_last(10)).unwrap().checkpoints, 0);
        (100..105).for_each(|n| say(&thread, &format!("line {n}")));
        assert_eq!(thread.prune(&PrunePolicy::new().keep_last(10)).unwrap().checkpoints, 5);
        assert_eq!(state(&thread).lines.len(), 105);
    });
}

#[test]
fn all_threads_of_a_query_are_pruned_or_as_many_as_its_limit() {
    on_both(|store| {
        // More than a listing shows without a limit.
        for n in 0..60 {
            let thread = store.thread(format!("chat-{n}")).unwrap();
            (0..2).for_each(|n| say(&thread, &format!("line {n}")));
        }
        let policy = PrunePolicy::new().keep_last(1);
        assert_eq!(store.prune(ThreadQuery::new().limit(0), &policy).unwrap().checkpoints, 0);
        assert_eq!(store.prune(ThreadQuery::new().limit(7), &policy).unwrap().checkpoints, 7);
        assert_eq!(store.prune(ThreadQuery::new(), &policy).unwrap().checkpoints, 53);
    });
}

#[test]
fn branches_forks_and_names_hold_what_they_rest_on() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        (0..30).for_each(|n| say(&thread, &format!("line {n}")));
        let fork = thread.at("~20").unwrap().fork_to("fork").unwrap();
        say(&fork, "of the fork");
        thread.rewind_to(&thread.at("~10").unwrap()).unwrap();
        say(&thread, "on another branch");
        thread.name_branch("second").unwrap();
        let (of_thread, of_fork) = (state(&thread), state(&fork));
        let pruned = store.prune(ThreadQuery::new(), &PrunePolicy::new().keep_last(1)).unwrap();
        assert!(pruned.checkpoints >= 27, "{pruned:?}");
        assert_eq!((state(&thread), state(&fork)), (of_thread, of_fork.clone()));
        assert_eq!(thread.history().unwrap().count(), 4, "two ends, and two at which others left");
        let common = thread.at("@").unwrap().common_ancestor(&fork.at("@").unwrap()).unwrap().unwrap();
        assert_eq!(common.state::<Chat>().unwrap().lines.len(), 10);
        say(&fork, "the fork goes on");
        assert_eq!(state(&fork).lines.len(), of_fork.lines.len() + 1);
        // A copy has the kept checkpoints: those whose parents were pruned begin with their whole state.
        for (of, copy) in [(&thread, thread.copy_to("copy")), (&fork, fork.copy_to("copy of the fork"))] {
            let copy = copy.unwrap();
            let shown = |thread: &Thread| {
                let all = thread.history().unwrap().map(Result::unwrap);
                all.map(|at| (at.id(), at.created_at(), at.state::<Chat>().unwrap())).collect::<Vec<_>>()
            };
            assert_eq!(shown(&copy), shown(of));
            assert_eq!(state(&copy), state(of));
            let texts = of.head().unwrap().unwrap().channels().unwrap();
            assert_eq!(copy.head().unwrap().unwrap().channels().unwrap(), texts, "with their versions");
            say(&copy, "the copy goes on");
            assert_eq!(state(&copy).lines.len(), state(of).lines.len() + 1);
        }
        let other = Store::memory();
        let elsewhere = fork.copy_into(&other, "fork").unwrap();
        assert_eq!(state(&elsewhere), state(&fork));
        assert_eq!(elsewhere.forked_from().unwrap(), None, "a store of its own has all of it");
        assert_eq!(elsewhere.history().unwrap().count(), fork.history().unwrap().count());
    });
}

#[test]
fn an_undo_to_a_pruned_checkpoint_says_so() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        (0..10).for_each(|n| say(&thread, &format!("line {n}")));
        thread.rewind_to(&thread.at("~5").unwrap()).unwrap();
        say(&thread, "after the rewind");
        _ = thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        thread.undo().unwrap().expect("the update is undone");
        assert_eq!(state(&thread).lines.len(), 5, "the checkpoint at which the branch left is kept");
        thread.redo().unwrap().expect("the update is made again");
        let second = store.thread("second").unwrap();
        (0..10).for_each(|n| say(&second, &format!("line {n}")));
        _ = second.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        let head = state(&second);
        assert!(is_pruned(second.undo()), "the checkpoint before is not stored");
        assert_eq!(state(&second), head);
    });
}

#[test]
fn blame_and_pickaxe_go_as_far_as_checkpoints_are_kept() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        (0..20).for_each(|n| say(&thread, &format!("line {n}")));
        thread.update(Chat::update().lines(["needle".to_string()])).unwrap();
        _ = thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        let head = thread.at("@").unwrap();
        let blames: Vec<(String, bool)> =
            head.blames().unwrap().into_iter().map(|(channel, blame)| (channel.to_string(), blame.pruned)).collect();
        assert_eq!(blames, [("lines".to_string(), false), ("title".to_string(), true)]);
        assert_eq!(head.evolution("lines").count(), 1);
        assert_eq!(head.evolution("title").count(), 0, "it was written by a pruned checkpoint");
    });
}

#[test]
fn policies_choose_by_time_and_by_run() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        (0..6).for_each(|n| say(&thread, &format!("line {n}")));
        let at = thread.at("~2").unwrap().created_at();
        let plan = thread.prune_plan(&PrunePolicy::new().older_than(at)).unwrap();
        let older = thread.history().unwrap().filter(|snapshot| snapshot.as_ref().unwrap().created_at() < at).count();
        assert_eq!(plan.points().len() as u64, older as u64);
        let both = PrunePolicy::new().older_than(at).keep_last(5);
        assert!(thread.prune_plan(&both).unwrap().points().len() <= 1, "every condition must apply");
        let runs = PrunePolicy::new().of_runs([RunId::from_bytes([1; 16])]);
        assert_eq!(thread.prune_plan(&runs).unwrap().points().len(), 0, "no run made them");
    });
}

/// Adds a checkpoint that a run made.
fn run(thread: &Thread, run: u8, tasks: Vec<TaskRecord>) -> CheckpointId {
    run_from(Source::Loop, thread, run, tasks)
}

fn run_from(source: Source, thread: &Thread, run: u8, tasks: Vec<TaskRecord>) -> CheckpointId {
    let (store, root) = (thread.store(), Namespace::root());
    let head = store.backend().head_id(thread.id(), &root).unwrap();
    let id = IdSource::from_seed(7).checkpoint(store.now(), 0, head.as_ref());
    let mut new = NewCheckpoint::new(id, head.map(Parent::Local), 0, source, store.now());
    (new.run, new.tasks) = (Some(RunId::from_bytes([run; 16])), tasks);
    let mut batch = Batch::new(thread.id().clone(), root, head);
    batch.checkpoints.push(new);
    store.backend().commit(&batch).unwrap();
    id
}

#[test]
fn interrupted_checkpoints_are_kept_when_a_policy_says_so() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        let asks = TaskRecord::new(TaskId::from_bytes([7; 16]), "asks", TaskKind::Push { index: 0 });
        let (first, waits) = (run(&thread, 1, vec![asks.clone()]), run(&thread, 1, vec![asks.clone()]));
        let value = Encoded::encode(&Value::from(serde_json::json!([{ "value": "which?" }]))).unwrap();
        let write = NewWrite::new(-3, "__interrupt__", WriteValue::One(value.into())).with_mark(Some(WriteMark::Waits));
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(waits));
        let mut writes = NewWrites::new(waits, asks.id, "");
        writes.writes.push(write);
        batch.writes.push(writes);
        store.backend().commit(&batch).unwrap();
        run(&thread, 1, Vec::new());
        let policy = PrunePolicy::new().keep_last(1);
        assert_eq!(thread.prune_plan(&policy).unwrap().points().len(), 2);
        let plan = thread.prune_plan(&policy.keep_interrupted()).unwrap();
        assert_eq!(plan.points().map(|at| at.checkpoint).collect::<Vec<_>>(), [first]);
        assert_eq!(thread.prune_plan(&PrunePolicy::new().keep_interrupted()).unwrap().points().len(), 0);
        assert_eq!(plan.run().unwrap().checkpoints, 1);
    });
}

#[test]
fn a_due_input_is_kept_as_long_as_updates_after_it_are() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        let due = TaskKind::Pull { triggers: vec!["__start__".into()] };
        let takes = TaskRecord::new(TaskId::from_bytes([7; 16]), "__start__", due);
        let input = run_from(Source::Input, &thread, 1, vec![takes]);
        let prune = || {
            thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
            thread.history().unwrap().map(|kept| kept.unwrap().id()).collect::<Vec<_>>()
        };
        // The second pruning finds only pruned checkpoints between the update and the input.
        for _ in 0..2 {
            (0..3).for_each(|n| say(&thread, &format!("line {n}")));
            let head = thread.head().unwrap().unwrap().id();
            assert_eq!(prune(), [head, input]);
        }
        let taken = run(&thread, 1, Vec::new());
        say(&thread, "the end");
        let end = thread.head().unwrap().unwrap().id();
        assert_eq!(thread.prune_plan(&PrunePolicy::new().keep_last(2)).unwrap().points().len(), 2);
        assert_eq!(prune(), [end], "{taken} took the input");
    });
}

#[test]
fn stated_usage_outlives_a_pruning() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        for n in 1..=200 {
            let usage = ModelUsage::new(n, 1).cost_usd(0.001).model("m-1");
            thread.write().append("messages", [Message::ai("yes")]).usage(usage).commit().unwrap();
        }
        let shown = || {
            let sums = store.usage(UsageQuery::new().by_model()).unwrap();
            let counts = thread.info().unwrap().counts.unwrap();
            assert_eq!((sums[0].input_tokens, sums[0].output_tokens), (counts.input_tokens, counts.output_tokens));
            (sums.len(), sums[0].calls, counts)
        };
        let bytes = || store.usage(UsageQuery::new().measured()).unwrap()[0].bytes.unwrap();
        let (before, written) = (shown(), bytes());
        assert_eq!((before.1, before.2.messages, before.2.input_tokens), (200, 200, 20_100));
        assert_eq!(before.2.cost_nano_usd, 200_000_000);
        assert_eq!(thread.prune(&PrunePolicy::new().keep_last(3)).unwrap().checkpoints, 197);
        assert_eq!(shown(), before);
        assert_eq!((written % 200, bytes()), (0, written / 200 * 3), "the bytes are those of kept checkpoints");
        store.rebuild_threads().unwrap();
        assert_eq!(shown(), before);
    });
}

#[test]
fn the_work_of_runs_is_deleted() {
    on_both(|store| {
        let [only, both, forked, other] = ["only", "both", "forked", "other"].map(|id| store.thread(id).unwrap());
        for _ in 0..3 {
            run(&only, 1, Vec::new());
            run(&forked, 1, Vec::new());
            run(&other, 2, Vec::new());
        }
        for of in [1, 1, 2, 1] {
            run(&both, of, Vec::new());
        }
        forked.at("~1").unwrap().fork_to("fork").unwrap();
        let nothing = store.delete_for_runs([]).unwrap();
        assert_eq!(nothing, store.delete_for_runs([RunId::from_bytes([9; 16])]).unwrap(), "an unknown run");
        let deleted = store.delete_for_runs([RunId::from_bytes([1; 16])]).unwrap();
        assert_eq!((deleted.threads, deleted.pruned.checkpoints, deleted.checkpoints_retained), (1, 3, 3));
        assert!(only.head().unwrap().is_none());
        let left = |thread: &Thread| thread.history().unwrap().count();
        assert_eq!([left(&both), left(&forked), left(&other)], [2, 2, 3]);
        assert_eq!(store.delete_for_runs([RunId::from_bytes([1; 16])]).unwrap().pruned.checkpoints, 0);
    });
}

#[test]
fn a_long_list_is_whole_after_a_pruning() {
    on_both(|store| {
        let thread = store.thread("long").unwrap();
        let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
        thread.update(Chat::update().lines(lines.clone())).unwrap();
        (0..70).for_each(|n| say(&thread, &format!("more {n}")));
        let before = state(&thread);
        assert_eq!(thread.prune(&PrunePolicy::new().keep_last(1)).unwrap().checkpoints, 70);
        assert_eq!(state(&thread), before);
        assert_eq!(thread.at("@").unwrap().tail("lines", 3).unwrap().len(), 3);
    });
}

#[test]
fn an_interrupted_pruning_leaves_a_whole_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).unwrap();
    let thread = store.thread("chat").unwrap();
    (0..300).for_each(|n| say(&thread, &format!("line {n}")));
    let before = state(&thread);
    let plan = thread.prune_plan(&PrunePolicy::new().keep_last(1)).unwrap();
    // Another handle sees every state in between.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = Store::open(&path).unwrap();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(state(&other.thread("chat").unwrap()), before);
                assert_eq!(other.check().unwrap().problems, []);
            }
        });
        assert_eq!(plan.run().unwrap().checkpoints, 299);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn a_fork_of_a_pruned_thread_is_copied_with_its_removals() {
    on_both(|store| {
        let trip = store.thread("trip").unwrap();
        trip.append("messages", ["a", "b"].map(|id| Message::human(id).with_id(id))).unwrap();
        (0..3).for_each(|n| _ = trip.set("x", n).unwrap());
        assert_eq!(trip.prune(&PrunePolicy::new().keep_last(1)).unwrap().checkpoints, 3);
        let fork = trip.head().unwrap().unwrap().fork_to("fork").unwrap();
        fork.append("messages", [Message::remove("a"), Message::human("c").with_id("c")]).unwrap();

        let copy = fork.copy_to("copy").unwrap();
        let texts = |thread: &Thread| {
            let head = thread.head().unwrap().unwrap();
            let messages = head.messages("messages", annals::store::ItemRange::All).unwrap();
            messages.iter().map(|message| message.text().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!((texts(&fork), texts(&copy)), (vec!["b".into(), "c".into()], vec!["b".into(), "c".into()]));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_copy_omits_the_writes_that_build_on_a_pruned_list() {
    on_both(|store| {
        let trip = store.thread("trip").unwrap();
        trip.append("messages", [Message::human("a")]).unwrap();
        let base = trip.head().unwrap().unwrap().id();
        let tasks = [1, 2].map(|n| TaskRecord::new(TaskId::from_bytes([n; 16]), "node", TaskKind::Push { index: 0 }));
        let kept = run(&trip, 1, tasks.to_vec());
        let delta = ListDelta::new(ListRef::new(Namespace::root(), base, "messages"));
        let values = [WriteValue::Delta(Box::new(delta)), WriteValue::Null];
        let mut batch = Batch::new(trip.id().clone(), Namespace::root(), Some(kept));
        for (task, value) in tasks.iter().zip(values) {
            batch.writes.push(NewWrites::new(kept, task.id, "").with(vec![NewWrite::new(0, "messages", value)]));
        }
        store.backend().commit(&batch).unwrap();

        let whole = trip.copy_to("whole").unwrap();
        let first = trip.history().unwrap().last().unwrap().unwrap().record().clone();
        let span = PruneSpan::new(first.branch, first.ordinal, first.ordinal);
        assert_eq!(store.backend().prune(trip.id(), &[span]).unwrap().checkpoints, 1);
        let copy = trip.copy_to("copy").unwrap();
        let by = |thread: &Thread| {
            let at = CheckpointRef::new(thread.id().clone(), Namespace::root(), kept);
            store.backend().writes(&at).unwrap().iter().map(|write| write.task).collect::<Vec<_>>()
        };
        assert_eq!((by(&whole).len(), by(&trip).len()), (2, 2));
        assert_eq!(by(&copy), [tasks[1].id]);
        assert_eq!(copy.head().unwrap().unwrap().len("messages").unwrap(), 1);
    });
}

#[test]
fn a_recovered_store_has_the_kept_checkpoints_of_a_pruned_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("store.db"), folder.path().join("recovered.db"));
    let store = Store::open(&path).unwrap();
    let trip = store.thread("trip").unwrap();
    let turns = |thread: &Thread, turns: std::ops::Range<u64>| {
        for n in turns {
            let id = format!("m{}", n % 9);
            trip_turn(thread, n, Message::human(format!("message {n}")).with_id(id));
        }
    };
    turns(&trip, 0..40);
    let fork = trip.at("~20").unwrap().fork_to("fork").unwrap();
    turns(&fork, 40..50);
    trip.rewind_to(&trip.at("~10").unwrap()).unwrap();
    turns(&trip, 50..60);
    trip.name_branch("second").unwrap();
    _ = trip.prune(&PrunePolicy::new().keep_last(3)).unwrap();
    _ = fork.prune(&PrunePolicy::new().keep_last(3)).unwrap();
    turns(&trip, 60..63);
    trip.undo().unwrap();
    let shown = |store: &Store| {
        let threads = ["trip", "fork"].map(|name| store.thread(name).unwrap());
        threads.map(|thread| {
            let all = thread.history().unwrap().map(Result::unwrap);
            let all: Vec<_> = all.map(|at| (at.id(), at.record().metadata.clone(), at.values().unwrap())).collect();
            (thread.head().unwrap().unwrap().id(), all, thread.branches().unwrap().len())
        })
    };
    let before = shown(&store);
    assert!(before[0].1.len() > 8 && before[1].1.len() >= 3);
    drop((store, trip, fork));
    let report = Store::recover(&path, &to).unwrap();
    assert!(report.is_complete(), "{:?}", report.lost);
    let recovered = Store::open(&to).unwrap();
    assert_eq!(shown(&recovered), before);
    assert_eq!(recovered.check().unwrap().problems, []);
    turns(&recovered.thread("trip").unwrap(), 70..72);
    assert_eq!(recovered.check().unwrap().problems, []);
}

fn trip_turn(thread: &Thread, n: u64, message: Message) {
    thread.append("messages", [message]).unwrap();
    let write = thread.write().set("x", n).put("facts", &format!("key {}", n % 5), n);
    write.append_text("notes", format!("turn {n}. ")).commit().unwrap();
}
