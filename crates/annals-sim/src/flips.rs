//! Flips: single bytes of a store that were changed on the disk. Each read must give the same data or a typed error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use annals::rusqlite::{Connection, OpenFlags};
use annals::store::{OpenOptions, Store, Synchronous};

use crate::log::DiskLog;
use crate::observe::{self, Deadline, StoreView, Unreadable};
use crate::proxy::Calls;
use crate::spent::Spent;
use crate::trace::{ScratchFolder, WorkloadKind};
use crate::workload::{self, WorkloadShape};

/// The masks by which a byte is changed.
const MASKS: [u8; 2] = [0x01, 0x80];
/// Time on a processor that reading or checking may take.
const SLOW: Duration = Duration::from_secs(2);
/// Time after which the harness gives up on a read that does not return.
const HUNG: Duration = Duration::from_secs(180);
/// The least size of the file.
const BYTES_MIN: usize = 64 * 1024;
/// Cases that are described.
const EXAMPLES_MAX: usize = 64;

/// The counts of a run of flips.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlipCounts {
    pub(crate) run: u64,
    /// The same data.
    pub(crate) same: u64,
    /// A typed error when the file was opened.
    pub(crate) open_errors: u64,
    /// A typed error when it was read.
    pub(crate) read_errors: u64,
    /// Other data, without an error.
    pub(crate) wrong: u64,
    /// Other data or a typed error of a read, and a check without a finding.
    pub(crate) missed: u64,
    pub(crate) panics: u64,
    /// Reads that took longer than [`SLOW`] or did not end.
    pub(crate) slow: u64,
    /// The bytes of wrong data and of missed findings, by the table or index of their page.
    pub(crate) places: BTreeMap<String, u64>,
    pub(crate) examples: Vec<String>,
}

impl FlipCounts {
    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.same += other.same;
        self.open_errors += other.open_errors;
        self.read_errors += other.read_errors;
        self.wrong += other.wrong;
        self.missed += other.missed;
        self.panics += other.panics;
        self.slow += other.slow;
        other.places.into_iter().for_each(|(place, count)| *self.places.entry(place).or_default() += count);
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES_MAX);
    }
}

/// The bytes to be flipped.
#[derive(Clone, Debug)]
pub(crate) struct FlipPlan {
    pub(crate) seed: u64,
    /// Every so many bytes.
    pub(crate) stride: usize,
    /// The first byte.
    pub(crate) first: usize,
    /// The number of bytes, at most.
    pub(crate) count: usize,
    /// The table or index whose pages are flipped, if not all.
    pub(crate) only: Option<String>,
    pub(crate) jobs: usize,
}

/// A store that is flipped.
struct FlippedStore {
    content: Vec<u8>,
    view: StoreView,
    /// The table or index of each page.
    pages: Vec<String>,
}

/// Writes a store and flips its bytes. Returns the counts and the size of the file.
pub(crate) fn run(plan: &FlipPlan) -> Result<(FlipCounts, usize), String> {
    let target = FlippedStore::make(plan.seed)?;
    let size = target.content.len();
    let is_of = |offset: &usize| plan.only.as_deref().is_none_or(|name| target.page(*offset) == name);
    let offsets = (plan.first..size).filter(is_of).step_by(plan.stride.max(1)).take(plan.count);
    let offsets: Vec<usize> = offsets.collect();
    let next = AtomicU64::new(0);
    let (done, begun) = (AtomicU64::new(0), SystemClock.elapsed());
    let beats: Vec<AtomicU64> = (0..plan.jobs.max(1)).map(|_| AtomicU64::new(0)).collect();
    let work = |beat: &AtomicU64| {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        std::fs::write(scratch.store(), &target.content).map_err(|error| error.to_string())?;
        let mut counts = FlipCounts::default();
        while let Some(offset) = offsets.get(next.fetch_add(1, Ordering::SeqCst) as usize) {
            for mask in MASKS {
                beat.store((SystemClock.elapsed() - begun).as_millis() as u64 + 1, Ordering::SeqCst);
                counts.add(target.flip(&scratch, *offset, mask)?);
            }
        }
        beat.store(0, Ordering::SeqCst);
        done.fetch_add(1, Ordering::SeqCst);
        Ok::<_, String>(counts)
    };
    let mut counts = FlipCounts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = beats.iter().map(|beat| scope.spawn(|| work(beat))).collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(20));
            let now = (SystemClock.elapsed() - begun).as_millis() as u64;
            let hung = |beat: &AtomicU64| match beat.load(Ordering::SeqCst) {
                0 => false,
                beat => now.saturating_sub(beat) > HUNG.as_millis() as u64,
            };
            // A thread cannot be stopped from outside, so the process ends.
            if beats.iter().any(hung) {
                let place = next.load(Ordering::SeqCst);
                crate::commands::fail(&format!("a read near byte {:?} does not return", offsets.get(place as usize)));
            }
        }
        for thread in threads {
            counts.add(thread.join().unwrap_or_else(|_| Err("the harness panicked".into()))?);
        }
        Ok::<(), String>(())
    })?;
    Ok((counts, size))
}

fn shape(seed: u64) -> WorkloadShape {
    let shape = WorkloadKind::Single.shape(seed, 0, Synchronous::Full);
    WorkloadShape { acts: 10, rounds: 1, text_max: 5_000, waits: true, ..shape }
}

impl FlippedStore {
    fn make(seed: u64) -> Result<Self, String> {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let calls = Calls::new(Arc::new(DiskLog::memory()), 0, false);
        if let Some(failure) = workload::run(&scratch.store(), &shape(seed), &calls).first() {
            return Err(format!("a call failed without a fault: {failure}"));
        }
        let content = std::fs::read(scratch.store()).map_err(|error| error.to_string())?;
        if content.len() < BYTES_MIN {
            return Err(format!("the file has {} bytes, fewer than {BYTES_MIN}", content.len()));
        }
        let pages = pages(&scratch.store(), content.len() / 4096).map_err(|error| error.to_string())?;
        let store = open(&scratch.store()).map_err(|error| error.to_string())?;
        let read = observe::everything(&store, Deadline::after(HUNG));
        let view = read.map_err(|error| format!("the file as it was written: {error}"))?;
        Ok(Self { content, view, pages })
    }

    fn flip(&self, scratch: &ScratchFolder, offset: usize, mask: u8) -> Result<FlipCounts, String> {
        // The file is closed while it is read: one that this process has open is identified through a connection more.
        let put = |byte: u8| {
            let file = FileOptions::new().write(true).open(scratch.store());
            file.and_then(|file| file.write_all_at(&[byte], offset as u64)).map_err(|error| error.to_string())
        };
        put(self.content[offset] ^ mask)?;
        let begin = Spent::now();
        let read = catch_unwind(AssertUnwindSafe(|| read(&scratch.store())));
        let took = begin.elapsed();
        put(self.content[offset])?;
        let mut counts = FlipCounts { run: 1, slow: u64::from(took > SLOW), ..FlipCounts::default() };
        let mut differing = String::new();
        let what = match read {
            Err(_) => {
                counts.panics = 1;
                "panic"
            }
            Ok(Read { opens: false, .. }) => {
                counts.open_errors = 1;
                return Ok(counts);
            }
            Ok(Read { view, finds, .. }) => {
                differing = view.as_ref().map_or_else(|_| String::new(), |view| self.differing(view));
                let what = self.classify(&mut counts, view);
                counts.missed = u64::from(!finds && counts.same == 0);
                what
            }
        };
        if counts.wrong + counts.missed + counts.panics + counts.slow > 0 {
            let page = self.page(offset);
            let missed = if counts.missed > 0 { ", missed by check" } else { "" };
            counts.places.insert(format!("{page}: {what}{missed}"), 1);
            counts.examples.push(format!("{what}{missed} at byte {offset} ^ {mask:#04x} ({page}{differing})"));
        }
        Ok(counts)
    }

    /// Returns the table or index of the page of a byte.
    fn page(&self, offset: usize) -> &str {
        self.pages.get(offset / 4096).map_or("?", String::as_str)
    }

    /// Names the entities whose data differ or are missing.
    fn differing(&self, view: &StoreView) -> String {
        let names = self.view.keys().chain(view.keys()).filter(|name| self.view.get(*name) != view.get(*name));
        let names: BTreeSet<String> = names
            .map(|name| if view.contains_key(name) { format!(", {name}") } else { format!(", no {name}") })
            .collect();
        names.into_iter().collect()
    }

    fn classify(&self, counts: &mut FlipCounts, view: Result<StoreView, Unreadable>) -> &'static str {
        match view {
            Ok(view) if view == self.view => {
                counts.same = 1;
                "same"
            }
            Ok(_) => {
                counts.wrong = 1;
                "wrong"
            }
            Err(Unreadable::Typed(_)) => {
                counts.read_errors = 1;
                "error"
            }
            Err(Unreadable::Endless) => {
                counts.slow = 1;
                "endless"
            }
        }
    }
}

/// The content of a flipped store.
struct Read {
    opens: bool,
    view: Result<StoreView, Unreadable>,
    /// True if `check` found a problem or failed.
    finds: bool,
}

fn open(path: &Path) -> Result<Store, annals::store::StoreError> {
    Store::open_with(path, OpenOptions::new().read_only(true).head_cache_bytes(0))
}

fn read(path: &Path) -> Read {
    let Ok(store) = open(path) else { return Read { opens: false, view: Ok(StoreView::new()), finds: true } };
    let view = observe::everything(&store, Deadline::after(HUNG / 2));
    let finds = store.check().map_or(true, |report| !report.problems.is_empty());
    Read { opens: true, view, finds }
}

/// Returns the table or index of each page of a sound file.
fn pages(path: &Path, count: usize) -> annals::rusqlite::Result<Vec<String>> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut names = vec!["free".to_owned(); count];
    let mut statement = conn.prepare("SELECT name, pageno FROM dbstat")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    for row in rows {
        let (name, number) = row?;
        if let Some(place) = usize::try_from(number - 1).ok().and_then(|page| names.get_mut(page)) {
            *place = name;
        }
    }
    Ok(names)
}
