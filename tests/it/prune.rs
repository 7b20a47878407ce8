//! Pruning threads by policies, on both backends.

use annals::base::RunId;
use annals::history::{PrunePolicy, ThreadQuery};
use annals::prelude::*;
use annals::store::StoreError;

use crate::both::on_both;

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
        assert_eq!((plan.checkpoints(), plan.points().count()), (90, 90));
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
        assert!(is_pruned(thread.copy_to("copy")));
        assert!(store.thread("copy").unwrap().head().unwrap().is_none());
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
        assert_eq!(plan.checkpoints(), older as u64);
        let both = PrunePolicy::new().older_than(at).keep_last(5);
        assert!(thread.prune_plan(&both).unwrap().checkpoints() <= 1, "every condition must apply");
        let runs = PrunePolicy::new().of_runs([RunId::from_bytes([1; 16])]);
        assert_eq!(thread.prune_plan(&runs).unwrap().checkpoints(), 0, "no run made them");
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
