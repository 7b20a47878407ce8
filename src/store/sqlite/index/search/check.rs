//! A check of the search index: the grams of the log and those of the index are compared.
//!
//! *Absent:* grams that no text of the log has. They find nothing.

use super::entry::entries_at;
use super::index::{IndexState, first_entry, grams_of, place_of};
use super::sql;
use crate::base::internal::hash::check64;
use crate::store::search::push_token;
use crate::store::sqlite::check::Checker;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::{FromColumns, Statements};
use rusqlite::params;
use std::collections::{HashMap, HashSet};

/// The entries of a gram: their number, and the sum of their hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Postings {
    entries: u64,
    sum: u64,
}

impl Postings {
    fn add(&mut self, entry: i64) {
        self.entries += 1;
        self.sum = self.sum.wrapping_add(check64(&entry.to_le_bytes()));
    }
}

impl Checker<'_> {
    /// Verifies that the index finds each gram of each text below its first entry that is not indexed.
    pub(crate) fn search(&mut self) -> Res<()> {
        let view = self.view;
        let Some(state) = IndexState::read(view.conn)? else { return Ok(()) };
        let stray: i64 = view.conn.one(sql::ERASE_STRAY, [])?;
        if stray > 0 {
            self.problem("search_erase", format!("{stray} rows belong to no deleted thread"));
        }
        let mut expected: HashMap<u32, Postings> = HashMap::new();
        // Some entries of these are deleted already.
        let mut deleted = HashSet::new();
        view.conn.each_while(sql::CHECKPOINTS_FROM, [0], |row| {
            let (seq, branch, ordinal, thread): (i64, i64, i64, Option<i64>) = FromColumns::read(row, 0)?;
            if first_entry(seq) >= state.next {
                return Ok(false);
            }
            let Some(thread) = thread else {
                deleted.insert(seq);
                return Ok(true);
            };
            for (entry, (key, channel)) in (first_entry(seq)..state.next).zip(entries_at(view, branch, ordinal)?) {
                let grams = grams_of(view, key, &channel, thread)?;
                grams
                    .iter()
                    .flat_map(|grams| grams.iter())
                    .for_each(|gram| expected.entry(gram).or_default().add(entry));
            }
            Ok(true)
        })?;
        let mut wrong = 0_u64;
        for (gram, expected) in expected {
            let mut token = String::from("\"");
            push_token(&mut token, gram);
            token.push('"');
            let mut found = Postings::default();
            view.conn.each(sql::ENTRIES, params![token, i64::MAX], |row| {
                let entry = i64::read(row, 0)?;
                if !deleted.contains(&place_of(entry).0) {
                    found.add(entry);
                }
                Ok(())
            })?;
            wrong += u64::from(found != expected);
        }
        if wrong > 0 {
            let reason = format!("{wrong} grams have other entries than the log; disable and enable the index anew");
            self.problem("search_text", reason);
        }
        Ok(())
    }
}
