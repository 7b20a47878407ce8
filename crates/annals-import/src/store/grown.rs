//! Sessions whose id is a hash of their content: one that has grown is written to the thread of its begin.

use annals::store::Store;

use super::lines::stored_lines;
use super::thread_id;
use crate::error::ImportError;
use crate::model::SourceSession;

/// Gives a session the id of the thread that holds its begin, if it has no thread of its own. Of several the one with
/// the longest begin is taken.
pub(super) fn take_id(store: &Store, session: &mut SourceSession) -> Result<(), ImportError> {
    if session.earlier_ids.is_empty() || is_stored(store, session, &session.id)? {
        return Ok(());
    }
    for id in std::mem::take(&mut session.earlier_ids) {
        if is_stored(store, session, &id)? && is_begin(store, session, &id)? {
            session.id = id;
            break;
        }
    }
    Ok(())
}

fn is_stored(store: &Store, session: &SourceSession, id: &str) -> Result<bool, ImportError> {
    Ok(store.thread(thread_id(session.source, id))?.head()?.is_some())
}

/// Returns whether every message of the head of a thread is one of the session, from the start.
fn is_begin(store: &Store, session: &SourceSession, id: &str) -> Result<bool, ImportError> {
    let lines = stored_lines(&store.thread(thread_id(session.source, id))?, false)?;
    let main = || session.main.iter().map(|message| &message.message);
    Ok(lines.first().is_some_and(|line| line.shared(main()) == line.messages.len()))
}
