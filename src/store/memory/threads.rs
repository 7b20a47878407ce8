//! Listings of threads: each is derived from its namespace when it is listed.

use super::operation;
use super::read;
use super::stored::{MemoryLog, StoredThread};
use crate::base::Namespace;
use crate::store::error::StoreError;
use crate::store::threads::{ThreadInfo, ThreadOrder, ThreadPage, ThreadQuery};

/// Returns the page of a listing.
pub(super) fn list(log: &MemoryLog, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
    let mut all = log.threads.values().filter_map(info).collect::<Result<Vec<_>, _>>()?;
    if query.order == ThreadOrder::Activity {
        all.sort_by_key(|info| std::cmp::Reverse(info.seq()));
    }
    let mut page = ThreadPage::new(query);
    let after = |info: &ThreadInfo| match (&query.after, query.order) {
        (Some((_, seq)), ThreadOrder::Activity) => info.seq() < *seq,
        (Some((id, _)), ThreadOrder::Id) => info.id() > id,
        (None, _) => true,
    };
    for info in all.into_iter().filter(after) {
        if !page.offer(info) {
            break;
        }
    }
    Ok(page.into_threads())
}

/// Returns a thread as a list shows it; `None` if it has no head.
pub(super) fn info(thread: &StoredThread) -> Option<Result<ThreadInfo, StoreError>> {
    let space = thread.spaces.get(&Namespace::root())?;
    let (_, newest) = space.checkpoints.last()?;
    let head = space.head()?.record.clone();
    let writes = read::writes(space, &head.point.checkpoint);
    Some(ThreadInfo::new(head, newest.record.seq, newest.record.created_at, operation::fields(thread), &writes))
}
