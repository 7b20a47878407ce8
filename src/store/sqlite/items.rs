//! Reading the items of a list: per slot the newest row of the lineage, unless a later cut freed the slot.
//!
//! A lineage of one branch is streamed from one join with `payload`. Anything else is resolved first, from rows
//! without their values, and then each value that lives is fetched.

use super::changes::{PUT, REMOVE, SHARE, cut_slot};
use super::fault::{Res, corrupt};
use super::lineage::{self, Span};
use super::names::Kind;
use super::pack::{Cut, Stored, unpack_cuts, unpack_share};
use super::read::View;
use super::rows::{Payloads, Room, decode, inline_value};
use super::sql;
use super::sums::PayloadRef;
use crate::base::limits::SHARED_LISTS_MAX;
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::{CheckpointRef, ItemRow};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A caller that takes items one by one.
pub(super) type Visit<'v> = &'v mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>;

/// The rows of one channel along one lineage.
pub(super) struct List<'a> {
    view: View<'a>,
    channel: i64,
    spans: Vec<Span>,
    cuts: Cuts,
    /// The list it began as.
    pub(super) shares: Option<Shares>,
}

/// That a list began as another one.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    /// The checkpoint of the other one, and its channel.
    pub(super) seq: i64,
    pub(super) channel: i64,
    /// When and by which task it began.
    ordinal: i64,
    task: Option<u32>,
}

/// A row of `item` without its value.
#[derive(Clone, Copy)]
struct Slot {
    branch: i64,
    slot: i64,
    ordinal: i64,
    op: i64,
    task: Option<u32>,
    stored: Stored,
    /// When and by which task it came into the list that is read, if that shares it.
    shared: Option<(i64, Option<u32>)>,
}

/// For every slot, the ordinal of the last cut over it.
struct Cuts(BTreeMap<u64, i64>);

impl Cuts {
    /// Paints a cut that is newer than those painted before.
    fn paint(&mut self, first: u64, end: u64, ordinal: i64) {
        let after = self.at(end);
        let covered: Vec<u64> = self.0.range(first..end).map(|(&start, _)| start).collect();
        covered.iter().for_each(|start| _ = self.0.remove(start));
        self.0.insert(first, ordinal);
        if end < u64::MAX {
            self.0.insert(end, after);
        }
    }

    fn at(&self, slot: u64) -> i64 {
        self.0.range(..=slot).next_back().map_or(-1, |(_, &ordinal)| ordinal)
    }

    /// Returns whether a row of `ordinal` at `slot` was cut later. The cuts of its own change came before it.
    fn killed(&self, slot: i64, ordinal: i64) -> bool {
        !self.0.is_empty() && self.at(slot as u64) > ordinal
    }
}

impl View<'_> {
    /// Visits the items of a list at a checkpoint.
    pub(super) fn items(self, at: &CheckpointRef, channel: &str, range: ItemRange, visit: Visit<'_>) -> Res<()> {
        let (_, branch, ordinal) = self.place(at)?;
        let Some(channel) = self.names.find(self.conn, Kind::List, channel)? else { return Ok(()) };
        let list = List::read(self, branch, ordinal, channel)?;
        match range {
            ItemRange::Tail(count) => list.tail(count, visit),
            ItemRange::All => list.range(0, i64::MAX, visit),
            ItemRange::Slots(first, end) if first < end => {
                list.range(i64::try_from(first).unwrap_or(i64::MAX), i64::try_from(end - 1).unwrap_or(i64::MAX), visit)
            }
            ItemRange::Slots(..) => Ok(()),
        }
    }
}

/// What is said of more than a slot at one ordinal.
enum Whole {
    Cuts(Vec<Cut>),
    Shares(Shares),
}

impl Cuts {
    /// Reads the cuts along a lineage, and what the list began as, if that is not cut away as a whole.
    fn read(view: View<'_>, channel: i64, spans: &[Span]) -> Res<(Self, Option<Shares>)> {
        let mut cuts = Self(BTreeMap::new());
        let mut shares = None;
        let mut statement = view.conn.prepare_cached(sql::CUTS)?;
        // Oldest first: the ancestors before the child, and within a branch the greatest negative slot first.
        for span in spans.iter().rev() {
            let mut rows = statement.query(params![span.branch, channel, cut_slot(span.last), cut_slot(0)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let (ordinal, op): (i64, i64) = (row.get(0)?, row.get(1)?);
                let bytes = row.get_ref(3)?.as_blob().ok();
                let whole = if op == SHARE {
                    let task = row.get(2)?;
                    let shares = |(seq, channel)| Whole::Shares(Shares { seq, channel, ordinal, task });
                    bytes.and_then(unpack_share).map(shares)
                } else {
                    bytes.and_then(unpack_cuts).map(Whole::Cuts)
                };
                let whole = whole.ok_or_else(|| {
                    corrupt(item_place(span.branch, channel, cut_slot(ordinal), ordinal), "its ranges are not readable")
                })?;
                found.push((ordinal, whole));
            }
            found.sort_by_key(|(ordinal, _)| *ordinal);
            for (ordinal, whole) in found {
                match whole {
                    Whole::Cuts(ranges) => ranges.iter().for_each(|cut| {
                        shares = shares.filter(|_| (cut.first, cut.end) != (0, u64::MAX));
                        cuts.paint(cut.first, cut.end, ordinal);
                    }),
                    Whole::Shares(new) => {
                        cuts.paint(0, u64::MAX, ordinal);
                        shares = Some(new);
                    }
                }
            }
        }
        Ok((cuts, shares))
    }
}

impl<'a> List<'a> {
    /// Reads what is said of the list as a whole.
    pub(super) fn read(view: View<'a>, branch: i64, ordinal: i64, channel: i64) -> Res<Self> {
        let spans = lineage::spans(view.conn, branch, ordinal, 0)?;
        let (cuts, shares) = Cuts::read(view, channel, &spans)?;
        Ok(Self { view, channel, spans, cuts, shares })
    }

    fn range(&self, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        match (self.spans.as_slice(), self.shares) {
            ([span], None) => self.stream(*span, first, last, visit),
            _ => self.visit(&self.live(first, last, SHARED_LISTS_MAX)?, visit),
        }
    }

    /// Returns the rows that live, in the order of their slots. At most `below` lists lie below it.
    fn live(&self, first: i64, last: i64, below: usize) -> Res<Vec<Slot>> {
        let mut slots = self.own(first, last)?;
        match self.shares {
            Some(shares) => {
                let other = self.other(shares, below)?.live(first, last, below - 1)?;
                self.beside(shares, &mut slots, other);
            }
            None => self.resolve(&mut slots),
        }
        Ok(slots)
    }

    /// Returns the newest row of each slot, by branch.
    fn own(&self, first: i64, last: i64) -> Res<Vec<Slot>> {
        let mut slots = Vec::new();
        for span in &self.spans {
            let mut rows = self.view.conn.prepare_cached(sql::ITEMS)?;
            let rows = rows.query(params![span.branch, self.channel, first, last, span.last])?;
            self.collect(*span, rows, &mut slots)?;
        }
        Ok(slots)
    }

    /// Returns the list that this one began as.
    fn other(&self, shares: Shares, below: usize) -> Res<List<'a>> {
        let wrong =
            |reason| corrupt(format!("item (channel {}, list of checkpoint {})", self.channel, shares.seq), reason);
        if below == 0 {
            return Err(wrong("too many lists lie below one another"));
        }
        let other = self.view.list_at(shares.seq, shares.channel)?;
        other.ok_or_else(|| wrong("a list begins as it, but the checkpoint does not exist"))
    }

    /// Puts the rows of the list that this one began as beside its own, unless they are hidden.
    fn beside(&self, shares: Shares, slots: &mut Vec<Slot>, mut other: Vec<Slot>) {
        slots.sort_by_key(|slot| (slot.slot, Reverse(slot.ordinal)));
        slots.dedup_by_key(|slot| slot.slot);
        slots.retain(|slot| !self.cuts.killed(slot.slot, slot.ordinal));
        let is_hidden = |slot: i64| slots.binary_search_by_key(&slot, |own| own.slot).is_ok();
        other.retain(|slot| !is_hidden(slot.slot) && !self.cuts.killed(slot.slot, shares.ordinal));
        other.iter_mut().for_each(|slot| slot.shared = Some((shares.ordinal, shares.task)));
        slots.retain(|slot| slot.op != REMOVE);
        slots.append(&mut other);
        slots.sort_by_key(|slot| slot.slot);
    }

    /// Streams a list that lies in one branch.
    fn stream(&self, span: Span, first: i64, last: i64, visit: Visit<'_>) -> Res<()> {
        let conn = self.view.conn;
        let mut joined = conn.prepare_cached(sql::ITEMS_JOINED)?;
        let mut rows = joined.query(params![span.branch, self.channel, first, last, span.last])?;
        let mut room = Room::default();
        let mut done = None;
        while let Some(row) = rows.next()? {
            let slot: i64 = row.get(0)?;
            if done.replace(slot) == Some(slot) {
                continue;
            }
            let ordinal: i64 = row.get(1)?;
            if self.cuts.killed(slot, ordinal) {
                continue;
            }
            let place = || item_place(span.branch, self.channel, slot, ordinal);
            let payload = match row.get::<_, Option<i64>>(4)? {
                Some(form) => decode(conn, row, 4, form, &place, &mut room)?,
                None => match row.get_ref(3)? {
                    ValueRef::Blob(column) => inline_value(column, &place)?,
                    // A remove. That `op` says so too is left to a check: columns cost as much as seeks.
                    ValueRef::Null => continue,
                    _ => return Err(corrupt(place(), "its payload does not exist")),
                },
            };
            visit(item(slot, ordinal, row.get(2)?, payload))?;
        }
        Ok(())
    }

    /// Visits the last items.
    fn tail(&self, count: usize, visit: Visit<'_>) -> Res<()> {
        if count == 0 {
            return Ok(());
        }
        let slots = self.last(count, SHARED_LISTS_MAX)?;
        self.visit(&slots[slots.len().saturating_sub(count)..], visit)
    }

    /// Returns the last rows that live, at least `count` if there are so many.
    fn last(&self, count: usize, below: usize) -> Res<Vec<Slot>> {
        let Some(shares) = self.shares else { return self.last_own(count) };
        let own = self.own(0, i64::MAX)?;
        let other = self.other(shares, below)?;
        // Each row of its own hides one at most; a cut may hide more.
        let mut wanted = count.saturating_add(own.len());
        loop {
            let found = other.last(wanted, below - 1)?;
            let all = found.len() < wanted;
            let mut slots = own.clone();
            self.beside(shares, &mut slots, found);
            if slots.len() >= count || all {
                return Ok(slots);
            }
            wanted = wanted.saturating_mul(4);
        }
    }

    /// Returns the last rows of a list of its own. They are read backwards, more of them until enough live.
    fn last_own(&self, count: usize) -> Res<Vec<Slot>> {
        let mut limit = i64::try_from(count).unwrap_or(i64::MAX).saturating_add(16);
        loop {
            let mut slots = Vec::new();
            // Below this slot a branch has more rows than were read.
            let mut floor = -1;
            for span in &self.spans {
                let mut backwards = self.view.conn.prepare_cached(sql::ITEMS_BACKWARDS)?;
                let rows = backwards.query(params![span.branch, self.channel, span.last, limit])?;
                if self.collect(*span, rows, &mut slots)? == limit {
                    floor = slots.last().map_or(floor, |slot: &Slot| floor.max(slot.slot));
                }
            }
            slots.retain(|slot| slot.slot > floor);
            self.resolve(&mut slots);
            if slots.len() >= count || floor < 0 {
                return Ok(slots);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// Collects the newest row of each slot of a branch, whichever way the rows run. Returns how many were read.
    fn collect(&self, span: Span, mut rows: rusqlite::Rows<'_>, slots: &mut Vec<Slot>) -> Res<i64> {
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            let slot = self.slot(span, row)?;
            match slots.last_mut() {
                Some(last) if last.branch == slot.branch && last.slot == slot.slot => {
                    if slot.ordinal > last.ordinal {
                        *last = slot;
                    }
                }
                _ => slots.push(slot),
            }
        }
        Ok(count)
    }

    fn slot(&self, span: Span, row: &Row<'_>) -> Res<Slot> {
        let (slot, ordinal, op) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let stored = Stored::from_column(row.get_ref(4)?).filter(|stored| match stored {
            Stored::Null => op == REMOVE,
            _ => op == PUT,
        });
        let stored = stored.ok_or_else(|| {
            corrupt(
                item_place(span.branch, self.channel, slot, ordinal),
                "operation and value are not what the format says",
            )
        })?;
        Ok(Slot { branch: span.branch, slot, ordinal, op, task: row.get(3)?, stored, shared: None })
    }

    /// Keeps, in the order of slots, the rows that live.
    fn resolve(&self, slots: &mut Vec<Slot>) {
        slots.sort_by_key(|slot| (slot.slot, Reverse(slot.ordinal)));
        slots.dedup_by_key(|slot| slot.slot);
        slots.retain(|slot| slot.op != REMOVE && !self.cuts.killed(slot.slot, slot.ordinal));
    }

    fn visit(&self, slots: &[Slot], visit: Visit<'_>) -> Res<()> {
        let mut payloads = Payloads::new(self.view.conn)?;
        for slot in slots {
            let place = || item_place(slot.branch, self.channel, slot.slot, slot.ordinal);
            let (ordinal, task) = slot.shared.unwrap_or((slot.ordinal, slot.task));
            payloads.with(slot.stored, &place, |payload| Ok(visit(item(slot.slot, ordinal, task, payload))?))?;
        }
        Ok(())
    }
}

fn item(slot: i64, ordinal: i64, task: Option<u32>, payload: PayloadRef<'_>) -> ItemRow<'_> {
    let PayloadRef { codec, data, index } = payload;
    ItemRow { slot: slot as u64, ordinal: ordinal as u64, task, codec, data, index }
}

/// Names a row of `item`.
pub(super) fn item_place(branch: i64, channel: i64, slot: i64, ordinal: i64) -> String {
    let kind = if slot < 0 { "cut or share" } else { "slot" };
    format!("item (branch {branch}, channel {channel}, {kind} {slot}, ordinal {ordinal})")
}

#[cfg(test)]
mod tests {
    use super::Cuts;
    use std::collections::BTreeMap;

    #[test]
    fn a_later_cut_covers_an_earlier_one() {
        let mut cuts = Cuts(BTreeMap::new());
        cuts.paint(0, 10, 3);
        cuts.paint(4, 6, 7);
        cuts.paint(5, u64::MAX, 9);
        let at: Vec<i64> = [0, 3, 4, 5, 9, 10, 1 << 40].map(|slot| cuts.at(slot)).into();
        assert_eq!(at, [3, 3, 7, 9, 9, 9, 9]);
        assert!(cuts.killed(4, 6) && !cuts.killed(4, 7), "a put of the same change comes after its cut");
    }
}
