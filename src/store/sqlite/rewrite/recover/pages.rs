//! The pages of a damaged file, wherever they lie in it.
//!
//! Bytes that were inserted into a file, or taken away, displace the pages behind them. A page of a tree is known by
//! its header, and its number by the page above it: the greatest row of a leaf is the number beside the page in the one
//! above. A translation of line ends is undone as a whole. *Absent:* the numbers of pages of a chain, which are taken
//! to be displaced as the pages around them are.

use super::cells::{PAGE, PageKind, TreePage, word};
use crate::store::sqlite::file::record::decode;
use rusqlite::types::Value;
use std::cell::{Cell as Flag, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// A page, read.
pub(super) type PageBytes = Vec<u8>;

/// The pages of a file.
pub(super) struct FilePages {
    file: RefCell<File>,
    bytes: u64,
    /// The places at which pages of trees begin.
    pub(super) found: Vec<u64>,
    /// The distances of a page, and of those after it, from their places in a sound file.
    shifts: BTreeMap<u32, i64>,
    /// True if a read of the file failed.
    failed: Flag<bool>,
}

impl FilePages {
    /// Finds the pages of trees in a file.
    pub(super) fn read(mut file: File) -> io::Result<Self> {
        let bytes = file.seek(SeekFrom::End(0))?;
        let file = RefCell::new(file);
        let mut pages = Self { file, bytes, found: Vec::new(), shifts: BTreeMap::new(), failed: Flag::new(false) };
        let mut gap = None;
        for place in (0..bytes / PAGE as u64).map(|page| page * PAGE as u64) {
            if pages.at(place).is_some_and(|page| tree_page(&page).is_some()) {
                pages.displaced(gap.take(), place);
                pages.found.push(place);
            } else {
                gap.get_or_insert(place);
            }
        }
        pages.displaced(gap, bytes);
        Ok(pages)
    }

    /// Looks for displaced pages where no page begins at its place.
    fn displaced(&mut self, from: Option<u64>, to: u64) {
        let Some(mut at) = from.filter(|_| !self.bytes.is_multiple_of(PAGE as u64)) else { return };
        let end = to.saturating_sub(PAGE as u64 - 1);
        while at < end {
            let step = STEP.min((end - at) as usize);
            let Some(window) = self.read_at(at, step + PAGE - 1) else { return };
            let mut begin = 0;
            while begin < step {
                let page = &window[begin..begin + PAGE];
                if TreePage::read(page).is_some_and(|page| is_whole(&page)) {
                    self.found.push(at + begin as u64);
                    begin += PAGE;
                } else {
                    begin += 1;
                }
            }
            at += begin as u64;
        }
    }

    fn read_at(&self, place: u64, bytes: usize) -> Option<Vec<u8>> {
        if place.checked_add(bytes as u64)? > self.bytes {
            return None;
        }
        let mut read = vec![0; bytes];
        let mut file = self.file.borrow_mut();
        let done = file.seek(SeekFrom::Start(place)).and_then(|_| file.read_exact(&mut read));
        self.failed.set(self.failed.get() || done.is_err());
        done.is_ok().then_some(read)
    }

    /// Returns whether all reads succeeded.
    pub(super) fn is_read(&self) -> bool {
        !self.failed.get()
    }

    /// Returns the page that begins at a place.
    pub(super) fn at(&self, place: u64) -> Option<PageBytes> {
        self.read_at(place, PAGE)
    }

    /// Returns the places at which the page with a number may lie, the likely one first.
    pub(super) fn places(&self, number: u32) -> Vec<u64> {
        let before = self.shifts.range(..=number).next_back().map(|(_, shift)| *shift);
        let after = self.shifts.range(number..).next().map(|(_, shift)| *shift).or(before).unwrap_or_default();
        let before = before.unwrap_or(after);
        let mut shifts = vec![before];
        shifts.extend([after, 0].into_iter().filter(|shift| *shift != before));
        shifts.dedup();
        let place = |shift| (i64::from(number) - 1).checked_mul(PAGE as i64)?.checked_add(shift);
        shifts.into_iter().filter_map(|shift| u64::try_from(place(shift)?).ok()).collect()
    }

    /// Returns the page with a number, and its place.
    pub(super) fn page(&self, number: u32) -> Option<(u64, PageBytes)> {
        // The first page has the header of the file before its own.
        let place = self.places(number).into_iter().find(|place| *place > 0)?;
        Some((place, self.at(place)?))
    }

    /// Returns a record, of which a page holds the first bytes.
    pub(super) fn record(&self, local: &[u8], length: usize, first: Option<u32>) -> Option<Vec<Value>> {
        let Some(first) = first else { return decode(local) };
        let chains = self.places(first).len();
        (0..chains).find_map(|choice| decode(&self.chain(local, length, first, choice)?))
    }

    /// Follows a chain of pages to its end. Pages with several places are looked for at the one with the number
    /// `choice`.
    fn chain(&self, local: &[u8], length: usize, first: u32, choice: usize) -> Option<Vec<u8>> {
        if length as u64 > self.bytes {
            return None;
        }
        let (mut bytes, mut next) = (local.to_vec(), first);
        while bytes.len() < length {
            let places = self.places(next);
            let page = self.at(*places.get(choice).or_else(|| places.first())?)?;
            let part = (length - bytes.len()).min(PAGE - 4);
            bytes.extend_from_slice(&page[4..4 + part]);
            next = word(&page, 0)?;
        }
        (next == 0).then_some(bytes)
    }

    /// Finds how far pages are displaced, if they are.
    pub(super) fn locate(&mut self) {
        let (mut last_rows, mut children): (HashMap<i64, Vec<u64>>, Vec<(u32, i64)>) = Default::default();
        for place in &self.found {
            let Some(bytes) = self.at(*place) else { continue };
            let Some(page) = tree_page(&bytes).filter(|page| page.kind.is_of_table()) else { continue };
            if page.kind == PageKind::TableInterior {
                let cells = (0..page.count).filter_map(|index| page.cell(index));
                children.extend(cells.filter_map(|cell| Some((cell.child?, cell.rowid?))));
            } else if let Some(last) = page.cell(page.count - 1).and_then(|cell| cell.rowid) {
                last_rows.entry(last).or_default().push(*place);
            }
        }
        let expected = |page: u32| (i64::from(page) - 1) * PAGE as i64;
        let shifts_of = |(page, key): &(u32, i64)| -> Vec<i64> {
            let leaves = last_rows.get(key);
            leaves.into_iter().flatten().map(|place| *place as i64 - expected(*page)).collect()
        };
        let mut votes: HashMap<i64, usize> = HashMap::new();
        for child in &children {
            shifts_of(child).into_iter().for_each(|shift| *votes.entry(shift).or_default() += 1);
        }
        for child in &children {
            let best = shifts_of(child).into_iter().max_by_key(|shift| (votes.get(shift).copied(), *shift == 0));
            if let Some(shift) = best.filter(|shift| votes.get(shift).is_some_and(|votes| *votes > 1)) {
                self.shifts.insert(child.0, shift);
            }
        }
        if self.shifts.values().all(|shift| *shift == 0) {
            self.shifts.clear();
        }
    }

    /// Returns whether pages are displaced.
    pub(super) fn is_displaced(&self) -> bool {
        !self.shifts.is_empty()
    }

    /// Returns the pages of trees that a walk has not seen, in their order in the file.
    pub(super) fn unseen<'p>(&'p self, seen: &'p BTreeSet<u64>) -> impl Iterator<Item = PageBytes> + 'p {
        self.found.iter().filter(|place| !seen.contains(place)).filter_map(|place| self.at(*place))
    }
}

/// Bytes of a file that are searched at once for displaced pages.
const STEP: usize = 1 << 20;

/// Returns a page of a tree, if bytes are one. If its header is damaged, the kind follows from its cells.
pub(super) fn tree_page(bytes: &[u8]) -> Option<TreePage<'_>> {
    let read = TreePage::read(bytes).filter(|page| (0..page.count).any(|index| page.cell(index).is_some()));
    read.or_else(|| {
        let kinds = [PageKind::TableLeaf, PageKind::IndexLeaf, PageKind::TableInterior, PageKind::IndexInterior];
        kinds.into_iter().find_map(|kind| TreePage::guess(bytes, kind).filter(is_whole))
    })
}

/// Returns whether all cells of a page can be read, with the records that it holds as a whole.
fn is_whole(page: &TreePage<'_>) -> bool {
    (0..page.count).all(|index| page.is_sound(index))
}

/// Returns whether each line feed of a file follows a carriage return, as after a translation of line ends.
pub(super) fn is_translated(file: File) -> io::Result<bool> {
    let (mut feeds, mut before) = (0_u64, 0);
    for byte in BufReader::new(file).bytes() {
        let byte = byte?;
        if byte == b'\n' {
            if before != b'\r' {
                return Ok(false);
            }
            feeds += 1;
        }
        before = byte;
    }
    Ok(feeds >= FEEDS)
}

/// Line feeds that a file of a store has at least: in a page of chance bytes there are 16.
const FEEDS: u64 = 16;

/// Copies a file without the carriage returns before its line feeds.
pub(super) fn untranslate(from: File, to: File) -> io::Result<()> {
    let mut copy = BufWriter::new(to);
    let mut held = false;
    for byte in BufReader::new(from).bytes() {
        let byte = byte?;
        if held && byte != b'\n' {
            copy.write_all(b"\r")?;
        }
        held = byte == b'\r';
        if !held {
            copy.write_all(&[byte])?;
        }
    }
    if held {
        copy.write_all(b"\r")?;
    }
    copy.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translation_of_line_ends_is_undone_and_no_other_file_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let [sound, translated, undone] = ["sound", "translated", "undone"].map(|name| folder.path().join(name));
        let content: Vec<u8> = (0..8_192_u32).map(|n| (n % 251) as u8).chain(*b"a\r\nb\r\r\nc\r").collect();
        std::fs::write(&sound, &content).unwrap();
        let doubled: Vec<u8> =
            content.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect();
        std::fs::write(&translated, doubled).unwrap();
        let open = |path| File::open(path).unwrap();
        assert!(!is_translated(open(&sound)).unwrap() && is_translated(open(&translated)).unwrap());
        untranslate(open(&translated), File::create(&undone).unwrap()).unwrap();
        assert_eq!(std::fs::read(&undone).unwrap(), content);
    }
}
