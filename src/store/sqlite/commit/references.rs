//! Copy-on-write references that a batch makes: the lists that they name are found.
//!
//! *Absent:* the lists of a reference, which a read resolves.

use super::batch::{Tx, not_found};
use crate::base::limits::LIST_REFERENCES_MAX;
use crate::store::batch::ListRef;
use crate::store::sqlite::fault::{Res, invalid};
use crate::store::sqlite::verify::neighbors;

/// Returns the `seq` of the checkpoint of a list that a batch refers to.
pub(crate) fn find(tx: &mut Tx<'_>, of: &ListRef) -> Res<i64> {
    let thread = &tx.batch.thread;
    let namespace = tx.caches.namespace(tx.conn, thread, &of.namespace)?;
    let missing = || not_found(thread, &of.checkpoint);
    let seq = neighbors::must_find(tx.conn, namespace.ok_or_else(missing)?, &of.checkpoint, missing)?;
    tx.caches.known(tx.conn, seq)?.must_be_kept(thread)?;
    let view = tx.caches.view(tx.conn);
    let mut below = view.list_of(seq, &of.channel)?;
    for _ in 0..LIST_REFERENCES_MAX {
        match below.map(|list| list.reference()).transpose()?.flatten() {
            Some(reference) => below = view.list_at(reference.seq, reference.channel)?,
            None => return Ok(seq),
        }
    }
    Err(invalid("list.of", format!("more than {LIST_REFERENCES_MAX} references in a row")))
}
