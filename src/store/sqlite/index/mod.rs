//! Tables that are derived from the log and follow it: the table of threads and the search index.

pub(crate) mod follow;
pub(crate) mod projection;
pub(crate) mod search;
pub(crate) mod threads;

use self::projection::Projection;
use self::search::SearchEntries;
use self::threads::ThreadStates;

/// The projections of a file.
pub(crate) const PROJECTIONS: [&dyn Projection; 2] = [&SearchEntries, &ThreadStates];
