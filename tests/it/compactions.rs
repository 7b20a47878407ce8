//! Compactions of lists of messages: the model's view, undo, forks, races, and what is refused, on both backends.

use std::ops::Range;

use annals::base::{CheckpointId, Value};
use annals::history::{FoldedMessages, MessageCompaction, ModelUsage, PrunePolicy};
use annals::message::ToolCall;
use annals::prelude::*;
use annals::store::search::SearchHit;
use annals::store::{ItemRange, SearchOptions, SearchQuery, StoreError};

use super::on_both::on_both;

/// Makes a thread of messages `m0`, `m1` and so on, each with its number as its text.
fn talk(store: &Store, name: &str, count: usize) -> Thread {
    let thread = store.thread(name).unwrap();
    let message = |n: usize| Message::human(format!("message {n:02}")).with_id(format!("m{n}"));
    thread.append("messages", (0..count / 2).map(message)).unwrap();
    thread.append("messages", (count / 2..count).map(message)).unwrap();
    thread
}

fn head(thread: &Thread) -> Snapshot {
    thread.head().unwrap().unwrap()
}

fn compaction(summary: &str, keep_first: usize, keep_last: usize) -> MessageCompaction {
    let summary = Message::system(summary).with_id(summary);
    MessageCompaction::new([summary]).keep_first(keep_first).keep_last(keep_last)
}

/// Returns the ids of the model's view, after a comparison with the view of the decoded list.
fn view(at: &Snapshot) -> String {
    let view = at.model_view("messages").unwrap();
    let messages: Messages = decoded(at);
    let of_list = match at.folded("messages").unwrap() {
        Some(folded) => folded.view(&messages),
        None => messages.to_vec(),
    };
    assert_eq!(of_list, view, "a graph sees what a reader of the log sees");
    view.into_iter().map(|message| message.id.unwrap()).collect::<Vec<_>>().join(" ")
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last, name = "messages:folded")]
    folded: Option<FoldedMessages>,
}

fn decoded(at: &Snapshot) -> Messages {
    let state: Chat = at.state().unwrap();
    assert_eq!(state.folded, at.folded("messages").unwrap(), "both read one format");
    state.messages
}

/// Returns the reason for which a compaction is refused, after a test that it has stored nothing.
fn refused(thread: &Thread, compaction: MessageCompaction) -> Error {
    let before = head(thread).id();
    let error = thread.compact("messages", compaction).unwrap_err();
    assert_eq!(head(thread).id(), before, "nothing was stored");
    error
}

fn field_of(error: &Error) -> &str {
    match error.as_store() {
        Some(StoreError::Invalid { field, .. }) => field,
        _ => panic!("{error}"),
    }
}

#[test]
fn a_model_sees_the_beginning_the_summary_and_the_tail() {
    on_both(|store| {
        let thread = talk(store, "t", 20);
        assert_eq!(head(&thread).folded("messages").unwrap(), None);
        thread.compact("messages", compaction("s1", 2, 3).usage(ModelUsage::new(900, 40))).unwrap();
        assert_eq!(view(&head(&thread)), "m0 m1 s1 m17 m18 m19");
        let usage = head(&thread).record().metadata.clone().unwrap();
        assert!(usage.contains("900"), "{usage}");
        let folded = head(&thread).folded("messages").unwrap().unwrap();
        assert_eq!((folded.positions(), folded.holds(2), folded.holds(17)), (2..17, true, false));
        assert_eq!(head(&thread).messages("messages", ItemRange::All).unwrap().len(), 20, "the list stays");

        thread.append("messages", [Message::ai("more").with_id("m20")]).unwrap();
        assert_eq!(view(&head(&thread)), "m0 m1 s1 m17 m18 m19 m20");
        // An edit of a folded message changes the list and not the view.
        thread.append("messages", [Message::human("edited").with_id("m5")]).unwrap();
        assert_eq!(view(&head(&thread)), "m0 m1 s1 m17 m18 m19 m20");

        // A second one takes the place of the first, and each undo goes back over one.
        thread.compact("messages", compaction("s2", 1, 1)).unwrap();
        assert_eq!(view(&head(&thread)), "m0 s2 m20");
        thread.compact("messages", MessageCompaction::new([]).keep_last(2)).unwrap();
        assert_eq!(view(&head(&thread)), "m19 m20");
        thread.undo().unwrap();
        assert_eq!(view(&head(&thread)), "m0 s2 m20");
        thread.undo().unwrap();
        assert_eq!(view(&head(&thread)), "m0 m1 s1 m17 m18 m19 m20");
        thread.redo().unwrap();
        assert_eq!(view(&head(&thread)), "m0 s2 m20");
        assert_eq!(thread.at("~4").unwrap().model_view("messages").unwrap().len(), 20, "before them");
    });
}

#[test]
fn forks_and_copies_have_the_fold_and_later_ones_do_not_reach_back() {
    on_both(|store| {
        let thread = talk(store, "t", 10);
        thread.compact("messages", compaction("s1", 1, 2)).unwrap();
        let fork = head(&thread).fork_to("fork").unwrap();
        assert_eq!(view(&head(&fork)), "m0 s1 m8 m9");
        fork.append("messages", [Message::ai("x").with_id("x")]).unwrap();
        fork.compact("messages", compaction("s2", 0, 1)).unwrap();
        assert_eq!(view(&head(&fork)), "s2 x");
        assert_eq!(view(&head(&thread)), "m0 s1 m8 m9");

        assert_eq!(view(&head(&fork.copy_to("copy").unwrap())), "s2 x");
        thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        assert_eq!(view(&head(&thread)), "m0 s1 m8 m9");
    });
}

#[test]
fn a_result_of_a_tool_stays_with_its_call() {
    let call = |ids: &[&str]| {
        ids.iter().fold(Message::ai("").with_id(ids.concat()), |message, id| {
            message.with_tool_call(ToolCall::new("look", [("at", "Bern")]).with_id(*id))
        })
    };
    let result = |id: &str| Message::tool("seen", id).with_id(format!("r{id}"));
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let mut messages = vec![Message::human("go").with_id("m0"), call(&["a", "b"]), result("a"), result("b")];
        messages.extend([Message::ai("between").with_id("m4"), Message::human("on").with_id("m5"), call(&["c"])]);
        messages.extend([result("c"), Message::ai("end").with_id("m8")]);
        thread.append("messages", messages).unwrap();
        for (keep_first, keep_last, expected) in
            [(2, 2, "m0 ab ra rb s c rc m8"), (3, 1, "m0 ab ra rb s m8"), (1, 6, "m0 s rb m4"), (0, 0, "s")]
        {
            let done = thread.compact("messages", compaction("s", keep_first, keep_last));
            if keep_last == 6 {
                // The tail would begin with a result: its call stays as well, and nothing is left to fold.
                assert_eq!(field_of(&done.unwrap_err()), "compaction");
                continue;
            }
            done.unwrap();
            assert_eq!(view(&head(&thread)), expected);
        }
    });
}

#[test]
fn a_long_run_of_results_and_a_list_with_gaps_are_read_as_far_as_needed() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let ids: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
        let call = ids.iter().fold(Message::ai("").with_id("call"), |message, id| {
            message.with_tool_call(ToolCall::new("look", [("at", "Bern")]).with_id(id))
        });
        let results = ids.iter().map(|id| Message::tool("seen", id).with_id(format!("r{id}")));
        let before = (0..30).map(|n| Message::human("x").with_id(format!("m{n}")));
        thread.append("messages", before.chain([call]).chain(results)).unwrap();
        thread.append("messages", (0..20).map(|n| Message::remove(format!("m{n}")))).unwrap();
        thread.compact("messages", compaction("s", 1, 1)).unwrap();
        let ids = view(&head(&thread));
        assert!(ids.starts_with("m20 s call rc0 rc1 ") && ids.ends_with(" rc39"), "{ids}");
    });
}

#[test]
fn what_was_summarised_must_be_there() {
    on_both(|store| {
        let thread = talk(store, "t", 10);
        let of = head(&thread);
        thread.append("messages", [Message::ai("late").with_id("late")]).unwrap();
        // What was appended since the summary stays.
        thread.compact("messages", compaction("s1", 1, 2).of(&of)).unwrap();
        assert_eq!(view(&head(&thread)), "m0 s1 m8 m9 late");

        // Another compaction was made since then.
        let error = refused(&thread, compaction("s2", 1, 2).of(&of));
        let is_of =
            matches!(error.as_store(), Some(StoreError::Conflict { expected, .. }) if *expected == Some(of.id()));
        assert!(is_of, "{error}");

        // The state was undone, or is of another branch or thread.
        let ahead = head(&thread);
        thread.rewind_to(&thread.at("~2").unwrap()).unwrap();
        let error = refused(&thread, compaction("s2", 0, 1).of(&ahead));
        assert!(field_of(&error) == "compaction.of" && error.to_string().contains("does not continue"), "{error}");
        thread.append("messages", [Message::ai("branch").with_id("branch")]).unwrap();
        assert_eq!(field_of(&refused(&thread, compaction("s2", 0, 1).of(&ahead))), "compaction.of");
        assert_eq!(view(&head(&thread)), "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 branch", "the branch has no fold");

        // The messages were removed.
        let of = head(&thread);
        thread.append("messages", [Message::remove_all(), Message::human("new").with_id("new")]).unwrap();
        let error = refused(&thread, compaction("s2", 1, 2).of(&of));
        assert!(field_of(&error) == "compaction.of" && error.to_string().contains("removed"), "{error}");
    });
}

#[test]
fn what_cannot_be_folded_is_refused_by_name() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let error = thread.compact("messages", compaction("s", 0, 0)).unwrap_err();
        assert_eq!(field_of(&error), "compaction.channel");
        let thread = talk(store, "t", 6);
        let messages: Messages = head(&thread).messages("messages", ItemRange::All).unwrap().into_iter().collect();
        let backwards = FoldedMessages::new(Range { start: 2, end: 0 }, []);
        assert_eq!(backwards.view(&messages).len(), 6, "a range that ends before it begins");
        for (keep_first, keep_last) in [(6, 0), (0, 6), (3, 3), (5, 4), (usize::MAX, usize::MAX)] {
            let error = refused(&thread, compaction("s", keep_first, keep_last));
            assert!(error.to_string().contains("has 6 messages"), "{error}");
        }
        thread.append("notes", ["a", "b"]).unwrap();
        let error = thread.compact("notes", compaction("s", 0, 1)).unwrap_err();
        assert_eq!(field_of(&error), "compaction.channel");
        assert!(thread.compact("nothing", compaction("s", 0, 0)).is_err());
    });
}

#[test]
fn messages_that_were_removed_leave_no_summary() {
    on_both(|store| {
        let thread = talk(store, "t", 6);
        thread.compact("messages", compaction("s", 1, 1)).unwrap();
        thread.append("messages", (2..5).map(|n| Message::remove(format!("m{n}")))).unwrap();
        assert_eq!(view(&head(&thread)), "m0 s m5", "one is left");
        thread.append("messages", [Message::remove("m1")]).unwrap();
        assert_eq!(view(&head(&thread)), "m0 m5");
        thread.append("messages", [Message::remove_all(), Message::human("n").with_id("n")]).unwrap();
        assert_eq!(view(&head(&thread)), "n");
        // Positions are used once: the fold does not reach new messages.
        thread.append("messages", (0..6).map(|n| Message::human("n").with_id(format!("n{n}")))).unwrap();
        assert_eq!(view(&head(&thread)), "n n0 n1 n2 n3 n4 n5");
    });
}

#[test]
fn compactions_and_appends_of_several_threads_of_a_program_do_not_lose_each_other() {
    on_both(|store| {
        let thread = talk(store, "t", 40);
        let of = head(&thread);
        let made: Vec<Result<CheckpointId, String>> = std::thread::scope(|scope| {
            let compacts = (0..4).map(|n| {
                let (thread, of) = (&thread, &of);
                scope.spawn(move || {
                    let done = thread.compact("messages", compaction(&format!("s{n}"), 1, 4).of(of));
                    done.map_err(|error| if error.is_conflict() { "conflict".into() } else { error.to_string() })
                })
            });
            let compacts: Vec<_> = compacts.collect();
            for n in 0..20 {
                thread.append("messages", [Message::ai("x").with_id(format!("x{n}"))]).unwrap();
            }
            compacts.into_iter().map(|compact| compact.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost), (1, vec![Err("conflict".to_owned()); 3]), "one summary, and each loser is told");
        let ids = view(&head(&thread));
        assert!(ids.starts_with("m0 s") && ids.contains(" m36 m37 m38 m39 ") && ids.ends_with(" x19"), "{ids}");
        assert_eq!(head(&thread).len("messages").unwrap(), 60);
    });
}

#[test]
fn a_folded_message_is_found_once_and_marked() {
    on_both(|store| {
        let thread = talk(store, "t", 10);
        let other = talk(store, "other", 10);
        thread.compact("messages", compaction("about message 03", 1, 2)).unwrap();
        for is_indexed in [false, true] {
            if is_indexed && store.enable_search(SearchOptions::new()).is_err() {
                continue;
            }
            let hits = |text: &str| store.search(SearchQuery::new(text).thread("t")).unwrap().hits;
            let places = |hits: &[SearchHit]| -> Vec<(String, bool, bool)> {
                hits.iter().map(|hit| (hit.channel.to_string(), hit.on_head, hit.folded)).collect()
            };
            let expected = [("messages:folded".to_owned(), true, false), ("messages".to_owned(), true, true)];
            assert_eq!(places(&hits("message 03")), expected, "the summary, and the message");
            assert_eq!(places(&hits("message 08")), [("messages".to_owned(), true, false)], "of the tail");
            assert_eq!(places(&hits("message 00")), [("messages".to_owned(), true, false)], "of the beginning");
            let elsewhere = store.search(SearchQuery::new("message 03").thread("other")).unwrap().hits;
            assert_eq!((elsewhere.len(), elsewhere[0].folded), (1, false));
        }
        thread.undo().unwrap();
        let hits = store.search(SearchQuery::new("message 03").thread("t").channel("messages")).unwrap().hits;
        assert_eq!((hits.len(), hits[0].folded), (1, false));
        assert_eq!(head(&other).folded("messages").unwrap(), None);
    });
}

#[test]
fn a_channel_of_that_name_with_another_value_is_damage_and_not_a_fold() {
    on_both(|store| {
        let thread = talk(store, "t", 4);
        thread.set("messages:folded", "something else").unwrap();
        let error = head(&thread).model_view("messages").unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { place, .. } if place == "channel messages:folded"), "{error}");
        thread.set("messages:folded", Value::Null).unwrap();
        assert_eq!(view(&head(&thread)), "m0 m1 m2 m3");
    });
}
