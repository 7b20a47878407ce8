//! Compares a file with the write-ahead log beside it, before SQLite may read the log or copy it.
//!
//! A log continues a file if the mark of the file ([`wal_mark`](super::wal_mark)) is the one before the first mark of
//! the log, or one of its marks. Any other log is older than the file, newer, or that of another file, and SQLite would
//! replay it all the same. A log without a mark was begun by another program on this file: it is one of this file if
//! its first page is that of a store, or if it leaves the number of pages as it is. *Absent:* the frames after a broken
//! one ([`wal_tail`](super::wal_tail)), and any change.
//!
//! Invariant: the verdict is that of one state of both files: each is read again until nothing changes meanwhile.

use super::open;
use super::paths::beside;
use super::system;
use super::wal_mark::{MarkState, WalMark};
use super::wal_tail::{FRAME_HEADER_BYTES, Frames, HEADER_BYTES, MAGIC, pair};
use crate::limits::LOG_READINGS_MAX;
use crate::store::sqlite::fault::{Fault, Res, damage};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The bytes of a frame with the smallest page.
const FRAME_BYTES_MIN: u64 = 512 + FRAME_HEADER_BYTES as u64;
/// The bytes of the header of the `-shm` file, which stands in it twice.
const SHARED_HEADER_BYTES: usize = 48;

/// How a file and its log belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLink {
    /// The log continues the file, or there is none and none is missed.
    Sound,
    /// The file says that a log goes on from it, and there is none, or none with a commit.
    Missing(String),
    /// The shared memory counts more frames than the log has.
    Cut(String),
    /// The log does not continue the file.
    Foreign(String),
}

/// The mark and the size of the file without its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnMark {
    mark: WalMark,
    pages: u32,
}

/// The content of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogContent {
    /// A missing log, or one that is shorter than a frame: its bytes.
    None(u64),
    /// SQLite reads no commit of it.
    NoCommit { salts: [u32; 2] },
    /// It holds commits.
    Commits(LogCommits),
}

/// The commits of a log, as far as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogCommits {
    salts: [u32; 2],
    /// The first mark, and the last one that was read.
    marks: Option<(WalMark, WalMark)>,
    /// True if the mark of the file was found.
    is_continued: bool,
    /// The application id of the last first page.
    application: Option<u32>,
    /// The pages of the file after the last commit.
    pages: u32,
}

/// Compares the file at a path with the log beside it. `is_free` says that no connection of this process has the file:
/// reading it and its shared memory by hand would drop their locks.
pub(crate) fn compare(path: &Path, is_free: bool) -> io::Result<LogLink> {
    let read = || -> io::Result<_> {
        let shared = if is_free { shared_header(path) } else { None };
        let own = if is_free { plain_mark(path) } else { None }.or_else(|| own_mark(path));
        Ok((shared, own, log_content(path, own)?))
    };
    let mut last = read()?;
    for _ in 0..LOG_READINGS_MAX {
        let link = judge(path, &last);
        if link == LogLink::Sound {
            return Ok(link);
        }
        // Another process may have copied the log, or begun it anew, between two of the readings.
        let again = read()?;
        if again == last {
            return Ok(link);
        }
        last = again;
    }
    // Both change with every reading: processes that have compared them are writing.
    Ok(LogLink::Sound)
}

/// Returns whether a log begins with a mark, which a process of this library wrote.
pub(crate) fn begins_with_mark(path: &Path) -> io::Result<bool> {
    let log = log_content(path, None)?;
    Ok(matches!(log, LogContent::Commits(LogCommits { marks: Some(_), .. })))
}

fn judge(path: &Path, (shared, own, log): &(Option<SharedHeader>, Option<OwnMark>, LogContent)) -> LogLink {
    // An older format has no mark, and a damaged one is found by the reads of the file.
    let Some(own) = own else { return LogLink::Sound };
    let name = beside(path, "-wal");
    let begun = own.mark.state != MarkState::Whole;
    match log {
        LogContent::None(bytes) if begun => {
            let found = match bytes {
                0 => "it is missing or empty".to_owned(),
                bytes => format!("its {bytes} bytes are not those of a log"),
            };
            LogLink::Missing(format!(
                "the file says that its write-ahead log {} holds commits, but {found}",
                name.display()
            ))
        }
        LogContent::None(_) => LogLink::Sound,
        LogContent::NoCommit { salts } | LogContent::Commits(LogCommits { salts, .. }) => {
            if let LogContent::Commits(commits) = log
                && let Some(reason) = commits.refusal(own)
            {
                return LogLink::Foreign(format!("the write-ahead log {} {reason}", name.display()));
            }
            match shared {
                Some(shared) if own.mark.state == MarkState::Synced && shared.salts == *salts => shared.cut(&name),
                _ => LogLink::Sound,
            }
        }
    }
}

impl LogCommits {
    /// Returns why the log does not continue a file.
    fn refusal(&self, own: &OwnMark) -> Option<String> {
        let Some((first, last)) = self.marks else {
            return match self.application {
                Some(application) if i64::from(application) == sql::APPLICATION_ID => None,
                None if self.pages == own.pages => None,
                _ => Some("is that of another program".to_owned()),
            };
        };
        if self.is_continued {
            return None;
        }
        let (from, to) = (first.generation, last.generation);
        let own = own.mark;
        Some(match own.generation {
            _ if first.store != own.store => "is that of another store".to_owned(),
            generation if generation > to => {
                format!("is older than the file: it ends with mark {to}, the file has mark {generation}")
            }
            generation if generation < from.saturating_sub(1) => {
                format!("is newer than the file: it begins with mark {from}, the file has mark {generation}")
            }
            generation => format!("is that of another copy of the file: both went on since mark {generation}"),
        })
    }
}

/// Returns whether a file lacks pages that its header counts, or has no header. An error of the disk tells neither.
pub(crate) fn lacks_pages(path: &Path, bytes: u64) -> bool {
    let read = || -> Res<u64> {
        let conn = open::connect_unlocked(path)?;
        let number = |sql: &str| conn.one::<u32>(sql, []).map(u64::from);
        Ok(number(sql::ALL_PAGES)? * number(sql::READ_PAGE_BYTES)?)
    };
    match read() {
        Ok(whole) => bytes < whole.max(1),
        Err(Fault::Sql(error)) => damage(&error).is_some(),
        Err(Fault::Store(_)) => false,
    }
}

/// Reads the mark where a new file has it: in the first page that is not one of SQLite's own. To read it through SQLite
/// takes as long as the rest of an opening.
fn plain_mark(path: &Path) -> Option<OwnMark> {
    let file = system::open_to_read(path).ok()?;
    let mut page = [0; sql::PAGE_BYTES as usize];
    system::read_at(&file, &mut page, 0).ok()?;
    // With a map of pages, the second page is part of it.
    let (pages, before) = (pair(&page, 28)[0], if pair(&page, 52)[0] > 0 { 2 } else { 1 });
    system::read_at(&file, &mut page, before * sql::PAGE_BYTES).ok()?;
    Some(OwnMark { mark: WalMark::of_page(&page)?, pages })
}

/// Reads the mark and the number of pages of the file without its log; `None` if it has none that can be read.
fn own_mark(path: &Path) -> Option<OwnMark> {
    let read = || -> Res<Option<OwnMark>> {
        let conn = open::connect_unlocked(path)?;
        if !conn.one::<bool>(sql::HAS_WAL_MARK, [])? {
            return Ok(None);
        }
        let pages = conn.one(sql::ALL_PAGES, [])?;
        Ok(Some(OwnMark { mark: WalMark::read(&conn)?, pages }))
    };
    read().ok().flatten()
}

/// Reads the commits of the log, until one shows that it continues the file.
fn log_content(path: &Path, own: Option<OwnMark>) -> io::Result<LogContent> {
    let file = match system::open_to_read(&beside(path, "-wal")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LogContent::None(0)),
        file => file?,
    };
    let meta = file.metadata()?;
    let bytes = if meta.is_file() { meta.len() } else { 0 };
    if bytes < HEADER_BYTES as u64 + FRAME_BYTES_MIN {
        return Ok(LogContent::None(bytes));
    }
    let mut magic = [0; 4];
    system::read_at(&file, &mut magic, 0)?;
    if u32::from_be_bytes(magic) & !1 != MAGIC {
        return Ok(LogContent::None(bytes));
    }
    // SQLite reads nothing of a log whose header was half written; a check reports the frames after it.
    let Some(mut frames) = Frames::begin(file)? else { return Ok(LogContent::NoCommit { salts: [0; 2] }) };
    let mut commits = LogCommits { salts: frames.salts(), ..LogCommits::default() };
    let (mut in_commit, mut has_commit) = (LogCommits::default(), false);
    while let Some(frame) = frames.next()? {
        if frame.number == 1 {
            in_commit.application = Some(pair(frame.page, 68)[0]);
        }
        if let Some(mark) = WalMark::of_page(frame.page) {
            in_commit.marks = Some((mark, mark));
        }
        // The last frame of a transaction counts the pages of the file.
        if frame.pages == 0 {
            continue;
        }
        has_commit = true;
        let found = std::mem::take(&mut in_commit);
        commits.application = found.application.or(commits.application);
        commits.pages = frame.pages;
        if let Some((mark, _)) = found.marks {
            let first = commits.marks.map_or(mark, |(first, _)| first);
            let is_first = commits.marks.is_none();
            commits.marks = Some((first, mark));
            commits.is_continued |=
                own.is_some_and(|own| own.mark.mark == mark.mark || is_first && own.mark.mark == mark.before);
            if own.is_none() || commits.is_continued {
                break;
            }
        }
    }
    debug_assert_eq!(has_commit, commits.pages > 0, "the last frame of a transaction counts the pages");
    Ok(if has_commit { LogContent::Commits(commits) } else { LogContent::NoCommit { salts: commits.salts } })
}

/// The header of the `-shm` file, in which processes count the frames of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedHeader {
    salts: [u32; 2],
    frames: u32,
    page_bytes: u32,
}

impl SharedHeader {
    fn cut(&self, log: &Path) -> LogLink {
        let bytes = fs::metadata(log).map_or(0, |meta| meta.len());
        let whole =
            HEADER_BYTES as u64 + u64::from(self.frames) * (u64::from(self.page_bytes) + FRAME_HEADER_BYTES as u64);
        if bytes >= whole {
            return LogLink::Sound;
        }
        LogLink::Cut(format!("the write-ahead log {} has {bytes} bytes of {whole}: it was cut short", log.display()))
    }
}

/// Reads the header of the shared memory; `None` if it is not there or not whole.
fn shared_header(path: &Path) -> Option<SharedHeader> {
    let mut bytes = [0; 2 * SHARED_HEADER_BYTES];
    File::read_exact(&mut system::open_to_read(&beside(path, "-shm")).ok()?, &mut bytes).ok()?;
    let (first, second) = bytes.split_at(SHARED_HEADER_BYTES);
    let word = |at: usize| u32::from_ne_bytes([first[at], first[at + 1], first[at + 2], first[at + 3]]);
    let is_initialised = first[12] != 0;
    // SQLite copies the salts as the log has them, and a page of 64 KiB as 1.
    let page_bytes = match u16::from_ne_bytes([first[14], first[15]]) {
        1 => 65_536,
        bytes => u32::from(bytes),
    };
    let salts = pair(first, 32);
    (first == second && is_initialised).then_some(SharedHeader { salts, frames: word(16), page_bytes })
}
