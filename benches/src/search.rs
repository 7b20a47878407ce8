//! Searches of a file with very many short messages, with and without an index.

use annals::base::{CheckpointId, Clock, IdSource, Namespace, SystemClock, ThreadId};
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, Parent, Payload,
};
use annals::store::log::LogExt;
use annals::store::record::Source;
use annals::store::{SearchOptions, SearchQuery, SqliteBackend, Synchronous};
use annals_mcp::{McpOptions, McpServer};
use serde_json::json;

use crate::disk::{self, OpenedStore, same};
use crate::figures::FigureReport;
use crate::stats::{SeededNumbers, Side, interleave, median, timed};
use crate::{Bench, Result};

/// Threads of the file.
const THREADS: u64 = 100;
/// Checkpoints of a batch: each adds a message.
const BATCH: u64 = 500;
/// Words of a message.
const WORDS: u64 = 9;
/// Words of the language. The most frequent ones are in every third message.
const LANGUAGE: u64 = 20_000;

/// Measures the figures of searches.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let size = if bench.quick { 2_000 } else { 1_000_000 };
    let path = bench.file("search.db")?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    fill(&opened, size)?;
    let mut dice = SeededNumbers(7);
    let drawn: Vec<SearchedWords> = (0..bench.runs(1_000, 20)).map(|_| SearchedWords::draw(&mut dice)).collect();
    let queries: Vec<SearchQuery> = drawn.iter().map(SearchedWords::query).collect();
    let scans = times(&opened.backend, &queries[..queries.len().min(bench.runs(3, 2))])?;
    report.extra("search_scan_ms", scans.last().ok_or("no search")? / 1_000.0);
    let before = opened.bytes(&path)?;
    let (us, ()) = timed(|| Ok(opened.store.enable_search(SearchOptions::new())?))?;
    report.extra("search_index_us_per_message", us / size as f64);
    report.extra("search_index_bytes_per_message", (opened.bytes(&path)? - before) as f64 / size as f64);
    let sorted = times(&opened.backend, &queries)?;
    report.extra("search_us_1m_median", median(&sorted));
    report.set("search_us_1m", percentile_95(&sorted));
    let served = served(&opened, &drawn)?;
    report.extra("mcp_search_ms_median", median(&served));
    report.set("mcp_search_ms", percentile_95(&served));
    commits(bench, report)
}

fn percentile_95(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() * 95).div_ceil(100) - 1]
}

/// Returns the times of searches by the server of the Model Context Protocol in milliseconds, ascending: from the line
/// of a request to that of its response, with 20 hits.
fn served(opened: &OpenedStore, drawn: &[SearchedWords]) -> Result<Vec<f64>> {
    let server = McpServer::new(opened.store.clone(), McpOptions::new());
    let mut times = Vec::with_capacity(drawn.len());
    for words in drawn {
        let request = words.request();
        let mut response = Vec::new();
        let (us, ()) = timed(|| Ok(server.run(request.as_bytes(), &mut response)?))?;
        let is_reply = response.windows(15).any(|part| part == b"\"isError\":false");
        same("the search is answered", is_reply, true)?;
        times.push(us / 1_000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Returns the times of searches in microseconds, ascending.
fn times(backend: &SqliteBackend, queries: &[SearchQuery]) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(queries.len());
    for query in queries {
        let (us, page) = timed(|| Ok(backend.searches()?.search(query)?))?;
        let words_are_shown = page.hits.iter().all(|hit| !hit.snippet.matches.is_empty());
        same("hits with matches", words_are_shown, true)?;
        times.push(us);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Compares a commit of one message to an indexed store with one to another store.
fn commits(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let plain = disk::open(&bench.file("search-off.db")?, Synchronous::Normal)?;
    let indexed = disk::open(&bench.file("search-on.db")?, Synchronous::Normal)?;
    indexed.store.enable_search(SearchOptions::new())?;
    let (mut a, mut b) = (SearchedThread::new(0)?, SearchedThread::new(0)?);
    let mut sides: [Side<'_>; 2] =
        [Box::new(|| Ok(timed(|| a.add(&plain, 1))?.0)), Box::new(|| Ok(timed(|| b.add(&indexed, 1))?.0))];
    let costs = interleave(bench.runs(3_000, 50), &mut sides)?;
    report.extra("commit_us_search_off", median(&costs[0]));
    report.extra("commit_us_search_on", median(&costs[1]));
    Ok(())
}

/// A thread to which messages are added.
struct SearchedThread {
    thread: ThreadId,
    ids: IdSource,
    head: Option<CheckpointId>,
    len: u64,
    dice: SeededNumbers,
}

impl SearchedThread {
    fn new(n: u64) -> Result<Self> {
        let thread = ThreadId::new(format!("thread {n:03}"))?;
        Ok(Self { thread, ids: IdSource::from_seed(n + 1), head: None, len: 0, dice: SeededNumbers(n) })
    }

    /// Commits messages in one batch, each in a checkpoint of its own.
    fn add(&mut self, opened: &OpenedStore, count: u64) -> Result<()> {
        let mut batch = Batch::new(self.thread.clone(), Namespace::root(), self.head);
        for _ in 0..count {
            let now = SystemClock.now();
            let id = self.ids.checkpoint(now, 0, self.head.as_ref());
            let mut new = NewCheckpoint::new(id, self.head.map(Parent::Local), 0, Source::Loop, now);
            let text: Vec<String> = (0..WORDS).map(|_| word(&mut self.dice)).collect();
            let mut index = ItemIndex::default();
            let kind = if self.len.is_multiple_of(2) { "human" } else { "ai" };
            (index.kind, index.text) = (Some(kind.into()), Some(text.join(" ")));
            let put = ItemOp::Put(Data::New(Payload::default().with_index(index)));
            let items = ChangeValue::Items(vec![ItemChange::new(self.len, put, None)]);
            new.changes.push(Change::new("messages", self.len + 1, items));
            batch.checkpoints.push(new);
            (self.head, self.len) = (Some(id), self.len + 1);
        }
        Ok(opened.store.commit(&batch)?)
    }
}

fn fill(opened: &OpenedStore, size: u64) -> Result<()> {
    let mut talks = (0..THREADS).map(SearchedThread::new).collect::<Result<Vec<_>>>()?;
    let batch = BATCH.min(size / THREADS);
    for _ in 0..size / THREADS / batch {
        talks.iter_mut().try_for_each(|talk| talk.add(opened, batch))?;
    }
    opened.empty_wal()
}

/// Returns a word: number n is drawn about n times as seldom as number 1, as in a language.
fn word(dice: &mut SeededNumbers) -> String {
    let share = 1.0 - (dice.below(1 << 32) as f64 / (1_u64 << 32) as f64);
    let rank = (LANGUAGE as f64).powf(share) as u64;
    let mut letters = SeededNumbers(LANGUAGE - rank);
    (0..3 + letters.below(7)).map(|_| char::from(b"etaoinshrdlu"[letters.below(12) as usize])).collect()
}

/// One to three words to be searched for, every fourth time in one thread.
struct SearchedWords {
    text: String,
    thread: Option<String>,
}

impl SearchedWords {
    fn draw(dice: &mut SeededNumbers) -> Self {
        let words: Vec<String> = (0..=dice.below(3)).map(|_| word(dice)).collect();
        let thread = (dice.below(4) == 0).then(|| format!("thread {:03}", dice.below(THREADS)));
        Self { text: words.join(" "), thread }
    }

    fn query(&self) -> SearchQuery {
        let query = SearchQuery::new(&self.text);
        match &self.thread {
            Some(thread) => query.thread(thread),
            None => query,
        }
    }

    /// Returns the search as a request of the Model Context Protocol, on one line.
    fn request(&self) -> String {
        let arguments = json!({ "query": self.text, "thread": self.thread });
        let params = json!({ "name": "search", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    }
}
