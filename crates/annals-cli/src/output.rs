//! Prints lines and documents on stdout. Invariant: no character of the data controls the terminal.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use annals_view::words;
pub(crate) use annals_view::words::{ago, grouped, size};
use serde_json::Value as Json;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::args::ColourChoice;
use crate::interrupt;
use crate::pager::PagerProcess;
use crate::progress;

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    /// Lines for people.
    Text,
    /// One JSON document.
    Json,
    /// A line of JSON for each item of the list in the document.
    JsonLines,
}

/// The output of a command on stdout.
pub(crate) struct Printer {
    out: BufWriter<Box<dyn Write>>,
    format: DocumentFormat,
    colour: bool,
    is_terminal: bool,
    /// The cells of a row of the terminal; `None` without one.
    width: Option<usize>,
}

/// Stdout, before whose first byte the progress is cleared.
struct ClearingStdout(io::Stdout);

impl Write for ClearingStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        progress::clear();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Printer {
    /// Makes the output on stdout; with `is_paged` through a pager, if stdout is a terminal.
    pub(crate) fn stdout(format: DocumentFormat, choice: ColourChoice, is_paged: bool) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let width = if is_terminal { terminal_width(own_width(&stdout)) } else { None };
        let colour = match choice {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => colour_wanted(is_terminal),
        };
        let is_paged = is_paged && is_terminal && format == DocumentFormat::Text;
        let pager = if is_paged { PagerProcess::start() } else { None };
        let out: Box<dyn Write> = match pager {
            Some(pager) => {
                interrupt::leave_to_pager();
                Box::new(pager)
            }
            None => Box::new(ClearingStdout(stdout)),
        };
        Self { out: BufWriter::new(out), format, colour, is_terminal, width }
    }

    /// Returns the cells of an id in a table: all that it needs in a pipe, from which it is copied, and half of a row
    /// of a terminal.
    pub(crate) fn id_cells(&self) -> usize {
        self.width.map_or(usize::MAX, |width| (width / 2).max(40))
    }

    /// Returns whether the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format != DocumentFormat::Text
    }

    /// Returns whether the output is a line of JSON for each item, which can be printed before the next one is read.
    pub(crate) fn is_lines(&self) -> bool {
        self.format == DocumentFormat::JsonLines
    }

    pub(crate) fn line(&mut self, line: impl Display) -> io::Result<()> {
        let line = line.to_string();
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Prints a row of a table; on a terminal without what does not fit.
    pub(crate) fn row(&mut self, line: impl Display) -> io::Result<()> {
        let line = line.to_string();
        match self.width {
            Some(width) => writeln!(self.out, "{}", fitted(line.trim_end(), width)),
            None => writeln!(self.out, "{}", line.trim_end()),
        }
    }

    /// Prints the document of this command. As lines it is the items of its list, each with the number of the schema; a
    /// document without a list is one line.
    pub(crate) fn json(&mut self, document: &Json) -> io::Result<()> {
        if self.format != DocumentFormat::JsonLines {
            return writeln!(self.out, "{}", json_text(document));
        }
        let Some(items) = listed(document) else { return self.json_line(document) };
        for item in items {
            self.json_line(&item)?;
        }
        Ok(())
    }

    /// Prints a line as it is; on a terminal without characters that control it.
    pub(crate) fn raw_line(&mut self, line: &str) -> io::Result<()> {
        if !self.is_terminal {
            return writeln!(self.out, "{line}");
        }
        let safe: String = line.split('\n').map(escape).collect::<Vec<_>>().join("\n");
        writeln!(self.out, "{safe}")
    }

    /// Prints a script or a page that the command made of its own texts.
    pub(crate) fn script(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Prints one of several documents, on one line.
    pub(crate) fn json_line(&mut self, document: &Json) -> io::Result<()> {
        writeln!(self.out, "{}", safe_json(&document.to_string()))
    }

    /// Prints a part of the document of this command, which is printed as it comes.
    pub(crate) fn json_part(&mut self, text: &str) -> io::Result<()> {
        write!(self.out, "{}", safe_json(text))
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns whether stdout is a pipe whose reader is gone.
    #[cfg(unix)]
    pub(crate) fn reader_is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let stdout = io::stdout();
        let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
        let ready = poll(&mut stdout, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        ready.is_ok() && stdout[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Returns false: a reader that is gone shows at the next line.
    #[cfg(not(unix))]
    pub(crate) fn reader_is_gone(&self) -> bool {
        false
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    /// The colour of ids.
    pub(crate) fn id(&self, text: &str) -> String {
        self.paint("35", text)
    }

    /// The colour of due tasks and open interrupts.
    pub(crate) fn open(&self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn added(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn removed(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a command line takes its look from the environment; the library does not"
)]
fn colour_wanted(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("NO_COLOR") {
        return false;
    }
    let is_forced = is_set("CLICOLOR_FORCE") && std::env::var_os("CLICOLOR_FORCE").is_none_or(|value| value != "0");
    is_forced || (is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
}

/// Returns the cells of a row: those that `COLUMNS` says, or those of the terminal.
#[allow(
    clippy::disallowed_methods,
    reason = "a command line takes its look from the environment; the library does not"
)]
fn terminal_width(own: Option<usize>) -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or(own).filter(|columns| *columns > 0)
}

/// Returns the cells of a row of stderr; `None` if they are not known.
pub(crate) fn error_width() -> Option<usize> {
    terminal_width(own_width(&io::stderr()))
}

#[cfg(unix)]
fn own_width(terminal: &impl std::os::fd::AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn own_width<T>(_: &T) -> Option<usize> {
    None
}

/// Cuts a painted line to cells of the terminal. A colour takes none, and is ended where the line is cut.
fn fitted(line: &str, width: usize) -> Cow<'_, str> {
    let (mut text, mut cells, mut painted, mut rest) = (String::new(), 0, false, line);
    while let Some(c) = rest.chars().next() {
        if let Some(end) = rest.strip_prefix("\x1b[").and_then(|code| code.find('m')) {
            let (code, after) = rest.split_at(end + 3);
            text.push_str(code);
            (painted, rest) = (code != "\x1b[0m", after);
            continue;
        }
        cells += c.width().unwrap_or_default();
        if cells > width {
            text.push_str(if painted { "\x1b[0m" } else { "" });
            debug_assert!(text.len() <= line.len() + 4, "a cut line is shorter");
            return Cow::Owned(text);
        }
        text.push(c);
        rest = &rest[c.len_utf8()..];
    }
    Cow::Borrowed(line)
}

/// Returns the items of the list of a document, each with the number of the schema.
fn listed(document: &Json) -> Option<Vec<Json>> {
    let is_list = |value: &&Json| value.as_array().is_some_and(|items| items.iter().all(Json::is_object));
    let with_schema = |members: serde_json::Map<String, Json>| {
        let schema = [("schema".to_owned(), document["schema"].clone())];
        Json::Object(schema.into_iter().chain(members).collect())
    };
    let list = document.as_object()?.values().find(is_list)?.as_array()?;
    Some(list.iter().filter_map(Json::as_object).cloned().map(with_schema).collect())
}

/// True if notes are dropped.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Drops the notes of this process.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Returns whether notes and progress are dropped.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes a message to stderr. A closed stderr is ignored.
pub(crate) fn note(text: impl Display) {
    if is_quiet() {
        return;
    }
    progress::clear();
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// Returns whether a character controls a terminal or reorders a line.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Makes data safe to print within a line.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if is_unsafe(c) => _ = write!(safe, "\\u{{{:x}}}", u32::from(c)),
            c => safe.push(c),
        }
    }
    debug_assert!(!safe.contains(is_unsafe));
    Cow::Owned(safe)
}

/// Makes a text safe to print as lines; tabs become spaces.
pub(crate) fn safe_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| escape(&line.replace('\t', "    ")).into_owned())
}

/// Cuts a text to `max` cells of the terminal.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    // A cell needs at least one byte.
    if text.len() <= max || text.width() <= max {
        return Cow::Borrowed(text);
    }
    let (mut cells, mut end) = (0, 0);
    for (at, c) in text.char_indices() {
        cells += c.width().unwrap_or_default();
        if cells > max.saturating_sub(3) {
            break;
        }
        end = at + c.len_utf8();
    }
    let short = format!("{}...", &text[..end]);
    debug_assert!(max < 3 || short.width() <= max);
    Cow::Owned(short)
}

/// Returns the text of a document. Characters that JSON allows in strings but that control a terminal are escaped.
pub(crate) fn json_text(document: &Json) -> String {
    safe_json(&format!("{document:#}")).into_owned()
}

/// Escapes characters of a document that control a terminal.
fn safe_json(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    debug_assert!(!safe.contains(|c| is_unsafe(c) && c != '\n'));
    Cow::Owned(safe)
}

/// Writes lines of JSON to stdout, each made safe to print.
pub(crate) struct SafeLines<'a> {
    out: &'a mut Printer,
    /// The beginning of a line without its end.
    rest: Vec<u8>,
}

impl<'a> SafeLines<'a> {
    pub(crate) fn new(out: &'a mut Printer) -> Self {
        Self { out, rest: Vec::new() }
    }
}

impl Write for SafeLines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end > 0 {
            self.rest.extend_from_slice(&bytes[..end]);
            self.out.out.write_all(safe_json(&String::from_utf8_lossy(&self.rest)).as_bytes())?;
            self.rest.clear();
        }
        self.rest.extend_from_slice(&bytes[end..]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a number with its noun.
pub(crate) fn count(n: usize, noun: &str) -> String {
    words::count(n as u64, noun)
}

/// Lays rows out in columns of terminal cells; the last column is not padded.
pub(crate) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    ColumnWidths::default().lay(rows)
}

/// The widths of columns so far. A table that is printed in parts grows wider at a part with a longer cell.
#[derive(Default)]
pub(crate) struct ColumnWidths(Vec<usize>);

impl ColumnWidths {
    /// Lays out the rows of a part.
    pub(crate) fn lay(&mut self, rows: &[Vec<String>]) -> Vec<String> {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            self.0.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.width().max(*width));
        }
        let lay = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.0).map(|(cell, width)| format!("{cell}{:1$}", "", width - cell.width()));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(lay).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(escape("a\x1b[31m\n\u{202e}b\u{9b}"), "a\\u{1b}[31m\\n\\u{202e}b\\u{9b}");
        assert!(matches!(escape("plain — text"), Cow::Borrowed(_)));
        let document = serde_json::json!({ "a": "\u{202e}\x1b\u{7f}\u{e0001}" });
        let text = json_text(&document);
        assert!(!text.contains(|c| is_unsafe(c) && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), document);
        assert_eq!(safe_lines("a\tb\nc\rd").collect::<Vec<_>>(), ["a    b", "c\\rd"]);
    }

    #[test]
    fn a_row_is_cut_to_cells_and_its_colour_ends() {
        assert_eq!(fitted("名前 \x1b[35mabc\x1b[0m def", 7), "名前 \x1b[35mab\x1b[0m");
        assert_eq!(fitted("名前", 3), "名");
        assert_eq!(fitted("\x1b[2mabc\x1b[0m", 3), "\x1b[2mabc\x1b[0m");
        assert_eq!(fitted("abc", 0), "");
    }

    #[test]
    fn the_list_of_a_document_is_lines() {
        let document = serde_json::json!({ "schema": 1, "thread": "t", "steps": [{ "a": 1 }], "more": false });
        assert_eq!(listed(&document), Some(vec![serde_json::json!({ "schema": 1, "a": 1 })]));
        assert_eq!(listed(&serde_json::json!({ "schema": 1, "path": "a" })), None);
    }

    #[test]
    fn texts_are_laid_out_and_cut_by_cells() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("äbcdefg", 6), "äbc...");
        assert_eq!(columns(&[vec!["a".into(), "b".into()], vec!["long".into(), "c".into()]]), ["a     b", "long  c"]);
        assert_eq!(columns(&[vec!["名前".into(), "b".into()], vec!["abc".into(), "c".into()]]), ["名前  b", "abc   c"]);
        assert_eq!(cut("名前名前", 7), "名前...");
    }
}
