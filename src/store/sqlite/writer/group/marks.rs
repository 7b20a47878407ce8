//! The marks that the writer puts into its log: the first one of a log, and one before each copy of it.
//!
//! *Absent:* the content of a mark ([`wal_mark`](crate::store::sqlite::file::wal_mark)).

use super::log_file::{self, LogBegin};
use super::{Core, Fault, Outcomes, Res, copy_wal, empty_found_wal, is_undone};
use crate::store::error::StoreError;
use crate::store::sqlite::fault::reason;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::system::Stamp;
use crate::store::sqlite::file::wal_mark::{MarkState, WalMark};
use crate::store::sqlite::sql;
use rusqlite::Connection;

impl Core {
    /// Lets the log begin with a mark, and tells the file of it, before the first commit of it is acknowledged.
    pub(super) fn begin_log(&mut self) -> Res<()> {
        let found = self.log.look(&self.place)?;
        if found == LogBegin::Marked {
            return Ok(());
        }
        if found == LogBegin::Empty {
            // Other processes may have emptied it, or a person: the shared memory counts its frames.
            self.step(sql::COMMIT)?;
            let frames = copy_wal(&self.conn, sql::WAL_NOOP)?.frames;
            self.begin_write()?;
            match self.log.look(&self.place)? {
                LogBegin::Marked => return Ok(()),
                LogBegin::Empty if frames > 0 => {
                    return Err(log_file::replaced(&self.place, "its write-ahead log was emptied"));
                }
                _ => {}
            }
        }
        WalMark::replace(&self.conn, self.place.open_state(), false)?;
        self.commit_mark()?;
        // A reader may keep it from being copied; then the copy of the background tells the file.
        _ = copy_wal(&self.conn, sql::WAL_PASSIVE)?;
        self.log.may_begin = true;
        self.begin_write()
    }

    /// Commits a transaction that has replaced the mark alone.
    fn commit_mark(&mut self) -> Res<()> {
        if let Err(fault) = self.log.expect_mark(&self.conn).and_then(|()| self.step(sql::COMMIT)) {
            self.roll_back();
            // Frames after those that a failed sync has dropped would end with the next power cut.
            if !is_undone(&fault)
                && let Err(second) = self.reconnect()
            {
                let closed = format!("{}; the file cannot be used again: {}", reason(&fault), reason(&second));
                self.close(Outcomes::new(), closed);
            }
            return Err(fault);
        }
        self.log.note_mark(&self.conn);
        self.log.note_commit(false);
        self.log.note_end();
        Ok(())
    }

    /// Lets the log end with a mark of this state, in a transaction of its own. Nothing is waited for. A log that is
    /// empty, or ends with such a mark, stays as it is.
    pub(super) fn mark_alone(&mut self, state: MarkState) -> Res<()> {
        if self.empty_headless_log()? {
            return Ok(());
        }
        self.step(sql::BEGIN_WRITE)?;
        let marked = self.log.is_ended(&self.conn).and_then(|is_kept| WalMark::replace(&self.conn, state, is_kept));
        match marked {
            Ok(true) => self.commit_mark(),
            Ok(false) => self.step(sql::COMMIT),
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Empties an inherited log whose header was half written, if the file misses nothing of it; returns whether it
    /// did. SQLite would give the next log the salts of the half header, and old frames would look like its own.
    fn empty_headless_log(&mut self) -> Res<bool> {
        let is_whole = |conn: &Connection| Ok::<_, Fault>(WalMark::read(conn)?.state == MarkState::Whole);
        if self.inherited_attempts == 0 || !self.log.is_headless() || !is_whole(&self.conn)? {
            return Ok(false);
        }
        // Another process may have begun the log meanwhile: then its mark stands in the file.
        Ok(empty_found_wal(&self.conn)? && is_whole(&self.conn)?)
    }

    /// Verifies that the log still continues the file, and lets it end with a mark, before it is copied: an older copy
    /// of the log is then known by its marks.
    pub(crate) fn mark_copy(&mut self) -> Res<()> {
        self.verify_pair()?;
        self.log.may_begin = true;
        self.mark_alone(self.place.open_state())
    }

    /// Notes that the log may have been copied whole, so that the next transaction may begin it anew, and the stamp of
    /// the file after the copy; without one the next copy compares file and log.
    pub(crate) fn note_copied(&mut self, file: Option<Stamp>) {
        self.log.note_copied(file);
    }

    /// Verifies, before the log is copied, that it still continues the file.
    pub(crate) fn verify_pair(&mut self) -> Res<()> {
        if let Some(reason) = &self.closed {
            return Err(StoreError::HandleClosed { reason: reason.clone() }.into());
        }
        let verified = self.log.verify_pair(&self.place);
        if let Err(fault) = &verified {
            self.close_if_replaced(fault);
        }
        verified
    }

    /// Ends the writer if another file is at the path.
    pub(super) fn close_if_replaced(&mut self, fault: &Fault) {
        if matches!(fault, Fault::Store(StoreError::FileReplaced { .. })) {
            self.close(Outcomes::new(), reason(fault));
        }
    }

    /// Replaces the mark along with a group that may begin the log anew.
    pub(super) fn carry_mark(&mut self) -> Res<()> {
        if self.log.may_begin {
            self.log.expect_mark(&self.conn)?;
            WalMark::replace(&self.conn, MarkState::Whole, false)?;
        }
        Ok(())
    }
}

impl Drop for Core {
    /// SQLite copies the log with the last connection that closes, and removes it: the file must not miss it then.
    fn drop(&mut self) {
        if self.closed.is_none() && self.mark_alone(MarkState::Whole).is_err() {
            // If this is refused, the next open says that a log is missing, and readers show all the same.
            _ = open::copies_on_close(&self.conn, false);
        }
    }
}
