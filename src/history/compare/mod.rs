//! The comparison of states: differences, patches, blame, evolution and the search for the change of a text.
//!
//! *Absent:* writes; a patch is applied as an update.

pub(crate) mod blame;
pub(crate) mod diff;
pub(crate) mod evolution;
pub(crate) mod items_diff;
pub(crate) mod patch;
pub(crate) mod pickaxe;
