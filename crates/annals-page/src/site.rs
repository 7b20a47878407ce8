//! A folder of documents: one for each thread, and an index grouped by day and project.
//!
//! Invariants: a file that is not a part of the site is neither replaced nor removed; a document is written again only
//! if its thread has changed; threads are read in pages, so that the memory holds a number for each of them. *Absent:*
//! threads that are archived or in the trash.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use annals::base::Timestamp;
use annals::history::ThreadInfo;
use annals::store::{Store, ThreadQuery};
use annals_view::words::{date, day, shortened};
use sha2::{Digest, Sha256};

use crate::failure::PageError;
use crate::html::Html;
use crate::limits::{INDEX_BYTES_MAX, INDEX_ROWS_MAX, MARK_BYTES_MAX};
use crate::page::STYLE;
use crate::screens::{DocumentFrame, RowLink, ThreadEntry, columns, document_head, write_framed};

/// The folder of the documents within that of the site.
const DOCUMENTS: &str = "t";
/// The begin of each file of a site, up to the mark that tells one from another.
const BEGIN: &str =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"";
/// The begin of the mark.
const MARK: &str = "annals site 1 ";
/// The end of the name of a file while it is written.
const UNFINISHED: &str = ".annals-unfinished";

/// The counts of a call of [`write_site`], and the threads that it could not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteSummary {
    /// The threads of the index.
    pub threads: u64,
    /// The documents that were written, because they are new or their thread has changed.
    pub written: u64,
    /// The documents that were as they would be written.
    pub unchanged: u64,
    /// The number of documents and pages of the index that were removed: their threads are not listed any more.
    pub removed: u64,
    /// The threads that could not be read, each with the reason: they are in the index, and keep an older document.
    pub unread: Vec<(String, String)>,
}

/// Writes all threads of a store that are not archived as a folder of HTML documents with an index, `index.html`, which
/// is read without a server: grouped by day and project, the last active first. In a folder of an earlier call,
/// unchanged documents stay, and documents of threads that are not listed any more are removed. `name` is the title of
/// the index.
///
/// # Errors
/// [`PageError::ForeignFile`] if a file with the name of a document was not written by this function: it is not
/// changed, and neither are the documents after it. [`PageError::Folder`] if the folder cannot be read or written,
/// [`PageError::Read`] if the store cannot be listed.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals_page::write_site;
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory();
/// store.thread("trip")?.append("messages", [Message::human("A hotel in Bern?")])?;
/// let folder = tempfile::tempdir()?;
/// let site = folder.path().join("site");
/// assert_eq!(write_site(&store, &site, "chats")?.written, 1);
/// assert_eq!(write_site(&store, &site, "chats")?.unchanged, 1);
/// assert!(std::fs::read_to_string(site.join("index.html"))?.contains("A hotel in Bern?"));
/// # Ok(())
/// # }
/// ```
pub fn write_site(store: &Store, folder: &Path, name: &str) -> Result<SiteSummary, PageError> {
    // The first page of the index tells whether the folder is that of a site, before anything is written.
    mark_of(&folder.join(index_name(0)))?;
    let documents = folder.join(DOCUMENTS);
    fs::create_dir_all(&documents).map_err(|source| unusable(&documents, source))?;
    let mut site = Site { store, folder, documents, name, seen: HashSet::new(), summary: SiteSummary::default() };
    let pages = site.write()?;
    site.clean(pages)?;
    Ok(site.summary)
}

/// A site while it is written.
struct Site<'a> {
    store: &'a Store,
    folder: &'a Path,
    documents: PathBuf,
    name: &'a str,
    /// The hashes of the ids of the listed threads.
    seen: HashSet<u64>,
    summary: SiteSummary,
}

/// The mark of a file of the site.
#[derive(PartialEq, Eq)]
enum FileMark {
    Absent,
    /// The text after [`MARK`].
    Own(String),
}

impl Site<'_> {
    /// Writes the documents and the pages of the index, and returns the number of these.
    fn write(&mut self) -> Result<usize, PageError> {
        let (mut pages, mut page, mut bytes) = (0, Vec::new(), 0);
        let mut last: Option<ThreadInfo> = None;
        loop {
            let query = ThreadQuery::new().limit(INDEX_ROWS_MAX);
            let query = last.as_ref().map_or(query.clone(), |last| query.after(last));
            let listed = self.store.threads_with(query)?;
            let Some(end) = listed.last() else { break };
            last = Some(end.clone());
            for info in listed {
                // A thread that was written meanwhile is listed again.
                if !self.seen.insert(hash(info.id().as_str())) {
                    continue;
                }
                let entry = ThreadEntry::read(self.store, info, false)?;
                self.document(&entry)?;
                let row = row(&entry);
                if page.len() == INDEX_ROWS_MAX || bytes + row.len() > INDEX_BYTES_MAX && !page.is_empty() {
                    self.index(pages, &page, true)?;
                    (pages, bytes) = (pages + 1, 0);
                    page.clear();
                }
                bytes += row.len();
                page.push(IndexRow::new(&entry, row));
                self.summary.threads += 1;
            }
        }
        self.index(pages, &page, false)?;
        Ok(pages + 1)
    }

    /// Writes the document of a thread, if it has changed.
    fn document(&mut self, entry: &ThreadEntry) -> Result<(), PageError> {
        let id = entry.info.id().as_str();
        let path = self.documents.join(document_name(id));
        let stamp = format!("{:016x} {}", hash(id), stamp(self.store, entry)?);
        let mark = mark_of(&path)?;
        if mark == FileMark::Own(stamp.clone()) {
            self.summary.unchanged += 1;
            return Ok(());
        }
        let frame = DocumentFrame {
            generator: &format!("{MARK}{stamp}"),
            index: Some("../index.html"),
            address: Some(document_name),
        };
        let written = replace(&path, |out| {
            let head = self.store.thread(id)?.at(entry.info.head())?;
            write_framed(&head, None, &frame, out).map(|_| ())
        });
        match written {
            Ok(()) => self.summary.written += 1,
            // A damaged thread does not end the site.
            Err(PageError::Read(error)) => self.summary.unread.push((id.to_owned(), error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes a page of the index.
    fn index(&self, number: usize, rows: &[IndexRow], has_older: bool) -> Result<(), PageError> {
        let mut html = Html::new();
        document_head(&mut html, self.name, &format!("{MARK}index"));
        html.open("div", &[("class", "head")]).element("h1", &[("dir", "auto")], &shortened(self.name, 120));
        html.open("p", &[("class", "facts")]);
        let note = if number > 0 { format!("page {}", number + 1) } else { "the last active first".to_owned() };
        html.element("span", &[], &note).element("span", &[], "times in UTC").close("p").close("div");
        for (at, of_day) in rows.chunk_by(|a, b| a.day == b.day).enumerate() {
            html.open("section", &[("class", "day")]).open("div", &[("class", "colhead")]).open("h2", &[]);
            html.text(&of_day[0].date).classed("span", "dim", &of_day.len().to_string()).close("h2");
            if at == 0 {
                columns(&mut html);
            }
            html.close("div");
            let mut sorted: Vec<&IndexRow> = of_day.iter().collect();
            // The sort is stable: within a project the last active stays first.
            sorted.sort_by(|a, b| (a.project.is_none(), &a.project).cmp(&(b.project.is_none(), &b.project)));
            for of_project in sorted.chunk_by(|a, b| a.project == b.project) {
                if let Some(project) = &of_project[0].project {
                    html.open("h3", &[("class", "of-project"), ("dir", "auto")]).value(project).close("h3");
                }
                html.open("ol", &[]);
                of_project.iter().for_each(|row| _ = html.add(&row.row));
                html.close("ol");
            }
            html.close("section");
        }
        if rows.is_empty() {
            html.literal("<div class=\"empty\"><b>No thread is here.</b></div>");
        }
        html.open("p", &[("class", "facts next")]);
        for (is_there, name, text) in [
            (number > 0, index_name(number.saturating_sub(1)), "newer threads"),
            (has_older, index_name(number + 1), "older threads"),
        ] {
            if is_there {
                html.open("span", &[]).element("a", &[("href", &name), ("class", "link")], text).close("span");
            }
        }
        html.literal("</p></main></body></html>\n");
        let path = self.folder.join(index_name(number));
        mark_of(&path)?;
        let markup = html.into_markup();
        if fs::read(&path).is_ok_and(|before| before == markup.as_bytes()) {
            return Ok(());
        }
        replace(&path, |out| out.write_all(markup.as_bytes()).map_err(|source| unusable(&path, source)))
    }

    /// Removes what the site no longer has: documents of threads that are not listed, and pages of the index.
    fn clean(&mut self, pages: usize) -> Result<(), PageError> {
        for folder in [self.folder, &self.documents.clone()] {
            for entry in fs::read_dir(folder).map_err(|source| unusable(folder, source))? {
                let path = entry.map_err(|source| unusable(folder, source))?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if name.ends_with(UNFINISHED) {
                    remove_unfinished(&path)?;
                    continue;
                }
                let Ok(FileMark::Own(mark)) = mark_of(&path) else { continue };
                let is_there = match mark.split_once(' ') {
                    Some((id, _)) => u64::from_str_radix(id, 16).is_ok_and(|hash| self.seen.contains(&hash)),
                    None => (0..pages).any(|number| index_name(number) == name),
                };
                if !is_there {
                    fs::remove_file(&path).map_err(|source| unusable(&path, source))?;
                    self.summary.removed += 1;
                }
            }
        }
        Ok(())
    }
}

/// A row of the index.
struct IndexRow {
    day: i64,
    date: String,
    project: Option<String>,
    row: Html,
}

impl IndexRow {
    fn new(entry: &ThreadEntry, row: Html) -> Self {
        let at = entry.info.updated_at;
        let project = entry.info.facts.project.as_deref().map(|project| shortened(project, 60));
        Self { day: day(at), date: dated(at), project, row }
    }
}

/// Returns a date with its year.
fn dated(at: Timestamp) -> String {
    format!("{} {}", date(at), at.to_string().chars().take(4).collect::<String>())
}

fn row(entry: &ThreadEntry) -> Html {
    let address = format!("{DOCUMENTS}/{}", document_name(entry.info.id().as_str()));
    let mut html = Html::new();
    entry.row(&mut html, &RowLink { address: &address, now: None });
    html
}

/// Returns the first 64 bits of the hash of a text.
fn hash(text: &str) -> u64 {
    Sha256::digest(text.as_bytes()).iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// Returns a text that differs if the document of a thread would differ.
fn stamp(store: &Store, entry: &ThreadEntry) -> Result<String, PageError> {
    let (info, facts) = (&entry.info, &entry.info.facts);
    let forks = store.thread(info.id())?.forks()?;
    let forks: Vec<String> = forks.iter().map(ToString::to_string).collect();
    let shown = [
        STYLE,
        env!("CARGO_PKG_VERSION"),
        &info.head().to_string(),
        &info.updated_at.to_string(),
        entry.words().unwrap_or_default(),
        facts.project.as_deref().unwrap_or_default(),
        &info.partial.as_ref().map(|half| format!("{} {}", half.words, half.updated)).unwrap_or_default(),
        &forks.join("\0"),
    ];
    Ok(format!("{:016x}", hash(&shown.join("\0"))))
}

/// Returns the name of the document of a thread: readable letters of its id, and a hash that tells it apart.
fn document_name(id: &str) -> String {
    let readable: String =
        id.chars().take(40).map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    format!("{}-{:016x}.html", readable.trim_matches('-').to_ascii_lowercase(), hash(id))
}

fn index_name(number: usize) -> String {
    if number == 0 { "index.html".to_owned() } else { format!("index-{}.html", number + 1) }
}

/// Returns the mark of a file.
fn mark_of(path: &Path) -> Result<FileMark, PageError> {
    let foreign = || PageError::ForeignFile { path: path.display().to_string() };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileMark::Absent),
        Err(source) => return Err(unusable(path, source)),
        Ok(metadata) if !metadata.is_file() => return Err(foreign()),
        Ok(_) => {}
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(|source| unusable(path, source))?;
    file.take(MARK_BYTES_MAX as u64).read_to_end(&mut head).map_err(|source| unusable(path, source))?;
    let head = String::from_utf8_lossy(&head);
    let content = head.strip_prefix(BEGIN).and_then(|rest| rest.strip_prefix(MARK)?.split_once('"'));
    content.map(|(mark, _)| FileMark::Own(mark.to_owned())).ok_or_else(foreign)
}

/// Writes a file beside another one and puts it in its place, so that no reader sees a half of it. It is for its owner,
/// as the store is.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), PageError>) -> Result<(), PageError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    remove_unfinished(&unfinished)?;
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&unfinished).map_err(|source| unusable(&unfinished, source))?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out)
        .and_then(|()| out.flush().map_err(|source| unusable(&unfinished, source)))
        .and_then(|()| fs::rename(&unfinished, path).map_err(|source| unusable(path, source)));
    if written.is_err() {
        // An error of the removal is dropped: the first error is reported.
        _ = fs::remove_file(&unfinished);
    }
    written
}

/// Removes a file that an earlier run has left behind.
fn remove_unfinished(path: &Path) -> Result<(), PageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(path, error)),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, source: io::Error) -> PageError {
    PageError::Folder { path: path.display().to_string(), source }
}
