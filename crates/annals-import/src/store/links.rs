//! The links of sessions to their parents, which are stored some at a time.

use annals::store::Store;
use annals_runs::{StoreRuns as _, ThreadLink, ThreadLinkKind};

use super::thread_id;
use crate::error::ImportError;
use crate::limits::COMMIT_LINKS_MAX;
use crate::model::{ParentLink, SourceSession};

/// The links that are not stored yet.
#[derive(Default)]
pub(super) struct LinkLog {
    waiting: Vec<(String, ThreadLink)>,
}

impl LinkLog {
    /// Adds the link of a session that has a parent other than itself.
    pub(super) fn add(&mut self, store: &Store, session: &SourceSession) -> Result<(), ImportError> {
        let Some(parent) = session.parent.as_ref().filter(|parent| parent.id() != session.id) else { return Ok(()) };
        let thread = thread_id(session.source, parent.id());
        let link = match parent {
            ParentLink::Fork { .. } => ThreadLink::new(thread, ThreadLinkKind::Fork),
            ParentLink::Sub { call: None, .. } => ThreadLink::new(thread, ThreadLinkKind::Sub),
            ParentLink::Sub { call: Some(call), .. } => ThreadLink::new(thread, ThreadLinkKind::Sub).call(call),
        };
        self.waiting.push((thread_id(session.source, &session.id), link));
        if self.waiting.len() >= COMMIT_LINKS_MAX { self.flush(store) } else { Ok(()) }
    }

    /// Stores the links that wait, in one commit. Those of an earlier import are not written again.
    pub(super) fn flush(&mut self, store: &Store) -> Result<(), ImportError> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() { Ok(()) } else { Ok(store.link_threads(&waiting)?) }
    }
}
