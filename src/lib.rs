//! Embedded, append-only state for agents and workflows.
//!
//! One SQLite file holds the history of any number of threads as a log of checkpoints. A checkpoint is never changed: a
//! past state can be read, compared, continued and forked at any time, and the cost of a write follows its changes, not
//! the length of the thread. The graph executor `annals-graph` is a client of this crate; a program with a loop of its
//! own needs this crate alone.
//!
//! # The primary types
//!
//! | type | meaning |
//! | --- | --- |
//! | [`Store`](store::Store) | one file; cheap to clone, shared by threads and processes |
//! | [`Thread`](history::Thread) | the history of one conversation or workflow: a tree of checkpoints with a head |
//! | [`State`](trait@state::State) | a struct whose fields are channels, each with a rule that merges its writes |
//! | [`StateThread`](history::StateThread) | a thread seen through a state: typed reads and writes |
//! | [`Snapshot`](history::Snapshot) | the state at one checkpoint; its values are read on demand |
//! | [`DynSchema`](state::DynSchema) | a state whose channels are chosen at run time |
//! | [`Message`](message::Message) | one message of a chat: plain data with LangChain's fields and dictionary format |
//! | [`Kv`](store::Kv) | the key-value memory, shared by the threads of a store |
//! | [`Value`](base::Value) | a dynamic value: JSON with bytes and large integers |
//! | [`Error`] | any error; its message states the situation, its [`kind`](Error::kind) how to react |
//!
//! Most programs need no more than `use annals::prelude::*`.
//!
//! # Limitations
//!
//! - *No graphs*: nodes, interrupts and streams are in `annals-graph`, which re-exports this crate.
//! - *No change of history.* A stored checkpoint is never edited; a thread is deleted as a whole
//!   ([`Store::delete_thread`](store::Store::delete_thread)), and checkpoints can be pruned
//!   ([`Thread::prune`](history::Thread::prune)). Rows that are replaced or deleted: the special writes of a task (its
//!   error, interrupt, resume values and attempt), the timers of sleeping tasks, the key-value memory, and the cache.
//! - *No server*, no network, no model client. The library opens the files it is told to open and nothing else.
//! - *No printing*, no environment variables, no home folder. Time comes from a [`Clock`](base::Clock) that can be set.
//! - *No search by meaning in messages*: [`store::Store::search`] finds words. The key-value memory has it
//!   ([`store::Kv::with_index`]).
//!
//! # Recipes
//!
//! [A state and its writes](#a-state-and-its-writes) ·
//! [A loop with a model](#a-loop-with-a-model) ·
//! [Write only on the expected head](#write-only-on-the-expected-head) ·
//! [Go back in time and fork](#go-back-in-time-and-fork) ·
//! [Compare two states](#compare-two-states) ·
//! [Name a point, and ask who wrote a value](#name-a-point-and-ask-who-wrote-a-value) ·
//! [The tail of a long conversation](#the-tail-of-a-long-conversation) ·
//! [Compact a long conversation](#compact-a-long-conversation) ·
//! [Prune a long history](#prune-a-long-history) ·
//! [A schema made at run time](#a-schema-made-at-run-time) ·
//! [A type that has changed](#a-type-that-has-changed) ·
//! [Remember across threads](#remember-across-threads) ·
//! [Import and export messages](#import-and-export-messages) ·
//! [Inspect a file](#inspect-a-file) ·
//! [Back up, check and recover a file](#back-up-check-and-recover-a-file) ·
//! [Encryption at rest](#encryption-at-rest) ·
//! [Several processes](#several-processes) ·
//! [Tables of the program beside it](#tables-of-the-program-beside-it)
//!
//! ## A state and its writes
//!
//! Each field is a channel. A change names the fields that it writes; the rules of the channels merge it into the
//! state, in one commit that is on the disk when `update` returns.
//!
//! ```
//! use annals::prelude::*;
//!
//! fn add(old: i64, new: i64) -> i64 {
//!     old + new
//! }
//!
//! #[derive(State, Clone, Default)]
//! struct Trip {
//!     city: String, // the last value
//!     #[channel(append)]
//!     log: List<String>,
//!     #[channel(reduce = add)]
//!     cost: i64,
//! }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("trips.db");
//! let store = Store::open(&path)?;
//! let trip = store.thread("rome-2025")?.with_state::<Trip>();
//! trip.update(Trip::update().city("Rome").cost(90).log(["booked".to_string()]))?;
//! trip.update(Trip::update().cost(35).log(["insured".to_string()]))?;
//!
//! let state = trip.state()?;
//! assert_eq!((state.city.as_str(), state.cost), ("Rome", 125));
//! assert_eq!(state.log.to_vec(), ["booked", "insured"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## A loop with a model
//!
//! Messages are merged by id: a known id replaces its message, an unknown one is appended. An append to a conversation
//! of 10,000 messages writes one message.
//!
//! ```
//! use annals::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! fn model(messages: &Messages) -> Message {
//!     Message::ai(format!("message number {}", messages.len() + 1))
//! }
//!
//! # fn main() -> Result<()> {
//! let chat = Store::memory().thread("alice")?.with_state::<Chat>();
//! for line in ["hi", "go on"] {
//!     chat.update(Chat::update().messages([Message::human(line)]))?;
//!     let answer = model(&chat.state()?.messages);
//!     chat.update(Chat::update().messages([answer]))?;
//! }
//! let state = chat.state()?;
//! let last = state.messages.last().expect("there are four");
//! assert_eq!((state.messages.len(), &*last.text()), (4, "message number 4"));
//!
//! let id = last.id.clone().expect("the update gave it one");
//! chat.update(Chat::update().messages([Message::ai("edited").with_id(id)]))?;
//! assert_eq!(chat.state()?.messages.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! ## A value that grows
//!
//! A channel with a reducer stores its whole value at every change, because a reducer is any function: a list of 3,000
//! items writes 206 kB for each item that is added. `append`, `messages`, `map` and `text` store what changes. A thread
//! that began with a reducer goes on with one of them without code.
//!
//! ```
//! use annals::prelude::*;
//! use annals::state::{KeyMap, Text};
//!
//! #[derive(State, Clone, Default)]
//! struct Agent {
//!     #[channel(map)]
//!     files: KeyMap<String>,
//!     #[channel(text)]
//!     log: Text,
//! }
//!
//! # fn main() -> Result<()> {
//! let thread = Store::memory().thread("agent")?;
//! thread.update(Agent::update().files([("a.rs", "fn a() {}".to_string())]).log("wrote a.rs\n"))?;
//! thread.update(Agent::update().files([("b.rs", "fn b() {}".to_string())]).log("wrote b.rs\n"))?;
//! thread.update(Agent::update().remove_files(["a.rs"]).log("removed a.rs\n"))?;
//!
//! let head = thread.at("@")?;
//! assert_eq!(head.entry("files", "b.rs")?, Some("fn b() {}".into()));
//! assert_eq!(head.text_tail("log", 13)?, "removed a.rs\n");
//! assert_eq!(head.blame("files").entry("b.rs")?.expect("it was written").step, 1);
//! let changes = annals::history::diff(&thread.at("~1")?, &head)?;
//! assert_eq!(changes.to_string(), "files: 1 removed\n  - \"a.rs\": \"fn a() {}\"\nlog: 13 bytes appended\n  + \"removed a.rs\\n\"\n");
//! # Ok(())
//! # }
//! ```
//!
//! ## Write only on the expected head
//!
//! [`update`](history::StateThread::update) applies a change to whatever the head is. With
//! [`update_at`](history::StateThread::update_at) the caller names the checkpoint that it has seen, and another writer
//! makes it a conflict.
//!
//! ```
//! use annals::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Seat {
//!     taken_by: Option<String>,
//! }
//!
//! # fn main() -> Result<()> {
//! let seat = Store::memory().thread("seat-12a")?.with_state::<Seat>();
//! let seen = seat.update(Seat::update())?;
//! seat.update_at(Some(seen), Seat::update().taken_by("ann".to_string()))?;
//! let late = seat.update_at(Some(seen), Seat::update().taken_by("bob".to_string())).unwrap_err();
//! assert!(late.is_conflict());
//! assert_eq!(seat.state()?.taken_by.as_deref(), Some("ann"));
//! # Ok(())
//! # }
//! ```
//!
//! ## Go back in time and fork
//!
//! A fork begins with the state of a checkpoint and costs one row, whatever the length of the thread.
//!
//! ```
//! use annals::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Plan {
//!     city: String,
//! }
//!
//! # fn main() -> Result<()> {
//! let thread = Store::memory().thread("trip")?;
//! let first = thread.update(Plan::update().city("Rome"))?;
//! thread.update(Plan::update().city("Oslo"))?;
//!
//! let before = thread.at(first)?; // or `thread.at("~1")?`, one before the head
//! assert_eq!(before.state::<Plan>()?.city, "Rome");
//! let fork = before.fork_to("trip-2")?;
//! fork.update(Plan::update().city("Bern"))?;
//!
//! let cities = |thread: &Thread| -> Result<Vec<String>> {
//!     thread.history()?.map(|snapshot| Ok(snapshot?.state::<Plan>()?.city)).collect()
//! };
//! assert_eq!(cities(&thread)?, ["Oslo", "Rome"]);
//! assert_eq!(cities(&fork)?, ["Bern", "Rome"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Compare two states
//!
//! A comparison needs neither the program that wrote the thread nor its types. It reads what either checkpoint has
//! written since their last common ancestor.
//!
//! ```
//! use annals::history::{ChannelDiff, diff};
//! use annals::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let offer = Store::memory().thread("offer")?.with_schema(DynSchema::new().last("price").last("name").build());
//! offer.update(DynUpdate::from([("price", Value::from(10)), ("name", "boat".into())]))?;
//! offer.update(DynUpdate::from([("price", 15)]))?;
//!
//! let thread = offer.thread();
//! let changes = diff(&thread.at("~1")?, &thread.at("@")?)?;
//! assert_eq!(changes.unchanged, 1);
//! assert!(matches!(&changes.channels[..], [ChannelDiff::Changed { channel, before, after }]
//!     if &**channel == "price" && *before == 10 && *after == 15));
//! # Ok(())
//! # }
//! ```
//!
//! ## Name a point, and ask who wrote a value
//!
//! A point is a text, as a person would type it. Blame, the values over time and the search for a text read the log,
//! not one state after another.
//!
//! ```
//! use annals::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     #[channel(messages)]
//!     messages: Messages,
//!     title: Option<String>,
//! }
//!
//! # fn main() -> Result<()> {
//! # let store = Store::memory();
//! let chat = store.thread("trip")?;
//! chat.update(Chat::update().messages([Message::human("A hotel in Bern").with_id("1")]).title("Bern".to_string()))?;
//! chat.update(Chat::update().messages([Message::ai("Try the Gasthof").with_id("2")]))?;
//!
//! assert_eq!(store.point("trip~1")?.step(), 0);
//! let head = store.point("trip@{0s}")?;
//! assert_eq!(head.blame("messages").item("2")?.expect("it was written").step, 1);
//! assert_eq!(head.blame("title").value()?.expect("it was written").step, 0);
//! assert_eq!(head.pickaxe("Gasthof")?[0].blame.step, 1);
//! assert_eq!(head.evolution("title").count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! ## The tail of a long conversation
//!
//! A [`Snapshot`](history::Snapshot) reads on demand: the last items of a list without the others, or the messages
//! that fit a query.
//!
//! ```
//! use annals::history::MessageQuery;
//! use annals::prelude::*;
//! use annals::store::ItemRange;
//! # #[derive(State, Clone, Default)]
//! # struct Chat {
//! #     #[channel(messages)]
//! #     messages: Messages,
//! # }
//!
//! # fn main() -> Result<()> {
//! # let thread = Store::memory().thread("alice")?;
//! # thread.update(Chat::update().messages((1..=100).map(|n| Message::human(format!("message {n}")))))?;
//! let head = thread.head()?.expect("it was written");
//! let last = head.messages("messages", ItemRange::Tail(2))?;
//! assert_eq!(last.iter().map(|m| m.text()).collect::<Vec<_>>(), ["message 99", "message 100"]);
//! let found = head.find_messages("messages", &MessageQuery::new().kind("human").text("message 7"))?;
//! assert_eq!(found.len(), 11);
//! # Ok(())
//! # }
//! ```
//!
//! ## Compact a long conversation
//!
//! A compaction folds messages for a model under a summary. It is a small checkpoint, and the list stays: readers and
//! searches find all of it, an undo goes back over the compaction, and a fork has it. The first messages can stay, so
//! that the cache of a provider for the beginning of a request stays of use.
//!
//! ```
//! use annals::history::MessageCompaction;
//! use annals::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let thread = Store::memory().thread("trip")?;
//! # let model = |messages: &[Message]| format!("a summary of {} messages", messages.len());
//! thread.append("messages", (0..50).map(|n| Message::human(format!("message {n}"))))?;
//! let head = thread.head()?.expect("it was written");
//! let summary = Message::system(model(&head.model_view("messages")?));
//! // Messages that are appended while the model writes stay: the summary is one of `head`.
//! thread.compact("messages", MessageCompaction::new([summary]).keep_first(1).keep_last(2).of(&head))?;
//! thread.append("messages", [Message::human("and now?")])?;
//!
//! let head = thread.head()?.expect("it was compacted");
//! let view = head.model_view("messages")?;
//! let texts: Vec<_> = view.iter().map(|message| message.text()).collect();
//! assert_eq!(texts, ["message 0", "a summary of 50 messages", "message 48", "message 49", "and now?"]);
//! assert_eq!(head.len("messages")?, 51);
//! # Ok(())
//! # }
//! ```
//!
//! ## Prune a long history
//!
//! Nothing is pruned by itself. A [`PrunePolicy`](history::PrunePolicy) says which checkpoints go, and a plan shows
//! them before they do. The retained checkpoints show the same state as before, and so do those of threads that were
//! forked. Heads, ends of branches and targets of names are always retained.
//!
//! ```
//! use annals::history::PrunePolicy;
//! use annals::prelude::*;
//! use annals::store::StoreError;
//!
//! # fn main() -> Result<()> {
//! # let thread = Store::memory().thread("alice")?;
//! # for n in 0..30 {
//! #     thread.append("messages", [Message::human(format!("message {n}"))])?;
//! # }
//! let plan = thread.prune_plan(&PrunePolicy::new().keep_last(10))?;
//! println!("{} checkpoints, about {} bytes", plan.points().len(), plan.estimate()?.bytes);
//! plan.run()?;
//!
//! assert_eq!(thread.history()?.count(), 10);
//! assert_eq!(thread.head()?.unwrap().len("messages")?, 30);
//! assert!(matches!(thread.at("~10"), Err(StoreError::CheckpointPruned { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! ## A schema made at run time
//!
//! A program that learns its channels from a configuration uses [`DynSchema`](state::DynSchema). Its files are those of
//! a derived state.
//!
//! ```
//! use annals::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let schema = DynSchema::new()
//!     .messages("messages")
//!     .last("title")
//!     .reduce_from("total", 0, |old, new| match (old.as_int(), new.as_int()) {
//!         (Some(old), Some(new)) => Ok(Value::from(old + new)),
//!         _ => Err("a total is an integer".into()),
//!     })
//!     .build();
//! let chat = Store::memory().thread("alice")?.with_schema(schema);
//! chat.update(DynUpdate::new().messages("messages", [Message::human("hi")]).set("total", 2))?;
//! chat.update(DynUpdate::new().set("title", "Greetings").set("total", 3))?;
//! let state = chat.state()?;
//! assert_eq!((state.get("total").as_int(), state.get("title").as_str()), (Some(5), Some("Greetings")));
//! let refused = chat.update(DynUpdate::new().set("total", "three")).unwrap_err();
//! assert!(refused.is_user() && refused.to_string().contains("a total is an integer"));
//! # Ok(())
//! # }
//! ```
//!
//! ## A type that has changed
//!
//! Stored values stay as they were written. A [migration](state::Schema::migrate) is asked for a value that does not
//! fit the present type of its channel.
//!
//! ```
//! use annals::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Order {
//!     total: i64, // once a text: "42 EUR"
//! }
//!
//! # fn main() -> Result<()> {
//! # #[derive(State, Clone, Default)]
//! # struct Old { total: String }
//! # let thread = Store::memory().thread("order")?;
//! # thread.update(Old::update().total("42 EUR"))?;
//! let schema = Schema::<Order>::of().migrate("total", |value| {
//!     let number = value.as_str().and_then(|text| text.split(' ').next()?.parse::<i64>().ok());
//!     number.map(Value::from).ok_or_else(|| format!("{value:?} is not a total"))
//! });
//! let order = thread.with_schema(schema);
//! order.update(Order::update())?;
//! assert_eq!(order.state()?.total, 42);
//! # Ok(())
//! # }
//! ```
//!
//! ## Remember across threads
//!
//! The key-value memory outlives threads and has no history.
//!
//! ```
//! use annals::base::Map;
//! use annals::prelude::*;
//! use annals::store::KvQuery;
//!
//! # fn main() -> Result<()> {
//! let kv = Store::memory().kv();
//! kv.put(["users", "ann"], "wish", Map::from_iter([("text".into(), "tea".into())]))?;
//! let found = kv.search(KvQuery::new(["users"]).limit(5))?;
//! assert_eq!((found[0].key.as_str(), found[0].value["text"].as_str()), ("wish", Some("tea")));
//! # Ok(())
//! # }
//! ```
//!
//! ## Import and export messages
//!
//! [`MessageFormat`](message::MessageFormat)s read and write JSON lists and lines, one message at a time.
//!
//! ```
//! use annals::history::{ExportOptions, Framing, ImportOptions};
//! use annals::message::OpenAiFormat;
//! use annals::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]"#;
//! let thread = Store::memory().thread("chat")?;
//! thread.import_messages(&ImportOptions::new().format(OpenAiFormat), text.as_bytes())?;
//!
//! let mut lines = Vec::new();
//! let options = ExportOptions::new().format(OpenAiFormat).framing(Framing::Lines);
//! thread.head()?.expect("it was made").export_messages("messages", &options, &mut lines)?;
//! assert_eq!(String::from_utf8(lines)?.lines().nth(1), Some(r#"{"role":"assistant","content":"hello"}"#));
//! # Ok(())
//! # }
//! ```
//!
//! ## Search all threads
//!
//! A search reads the messages of all threads and branches; an index makes it quick in a large file.
//!
//! ```
//! use annals::prelude::*;
//! use annals::store::{SearchOptions, SearchQuery};
//! # #[derive(State, Clone, Default)]
//! # struct Chat {
//! #     #[channel(messages)]
//! #     messages: Messages,
//! # }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let store = Store::open(folder.path().join("chats.db"))?;
//! store.thread("trip")?.update(Chat::update().messages([Message::ai("The Gasthof zum Bären has rooms.")]))?;
//! store.thread("reise")?.update(Chat::update().messages([Message::human("東京のホテル")]))?;
//!
//! store.enable_search(SearchOptions::new())?;
//! let hits = store.search(SearchQuery::new("bären").role("ai").on_head())?.hits;
//! assert_eq!(hits[0].snippet.marked("*", "*"), "The Gasthof zum *Bären* has rooms.");
//! assert_eq!(hits[0].snapshot(&store)?.point().thread.as_str(), "trip");
//! assert_eq!(store.search(SearchQuery::new("東京"))?.hits[0].point.thread.as_str(), "reise");
//! # Ok(())
//! # }
//! ```
//!
//! ## Inspect a file
//!
//! A file is opened for reading only and listed, shown and checked without the program that wrote it.
//!
//! ```
//! use annals::prelude::*;
//! # #[derive(State, Clone, Default)]
//! # struct Note { text: String }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("theirs.db");
//! # Store::open(&path)?.thread("alice")?.update(Note::update().text("buy tea"))?;
//! let store = Store::open_with(&path, OpenOptions::new().read_only(true))?;
//! for thread in store.threads()? {
//!     let head = store.thread(thread.id.as_str())?.head()?.expect("a listed thread has a head");
//!     assert_eq!(head.values()?.into_iter().collect::<Vec<_>>(), [("text".to_string(), Value::from("buy tea"))]);
//! }
//! assert!(store.check()?.problems.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! ## Back up, check and recover a file
//!
//! A backup is a copy of one moment, made while others write. A check verifies every row and cites the invariants of
//! the format that do not hold; a later one goes on from its end. A recovery writes the sound part of a damaged file to
//! a new one.
//!
//! ```
//! use annals::prelude::*;
//! # #[derive(State, Clone, Default)]
//! # struct Note { text: String }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = |name: &str| folder.path().join(name);
//! let store = Store::open(path("notes.db"))?;
//! store.thread("alice")?.update(Note::update().text("buy tea"))?;
//! store.backup(path("copy.db"))?;
//!
//! let report = store.check()?;
//! assert!(report.problems.is_empty());
//! store.thread("alice")?.update(Note::update().text("buy milk"))?;
//! let newer = store.check_since(&report.up_to.expect("it found no problem"))?;
//! assert_eq!((newer.problems.len(), newer.checkpoints), (0, 1));
//!
//! drop(store);
//! let recovery = Store::recover(path("notes.db"), path("recovered.db"))?;
//! assert!(recovery.is_complete());
//! # Ok(())
//! # }
//! ```
//!
//! ## Encryption at rest
//!
//! With a key and the feature `encryption`, content is sealed before it is stored, and the file is opened with its key
//! alone. SECURITY.md says what stays visible.
//!
//! ```
//! # #[cfg(feature = "encryption")] {
//! use annals::prelude::*;
//! use annals::store::Key;
//! # #[derive(State, Clone, Default)]
//! # struct Note { text: String }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("secret.db");
//! let key = Key::new([7; 32]); // 32 random bytes, from the key store of the system
//! let store = Store::open_with(&path, OpenOptions::new().key(key.clone()))?;
//! store.thread("alice")?.update(Note::update().text("buy tea"))?;
//! drop(store);
//! assert!(Store::open(&path).is_err());
//! assert!(Store::open_with(&path, OpenOptions::new().key(key))?.thread("alice")?.head()?.is_some());
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! ## Several processes
//!
//! Any number of handles, threads and processes may write one file. Commits wait for each other; a change is applied to
//! the state that the writer before it left.
//!
//! ```
//! use annals::prelude::*;
//! # #[derive(State, Clone, Default)]
//! # struct Log {
//! #     #[channel(append)]
//! #     lines: List<String>,
//! # }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("shared.db");
//! let (first, second) = (Store::open(&path)?, Store::open(&path)?); // as two processes would
//! first.thread("log")?.update(Log::update().lines(["from the first".to_string()]))?;
//! second.thread("log")?.update(Log::update().lines(["from the second".to_string()]))?;
//! first.thread("log")?.update(Log::update().lines(["from the first again".to_string()]))?;
//! assert_eq!(second.thread("log")?.with_state::<Log>().state()?.lines.len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! ## Tables of the program beside it
//!
//! The program's own tables belong into a file of their own; [`rusqlite`] is re-exported, so both share one SQLite. An
//! id of a checkpoint is a text, by which a row names the state it was made from.
//!
//! ```
//! use annals::prelude::*;
//! use annals::rusqlite::Connection;
//! # #[derive(State, Clone, Default)]
//! # struct Plan { city: String }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! let thread = Store::open(path("trips.db"))?.thread("trip")?;
//! let app = Connection::open(path("app.db"))?;
//! app.execute("create table booking (plan text, price integer)", ())?;
//! let plan = thread.update(Plan::update().city("Rome"))?;
//! app.execute("insert into booking values (?1, 90)", [plan.to_string()])?;
//!
//! let booked: String = app.query_row("select plan from booking", (), |row| row.get(0))?;
//! assert_eq!(thread.at(booked)?.state::<Plan>()?.city, "Rome");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | adds | costs |
//! | --- | --- | --- | --- |
//! | `bundled` | yes | the SQLite of `rusqlite`, compiled in | a C compiler, and its time |
//! | `system-sqlite` | no | the SQLite of the system in its place, with `default-features = false` | SQLite 3.51.3 or later at run time |
//! | `derive` | yes | `#[derive(State)]` | a proc macro, with `syn` and `proc-macro-crate`, in the build |
//! | `tracing` | no | spans of [`tracing`](https://docs.rs/tracing): ids, counts, bytes and durations, never values | `tracing` without its macros |
//! | `encryption` | no | the cipher of [`OpenOptions::key`](store::OpenOptions::key), XChaCha20-Poly1305: content at rest is sealed (SECURITY.md) | `chacha20poly1305` and 7 further crates; bytes and time, in docs/design.md |
//! | `futures` | no | a follower of the log, [`Watch`](history::Watch), as a `Stream` of [`futures-core`](https://docs.rs/futures-core) | that crate, which has no dependencies |
//! | `conformance` | no | [`store::conformance`](store), the suite that every backend must pass | some thousand lines |
//!
//! Cargo allows one version of `libsqlite3-sys` per build, because it links a native library. So a program that also
//! uses `rusqlite`, `diesel` with SQLite or `sqlx` with its feature `sqlite` must resolve to the same one; if no
//! version satisfies all, Cargo refuses the build. `annals` accepts `rusqlite` 0.39 to 0.41, and re-exports the version
//! in use as `annals::rusqlite`.

// The derive names this crate `::annals`, also in its own tests.
#[allow(unused_extern_crates)]
extern crate self as annals;

pub mod channel;
mod error;
pub mod history;
mod limits;
pub mod prelude;
mod span;
pub mod state;
pub mod store;

#[cfg(not(any(feature = "bundled", feature = "system-sqlite")))]
compile_error!("annals needs one of the features `bundled` (the default) and `system-sqlite`");

pub use annals_base as base;
pub use annals_messages as message;
pub use error::{Error, ErrorKind, Result};
/// The binding to SQLite, in the version that this build uses: a program that reads the file itself shares it.
pub use rusqlite;

/// The examples of the guides that need the engine alone.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/guides/json-lines.md")]
    struct JsonLinesGuide;
    #[doc = include_str!("../docs/guides/file-format.md")]
    struct FileFormatGuide;
}
