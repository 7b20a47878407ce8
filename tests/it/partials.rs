//! Messages that are persisted while they are streamed, without a graph.

use std::path::PathBuf;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals::base::{Clock, Timestamp, Value};
use annals::history::{MessageWriter, ModelUsage, PartialMessage, StatusKind, UsageQuery};
use annals::prelude::*;
use annals::store::log::LogExt;
use annals::store::{ItemRange, OpenOptions, SearchQuery, StoreError, ThreadQuery};

use super::on_both::on_both;

/// Persists each chunk.
const ALWAYS: Duration = Duration::ZERO;
/// The folder in which a child streams until it is killed.
const FOLDER: &str = "ANNALS_PARTIAL_FOLDER";

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    title: Option<String>,
}

fn prompt(store: &Store) -> Thread {
    let thread = store.thread("chat").unwrap();
    thread.append("messages", [Message::human("hi")]).unwrap();
    thread
}

fn texts(thread: &Thread) -> Vec<String> {
    let messages = thread.head().unwrap().unwrap().messages("messages", ItemRange::All).unwrap();
    messages.iter().map(|message| message.text().into_owned()).collect()
}

fn partial_text(thread: &Thread) -> Option<String> {
    // A chunk is handed to the background writer.
    thread.store().backend().flush();
    thread.partial().unwrap().map(|partial| partial.content.message.text().into_owned())
}

/// Pushes a chunk, and waits until it is persisted, for some minutes at most.
fn push(writer: &mut MessageWriter, thread: &Thread, text: &str, whole: &str) {
    writer.push(text);
    for _ in 0..200_000 {
        if partial_text(thread).as_deref() == Some(whole) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
        // A chunk that came while a commit was pending goes with the next one.
        writer.push("");
    }
    panic!("{whole:?} is not persisted: {:?}", partial_text(thread));
}

#[test]
fn a_streamed_message_is_persisted_on_the_way_and_appended_once() {
    on_both(|store| {
        let thread = prompt(store);
        let mut writer = thread.message_writer("messages", ALWAYS);
        push(&mut writer, &thread, "Good ", "Good ");
        push(&mut writer, &thread, "day", "Good day");
        assert_eq!(texts(&thread), ["hi"], "the message is not part of the state before its end");
        let partial = thread.partial().unwrap().unwrap();
        assert!(partial.content.channel == "messages" && partial.content.started <= partial.content.updated);
        let checkpoints = thread.history().unwrap().count();
        let message = writer.finish().unwrap();
        assert_eq!((message.text().as_ref(), message.id.clone()), ("Good day", partial.content.message.id.clone()));
        assert_eq!((texts(&thread), partial_text(&thread)), (vec!["hi".to_owned(), "Good day".into()], None));
        assert_eq!(thread.history().unwrap().count(), checkpoints + 1, "one commit appends the message");
        let before = thread.at("~1").unwrap();
        let left = store.backend().writes(before.point()).unwrap();
        assert!(
            left.iter().all(|write| write.value == annals::store::batch::WriteValue::Null),
            "the partial is cleared"
        );
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn an_abandoned_message_is_kept_with_a_mark_or_discarded() {
    on_both(|store| {
        let thread = prompt(store);
        let cut = |text: &str| {
            let error = thread.stream_message("messages", Duration::from_secs(3_600), |out| {
                out.push(text);
                Err::<(), Error>(StoreError::Invalid { field: "model", reason: "the line is dead".into() }.into())
            });
            assert!(error.unwrap_err().to_string().contains("the line is dead"));
            thread.partial().unwrap().expect("the drop of the writer persists the message")
        };
        cut("half").discard().unwrap();
        assert_eq!((partial_text(&thread), texts(&thread).len()), (None, 1));
        let late = cut("an answer");
        cut("another answer").keep().unwrap();
        assert_eq!(texts(&thread), ["hi", "an answer", "another answer"], "a new message keeps the one before it");
        let head = thread.head().unwrap().unwrap();
        let kept = head.messages("messages", ItemRange::Tail(1)).unwrap().remove(0);
        assert_eq!((kept.text().as_ref(), &kept.response_metadata["aborted"]), ("another answer", &Value::Bool(true)));
        assert_eq!(partial_text(&thread), None);
        assert!(late.clone().keep().unwrap_err().is_conflict() && late.discard().unwrap_err().is_conflict());
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_partial_message_follows_a_head_that_another_writer_moves() {
    on_both(|store| {
        let thread = prompt(store);
        let mut writer = thread.message_writer("messages", ALWAYS);
        push(&mut writer, &thread, "one", "one");
        thread.set("title", "t").unwrap();
        assert_eq!(partial_text(&thread).as_deref(), Some("one"), "another write takes it along");
        assert_eq!(partials_stored(&thread), 1);
        push(&mut writer, &thread, " two", "one two");
        thread.append("messages", [Message::human("wait")]).unwrap();
        assert_eq!(texts(&thread), ["hi", "one two", "wait"], "an append keeps it");
        assert_eq!(writer.finish().unwrap().text(), "one two");
        assert_eq!(texts(&thread), ["hi", "one two", "wait"], "the whole message takes its place");
        let whole = thread.head().unwrap().unwrap().messages("messages", ItemRange::All).unwrap().remove(1);
        assert!(whole.response_metadata.is_empty(), "it was not cut off");
        let mut writer = thread.message_writer("messages", ALWAYS);
        push(&mut writer, &thread, "three", "three");
        thread.set("title", "u").unwrap();
        drop(writer);
        assert_eq!(partial_text(&thread).as_deref(), Some("three"), "the drop moves it to the new head");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

/// Returns the number of checkpoints of a thread at which a partial message is stored.
fn partials_stored(thread: &Thread) -> usize {
    thread.store().backend().flush();
    let holds = |at: &Snapshot| {
        let writes = thread.store().backend().writes(at.point()).unwrap();
        writes.iter().any(|write| PartialMessage::of_write(write.index, &write.value).unwrap().is_some())
    };
    thread.history().unwrap().filter(|at| holds(at.as_ref().unwrap())).count()
}

#[test]
fn a_partial_message_is_cleared_at_every_checkpoint_that_held_it() {
    on_both(|store| {
        let thread = prompt(store);
        let mut writer = thread.message_writer("messages", ALWAYS);
        for (n, whole) in ["one", "one two", "one two three"].into_iter().enumerate() {
            push(&mut writer, &thread, if n == 0 { "one" } else { &whole[whole.rfind(' ').unwrap()..] }, whole);
            thread.set("title", whole).unwrap();
            assert!(partials_stored(&thread) <= 2, "it moves along with the head");
        }
        writer.finish().unwrap();
        assert_eq!(partials_stored(&thread), 0);
        assert_eq!(texts(&thread), ["hi", "one two three"]);
        let mut writer = thread.message_writer("messages", ALWAYS);
        push(&mut writer, &thread, "four", "four");
        thread.set("title", "t").unwrap();
        drop(writer);
        assert_eq!((partial_text(&thread).as_deref(), partials_stored(&thread)), (Some("four"), 1));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_typed_thread_streams_by_the_rules_of_its_state() {
    on_both(|store| {
        let chat = store.thread("chat").unwrap().with_state::<Chat>();
        // The thread has no checkpoint yet.
        let mut writer = chat.message_writer("messages", ALWAYS);
        push(&mut writer, chat.thread(), "Wel", "Wel");
        let id = writer.id().to_owned();
        chat.thread().partial().unwrap().unwrap().keep().unwrap();
        writer.push("come");
        writer.finish().unwrap();
        let state = chat.state().unwrap();
        assert_eq!(state.messages.len(), 1, "the whole message replaces the one that was kept");
        let message = &state.messages[0];
        assert_eq!((message.id.as_deref(), message.text().as_ref()), (Some(&*id), "Welcome"));
        assert!(message.response_metadata.is_empty());
        let answer = chat.stream_message("messages", ALWAYS, |out| {
            out.push_chunk(Message::ai("by").with_id("p-1"))?;
            out.push("e");
            Ok::<_, Error>(())
        });
        assert_eq!(answer.unwrap().id.as_deref(), Some("p-1"), "the id is that of the first chunk");
        assert_eq!(chat.state().unwrap().messages.len(), 2);
        let refused = chat.stream_message("title", ALWAYS, |out| {
            out.push("x");
            Ok::<_, Error>(())
        });
        assert!(refused.unwrap_err().to_string().contains("title"));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

/// Streams the beginning of a message, whose writer is dropped then.
fn cut_off(thread: &Thread, text: &str) {
    let mut writer = thread.message_writer("messages", Duration::from_secs(3_600));
    writer.push(text);
    drop(writer);
    assert_eq!(partial_text(thread).as_deref(), Some(text));
}

#[test]
fn the_next_append_keeps_half_an_answer() {
    on_both(|store| {
        let thread = prompt(store);
        cut_off(&thread, "The Gasthof ");
        thread.append("messages", [Message::human("go on")]).unwrap();
        let messages = thread.head().unwrap().unwrap().messages("messages", ItemRange::All).unwrap();
        assert_eq!(texts(&thread), ["hi", "The Gasthof ", "go on"]);
        assert_eq!(messages[1].response_metadata["aborted"], Value::Bool(true));
        assert_eq!((partial_text(&thread), partials_stored(&thread)), (None, 0));

        cut_off(&thread, "zum Bären");
        thread.set("title", "t").unwrap();
        thread.put("files", "a.txt", "one").unwrap();
        assert_eq!(partial_text(&thread).as_deref(), Some("zum Bären"), "other writes take it along");
        assert_eq!(partials_stored(&thread), 1, "the head alone has it");
        let chat = thread.with_state::<Chat>();
        chat.update(Chat::update().title("u".to_owned())).unwrap();
        assert_eq!(partial_text(&thread).as_deref(), Some("zum Bären"));
        chat.update(Chat::update().messages([Message::human("which?")])).unwrap();
        assert_eq!(texts(&thread)[3..], ["zum Bären", "which?"], "a typed append keeps it as well");
        assert_eq!((partial_text(&thread), partials_stored(&thread)), (None, 0));

        cut_off(&thread, "I do");
        thread.partial().unwrap().unwrap().discard().unwrap();
        thread.append("messages", [Message::human("well?")]).unwrap();
        assert_eq!(texts(&thread)[5..], ["well?"], "a discarded one is not kept");

        cut_off(&thread, "too long");
        let summary = [Message::remove_all(), Message::system("summary")];
        thread.append("messages", summary).unwrap();
        assert_eq!(texts(&thread), ["summary", "too long"], "a compaction does not delete it");
        cut_off(&thread, "again");
        chat.update(Chat::update().messages([Message::remove_all(), Message::system("shorter")])).unwrap();
        assert_eq!(texts(&thread), ["shorter", "again"]);

        cut_off(&thread, "on a branch");
        let head = thread.head().unwrap().unwrap().id();
        thread.set("title", "v").unwrap();
        let late = thread.write().append("messages", [Message::human("late")]).on_head(Some(head));
        let branch = late.on_conflict(annals::history::OnConflict::Branch).commit().unwrap();
        let branch = thread.at(branch).unwrap().messages("messages", ItemRange::All).unwrap();
        assert_eq!(branch.last().unwrap().text(), "late");
        assert_eq!(partial_text(&thread).as_deref(), Some("on a branch"), "the head has it");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn half_an_answer_is_listed_and_found() {
    on_both(|store| {
        let thread = prompt(store);
        store.thread("other").unwrap().append("messages", [Message::human("The Gasthof")]).unwrap();
        let partial = || ThreadQuery::new().partial();
        assert!(store.threads_with(partial()).unwrap().is_empty());
        cut_off(&thread, "The Gasthof zum  Bären");
        for is_followed in [false, true] {
            if is_followed {
                store.rebuild_threads().unwrap();
            }
            let found = store.threads_with(partial()).unwrap();
            let [info] = &found[..] else { panic!("one thread: {found:?}") };
            let mark = info.partial.as_ref().unwrap();
            assert_eq!((info.id().as_str(), info.status), ("chat", StatusKind::Done));
            assert_eq!((mark.channel.as_str(), mark.words), ("messages", 4));
            assert_eq!(mark.to_string(), "half an answer, 4 words");
        }
        assert_eq!(thread.info().unwrap().partial.as_ref().map(|mark| mark.words), Some(4));
        let at = thread.head().unwrap().unwrap().partials().unwrap();
        assert_eq!((at.len(), at[0].message.text().as_ref()), (1, "The Gasthof zum  Bären"));

        let page = store.search(SearchQuery::new("gasthof")).unwrap();
        let shown: Vec<_> = page.hits.iter().map(|hit| (hit.point.thread.as_str(), hit.partial)).collect();
        assert_eq!(shown, [("chat", true), ("other", false)]);
        assert_eq!(page.hits[0].snippet.marked("[", "]"), "The [Gasthof] zum  Bären");
        let first = store.search(SearchQuery::new("gasthof").limit(1)).unwrap();
        assert!(first.hits.len() == 1 && first.hits[0].partial);
        let next = store.search(SearchQuery::new("gasthof").limit(1).after(first.next.unwrap())).unwrap();
        assert_eq!((next.hits.len(), next.hits[0].partial, next.next), (1, false, None));
        let of = |query: SearchQuery| store.search(query).unwrap().hits.len();
        assert_eq!(of(SearchQuery::new("bären").thread("chat").role("ai").on_head()), 1);
        assert_eq!(of(SearchQuery::new("bären").thread("other")), 0);
        assert_eq!(of(SearchQuery::new("bären").role("human")), 0);

        thread.append("messages", [Message::human("go on")]).unwrap();
        let found = store.search(SearchQuery::new("bären")).unwrap().hits;
        assert!(found.len() == 1 && !found[0].partial, "it is a message now");
        assert!(store.threads_with(partial()).unwrap().is_empty());
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_streamed_message_has_its_usage_and_its_actor_in_one_commit() {
    on_both(|store| {
        let thread = prompt(store).by("desk");
        let stream = |out: &mut MessageWriter| {
            out.push("Good day");
            out.usage(ModelUsage::new(812, 64).cost_usd(0.004).model("m-1"));
            Ok::<_, Error>(())
        };
        let before = thread.history().unwrap().count();
        thread.stream_message("messages", ALWAYS, stream).unwrap();
        thread.with_state::<Chat>().stream_message("messages", ALWAYS, stream).unwrap();
        assert_eq!(thread.history().unwrap().count(), before + 2);
        let total = store.usage(UsageQuery::new().by_model()).unwrap().remove(0);
        assert_eq!((total.model.as_deref(), total.calls, total.input_tokens), (Some("m-1"), 2, 1_624));
        let operations: Vec<_> = thread.operations().unwrap().map(|operation| operation.unwrap()).collect();
        let actors: Vec<_> = operations.iter().map(|operation| operation.actor()).collect();
        assert_eq!(actors, [Some("desk"), Some("desk"), None]);
        let head = thread.head().unwrap().unwrap();
        assert_eq!(head.point().to_string(), format!("chat@{}", head.id()));
        assert_eq!(store.point(head.point().to_string()).unwrap(), head, "it is a point");
        let odd = store.thread("me@home~1").unwrap();
        odd.set("n", 1).unwrap();
        let odd = odd.head().unwrap().unwrap();
        assert_eq!(store.point(odd.point().to_string()).unwrap(), odd);
    });
}

/// A clock that the test sets, in milliseconds.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicU64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) as i64 * 1_000)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn a_message_is_persisted_once_an_interval() {
    let folder = tempfile::tempdir().unwrap();
    let hands = Hands::default();
    let store = Store::open_with(folder.path().join("s.db"), OpenOptions::new().clock(hands.clone())).unwrap();
    let thread = prompt(&store);
    let mut writer = thread.message_writer("messages", Duration::from_millis(500));
    let mut shown = Vec::new();
    for ms in (100..=1_200).step_by(100) {
        hands.0.store(ms, Ordering::SeqCst);
        writer.push(".");
        store.backend().flush();
        // The commit that is pending is settled by a commit of this thread.
        store.thread("other").unwrap().set("n", i64::try_from(ms).unwrap()).unwrap();
        let partial = thread.partial().unwrap();
        shown.push(
            partial
                .map_or((0, 0), |partial| (partial.content.message.text().len(), partial.content.updated.as_micros())),
        );
    }
    shown.dedup();
    assert_eq!(shown, [(0, 0), (5, 500_000), (10, 1_000_000)]);
    assert_eq!(writer.finish().unwrap().text().len(), 12);
}

#[test]
fn the_file_holds_one_copy_of_a_message_that_is_persisted_often() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("s.db")).unwrap();
    let thread = prompt(&store);
    let mut writer = thread.message_writer("messages", ALWAYS);
    let chunk = "0123456789abcdef".repeat(16);
    let mut whole = String::new();
    for _ in 0..100 {
        whole.push_str(&chunk);
        push(&mut writer, &thread, &chunk, &whole);
    }
    writer.finish().unwrap();
    let copy = folder.path().join("copy.db");
    store.backup(&copy).unwrap();
    let bytes = std::fs::metadata(&copy).unwrap().len();
    assert!(bytes < 400_000, "100 versions of up to 25,600 bytes take {bytes} bytes");
    assert!(store.check().unwrap().problems.is_empty());
}

/// The child of the test below: it streams until it is killed. On its own it streams a message to its end.
#[test]
fn a_message_that_nobody_interrupts_ends() {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(folder.as_deref().unwrap_or(place.path()).join("s.db")).unwrap();
    let thread = prompt(&store);
    let mut writer = thread.message_writer("messages", ALWAYS);
    push(&mut writer, &thread, "all that ", "all that ");
    push(&mut writer, &thread, "was shown", "all that was shown");
    if folder.is_some() {
        std::process::abort();
    }
    assert_eq!(writer.finish().unwrap().text(), "all that was shown");
}

#[test]
fn a_persisted_message_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let child = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "partials::a_message_that_nobody_interrupts_ends", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(!child.unwrap().success(), "the child is killed");
    let store = Store::open(folder.path().join("s.db")).unwrap();
    let thread = store.thread("chat").unwrap();
    assert_eq!((texts(&thread), partial_text(&thread).as_deref()), (vec!["hi".into()], Some("all that was shown")));
    thread.partial().unwrap().unwrap().keep().unwrap();
    assert_eq!(texts(&thread), ["hi", "all that was shown"]);
    assert!(store.check().unwrap().problems.is_empty());
}
