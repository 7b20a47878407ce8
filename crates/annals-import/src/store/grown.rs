//! Sessions whose id is a hash of their content: one that has grown is written to the thread of its begin.

use annals::store::Store;

use super::lines::stored_lines;
use super::pending::PendingThreads;
use super::thread_id;
use crate::error::ImportError;
use crate::model::SourceSession;

/// Gives a session the id of the thread that holds its begin, if it has no thread of its own. Of several the one with
/// the longest begin is taken.
pub(super) fn take_id(store: &Store, threads: &PendingThreads, session: &mut SourceSession) -> Result<(), ImportError> {
    let is_stored = |session: &SourceSession, id: &str| -> Result<bool, ImportError> {
        let id = thread_id(session.source, id);
        Ok(threads.may_exist(&id) && store.thread(id)?.head()?.is_some())
    };
    if session.earlier_ids.is_empty() || is_stored(session, &session.id)? {
        return Ok(());
    }
    for id in std::mem::take(&mut session.earlier_ids) {
        if is_stored(session, &id)? && is_begin(store, session, &id)? {
            session.id = id;
            break;
        }
    }
    Ok(())
}

/// Returns whether every message of the head of a thread is one of the session, from the start.
fn is_begin(store: &Store, session: &SourceSession, id: &str) -> Result<bool, ImportError> {
    let lines = stored_lines(&store.thread(thread_id(session.source, id))?, false)?;
    let main = || session.main.iter().map(|message| &message.message);
    Ok(lines.first().is_some_and(|line| line.shared(main()) == line.messages.len()))
}
