//! A worker: a process that opens the store and makes the calls that its standard input orders.
//!
//! Each order is a line. The answer is lines on the standard output, and ends with a line that holds a point. A commit
//! is acknowledged on the output before the next one begins, so the judge knows the commits acknowledged by a process
//! that is killed or dies.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use annals::prelude::*;
use annals::store::{Key, OpenOptions, StoreError};

use crate::watch::{CallHalt, FileCall, FolderWatch, WatchGuard};

/// A thread to which the workers commit.
#[derive(State, Clone, Default, Debug)]
struct OrderedState {
    #[channel(append)]
    lines: List<String>,
    #[channel(last)]
    note: String,
}

/// Threads among which the commits go round.
pub(super) const THREADS: u64 = 3;
/// Milliseconds that a call waits for a lock.
const BUSY_MS: u64 = 3_000;

/// Writes a line of an answer.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    if output.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes()).and_then(|()| output.flush()).is_err() {
        // The judge is gone.
        std::process::exit(0);
    }
}

/// Returns the next order; `None` at the end of the input.
fn next_order() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.is_ok_and(|count| count > 0).then(|| line.trim_end().to_owned())
}

/// Reports that the process stands within a commit, and waits for the order to go on.
fn halt() {
    say("P");
    say(".");
    if next_order().is_none() {
        std::process::exit(0);
    }
}

/// An error as the worker reports it.
struct ToldFailure(String);

impl From<annals::Error> for ToldFailure {
    fn from(error: annals::Error) -> Self {
        let code = error.as_store().map_or("OTHER", StoreError::code);
        Self(format!("{code} {error}"))
    }
}

impl From<StoreError> for ToldFailure {
    fn from(error: StoreError) -> Self {
        Self(format!("{} {error}", error.code()))
    }
}

/// The worker's end of the orders.
struct OrderedWorker {
    path: PathBuf,
    /// The first word of its items.
    author: String,
    options: OpenOptions,
    store: Option<Store>,
    watch: WatchGuard,
}

/// Runs a worker until the end of its input: `PATH AUTHOR plain|encrypted write|read`.
pub(crate) fn work(words: &[String]) -> Option<()> {
    std::panic::set_hook(Box::new(|panic| say(&format!("X {panic}"))));
    let [path, author, keys, access] = words else { return None };
    let path = PathBuf::from(path);
    let mut options = OpenOptions::new().busy_timeout_ms(BUSY_MS).read_only(access == "read");
    if keys == "encrypted" {
        options = options.key(Key::new([7; 32]));
    }
    let watch = FolderWatch::register(path.parent().unwrap_or(Path::new("/")), None);
    let mut worker = OrderedWorker { path, author: author.clone(), options, store: None, watch };
    while let Some(order) = next_order() {
        let words: Vec<&str> = order.split(' ').collect();
        if let Err(ToldFailure(told)) = worker.obey(&words) {
            say(&format!("E {told}"));
        }
        say(".");
    }
    Some(())
}

impl OrderedWorker {
    fn obey(&mut self, words: &[&str]) -> Result<(), ToldFailure> {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words[0] {
            "open" => {
                let store = Store::open_with(&self.path, self.options.clone())?;
                say("O");
                if let Some(missing) = store.missing_wal() {
                    say(&format!("K {missing}"));
                }
                self.store = Some(store);
            }
            "commit" => (number(1)..number(2)).for_each(|n| self.commit(n)),
            // A planted fault: a commit that is stored is reported as one that was not.
            "deny" => {
                self.update(number(1))?;
                say(&format!("F {} BUSY another process uses the store; nothing was written", number(1)));
            }
            "halt" => {
                let call = if words.get(1) == Some(&"sync") { FileCall::Sync } else { FileCall::Write };
                self.watch.set_halt(CallHalt { call, wait: halt });
            }
            "items" => self.say_items()?,
            "check" => {
                let report = self.opened()?.check()?;
                report.problems.iter().for_each(|problem| say(&format!("K {problem}")));
            }
            "backup" => self.opened()?.backup(words.get(1).copied().unwrap_or_default())?,
            "settle" => {
                let settled = Store::reset_wal(&self.path)?;
                say(&format!("S {settled:?}"));
            }
            "close" => drop(self.store.take()),
            // Planted faults.
            "panic" => panic_as_planted(),
            "hang" => _ = next_order(),
            _ => say("X this order is not known"),
        }
        Ok(())
    }

    fn opened(&self) -> Result<&Store, ToldFailure> {
        self.store.as_ref().ok_or_else(|| ToldFailure("CLOSED the store is not open".to_owned()))
    }

    fn update(&self, n: u64) -> Result<(), ToldFailure> {
        let thread = self.opened()?.thread(format!("t{}", n % THREADS))?.with_state::<OrderedState>();
        let note = format!("{} {n} ", self.author).repeat(20 + 60 * (n as usize % 5));
        thread.update(OrderedState::update().lines([format!("{}-{n}", self.author)]).note(note))?;
        Ok(())
    }

    fn commit(&self, n: u64) {
        match self.update(n) {
            Ok(()) => say(&format!("A {n}")),
            Err(ToldFailure(told)) => say(&format!("F {n} {told}")),
        }
    }

    fn say_items(&self) -> Result<(), ToldFailure> {
        let mut items = Vec::new();
        for thread in 0..THREADS {
            let thread = self.opened()?.thread(format!("t{thread}"))?;
            if thread.head()?.is_some() {
                items.extend(thread.with_state::<OrderedState>().state()?.lines.iter().map(|line| line.to_string()));
            }
        }
        say(&format!("I {}", items.join(" ")));
        Ok(())
    }
}

/// A planted fault: a panic that no call of the library made.
#[allow(clippy::panic)]
fn panic_as_planted() {
    panic!("a planted panic")
}
