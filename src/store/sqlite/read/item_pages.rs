//! Reads the items of a list in pages: a page is read in one transaction, and visited after that has ended.
//!
//! A read transaction keeps the WAL from being copied past its snapshot. So it must not last as long as a visitor does,
//! which may write to a slow pipe. The list at a checkpoint never changes; an erasure of its thread between two pages
//! is an error of the next one.

use crate::base::{Codec, PayloadRef};
use crate::limits::{ITEM_PAGE_BYTES_MAX, ITEM_PAGE_ROWS_MAX};
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::{CheckpointRef, ItemIndexRef, ItemRow};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::view::ReadView;
use std::ops::Range;

/// Positions of the first window after a full page; a window without many items makes the next one longer.
const WINDOW: u64 = ITEM_PAGE_ROWS_MAX as u64;

/// Items that were read, in two buffers.
#[derive(Default)]
pub(crate) struct ItemPage {
    rows: Vec<PagedRow>,
    data: Vec<u8>,
    text: String,
}

struct PagedRow {
    position: u64,
    ordinal: u64,
    task: Option<u32>,
    codec: Codec,
    data: Range<usize>,
    index: Option<PagedIndex>,
}

struct PagedIndex {
    /// Id, kind, name, tool calls and text.
    texts: [Option<Range<usize>>; 5],
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
}

impl ItemPage {
    /// Returns whether the page ends here.
    fn is_full(&self) -> bool {
        self.rows.len() >= ITEM_PAGE_ROWS_MAX || self.data.len() + self.text.len() >= ITEM_PAGE_BYTES_MAX
    }

    fn push(&mut self, row: ItemRow<'_>) {
        let index = row.payload.index.map(|index| PagedIndex {
            texts: [index.id, index.kind, index.name, index.tool_calls, index.text]
                .map(|text| text.map(|text| self.add_text(text))),
            input_tokens: index.input_tokens,
            output_tokens: index.output_tokens,
        });
        let start = self.data.len();
        self.data.extend_from_slice(row.payload.data);
        let data = start..self.data.len();
        let (position, ordinal, task) = (row.position, row.ordinal, row.task);
        self.rows.push(PagedRow { position, ordinal, task, codec: row.payload.codec, data, index });
    }

    fn add_text(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    /// Visits the items of the page.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.rows.iter().try_for_each(|row| {
            let index = row.index.as_ref().map(|index| {
                let text = |at: usize| index.texts[at].clone().map(|range| &self.text[range]);
                let mut item = ItemIndexRef::default();
                (item.id, item.kind, item.name, item.tool_calls, item.text) =
                    (text(0), text(1), text(2), text(3), text(4));
                (item.input_tokens, item.output_tokens) = (index.input_tokens, index.output_tokens);
                item
            });
            let payload = PayloadRef::new(row.codec, &self.data[row.data.clone()], index);
            visit(ItemRow::new(row.position, row.ordinal, row.task, payload))
        })
    }
}

/// The rest of a list after the pages that were read.
pub(crate) struct ItemPages {
    next: ItemRange,
    window: u64,
    /// The position after the last item, once it is known.
    end: Option<u64>,
    /// The number of items that were read.
    count: u64,
    /// The number of items of all pages, if there is more than one and the end of the list tells it.
    expected: Option<u64>,
}

impl ItemPages {
    /// Begins to read a range.
    pub(crate) fn new(range: ItemRange) -> Self {
        Self { next: range, window: WINDOW, end: None, count: 0, expected: None }
    }

    /// Reads the next page in the transaction of a view; `None` after the last one.
    pub(crate) fn read(&mut self, view: ReadView<'_>, at: &CheckpointRef, channel: &str) -> Res<Option<ItemPage>> {
        let whole = self.next;
        if let ItemRange::Tail(count) = self.next
            && count > ITEM_PAGE_ROWS_MAX
        {
            // The tail begins at a position, from which on it is read forwards.
            let mut first = None;
            view.items(at, channel, self.next, &mut |row| {
                first.get_or_insert(row.position);
                Ok(())
            })?;
            let Some(first) = first else { return Ok(None) };
            self.next = ItemRange::Positions(first, u64::MAX);
        }
        let (start, wanted_end) = match self.next {
            ItemRange::Positions(first, end) => (first, end),
            ItemRange::All | ItemRange::Tail(_) => (0, u64::MAX),
        };
        let end = self.end.map_or(wanted_end, |end| end.min(wanted_end));
        if start >= end {
            return match self.expected {
                Some(expected) if expected != self.count => {
                    let place = format!("list {channel:?} of checkpoint {}", at.checkpoint);
                    Err(corrupt(place, format!("it has {} items, not {expected}", self.count)))
                }
                _ => Ok(None),
            };
        }
        // The first page is read to its end, wherever that is; once it was full, windows bound the work of a page.
        let window_end = self.end.map(|_| start.saturating_add(self.window).min(end));
        let range = window_end.map_or(self.next, |end| ItemRange::Positions(start, end));
        let mut page = ItemPage::default();
        let read = view.items(at, channel, range, &mut |row| {
            page.push(row);
            if page.is_full() { Err(end_of_page()) } else { Ok(()) }
        });
        self.count += page.rows.len() as u64;
        let last = page.rows.last().map(|row| row.position);
        match (page.is_full(), last) {
            (true, Some(last)) => self.next = ItemRange::Positions(last + 1, wanted_end),
            _ => {
                read?;
                self.next = ItemRange::Positions(window_end.unwrap_or(end), wanted_end);
                self.end.get_or_insert(0);
            }
        }
        if self.end.is_none() {
            self.end = Some(end_of_list(view, at, channel)?);
            self.expected = view.items_of_range(at, channel, whole)?;
        }
        if page.rows.len() < ITEM_PAGE_ROWS_MAX / 4 {
            self.window = self.window.saturating_mul(4);
        }
        Ok(Some(page))
    }
}

/// Returns the position after the last item of a list.
fn end_of_list(view: ReadView<'_>, at: &CheckpointRef, channel: &str) -> Res<u64> {
    let mut end = 0;
    view.items(at, channel, ItemRange::Tail(1), &mut |row| {
        end = row.position.saturating_add(1);
        Ok(())
    })?;
    Ok(end)
}

/// Ends the reading of a page; it is never returned.
fn end_of_page() -> StoreError {
    StoreError::Read { reason: "the page is full".into(), source: None }
}
