//! The places of the newest rows of all keys at the end of a branch, retained by the writer from one index snapshot to
//! the next.
//!
//! The next index snapshot is made from them, without a scan of the rows since the last one. *Absent:* reading the
//! places of a branch that the writer does not know, which is that of `lineage`.

use crate::limits::PLACES_CACHE_MAX;
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::rows::pack::RowPlace;
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, NO_CHANGES, VersionRow};
use std::collections::BTreeMap;

/// The places by branch.
#[derive(Debug, Default)]
pub(crate) struct BranchPlaces {
    ends: NumberMap<i64, BranchEnd>,
    /// Number of places that were added.
    count: usize,
}

/// The newest rows at the last checkpoint of a branch: branch and ordinal by key.
#[derive(Debug)]
struct BranchEnd {
    ordinal: i64,
    places: BTreeMap<i64, (i64, i64)>,
}

impl BranchPlaces {
    /// Begins with the places before a checkpoint.
    pub(crate) fn begin(&mut self, branch: i64, ordinal: i64, places: &[RowPlace]) {
        self.count += places.len() + 1;
        let places = places.iter().map(|(key, branch, ordinal)| (*key, (*branch, *ordinal))).collect();
        self.ends.insert(branch, BranchEnd { ordinal: ordinal - 1, places });
    }

    /// Adds the rows of a checkpoint, if all places before it are known.
    pub(crate) fn add(&mut self, (branch, ordinal): (i64, i64), rows: &[VersionRow]) {
        if ordinal == 0 {
            self.begin(branch, 0, &[]);
        }
        let Some(end) = self.ends.get_mut(&branch) else { return };
        if end.ordinal.checked_add(1) != Some(ordinal) {
            self.ends.remove(&branch);
            return;
        }
        end.ordinal = ordinal;
        for row in rows.iter().filter(|row| ![INDEX_SNAPSHOT, NO_CHANGES].contains(&row.kind)) {
            let earlier = end.places.insert(row.key, (branch, ordinal));
            self.count += usize::from(earlier.is_none());
        }
    }

    /// Returns the places at (branch, ordinal), by key, if they are known.
    pub(crate) fn at(&self, branch: i64, ordinal: i64) -> Option<Vec<RowPlace>> {
        let end = self.ends.get(&branch).filter(|end| end.ordinal == ordinal)?;
        Some(end.places.iter().map(|(key, (branch, ordinal))| (*key, *branch, *ordinal)).collect())
    }

    /// Forgets all places if there are too many.
    pub(crate) fn bound(&mut self) {
        if self.count > PLACES_CACHE_MAX {
            self.clear();
        }
    }

    /// Forgets all places.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
