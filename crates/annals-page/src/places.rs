//! The places of connections: a number of them for clients that have shown the token, and a smaller one for all others.
//!
//! Invariants: a client without the token takes no place of the others; a new client gets a place at once, for which
//! the oldest connection without the token is closed if need be.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::limits::{KNOWN_MAX, UNKNOWN_MAX};

/// The open connections of a server.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPlaces(Mutex<PlaceTable>);

#[derive(Debug, Default)]
struct PlaceTable {
    /// The number of the next connection.
    next: u64,
    /// Connections without the token, oldest first.
    unknown: VecDeque<(u64, AbortHandle)>,
    known: usize,
}

impl ConnectionPlaces {
    fn table(&self) -> MutexGuard<'_, PlaceTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of a new connection, which is that of a client without the token.
    pub(crate) fn place(self: &Arc<Self>) -> ConnectionPlace {
        let mut table = self.table();
        table.next += 1;
        ConnectionPlace { number: table.next, is_known: false, places: Arc::clone(self) }
    }

    /// Enters the task of a new connection, and closes the oldest one without the token if there are too many.
    pub(crate) fn enter(&self, number: u64, task: AbortHandle) {
        let mut table = self.table();
        if table.unknown.len() == UNKNOWN_MAX {
            close_oldest(&mut table);
        }
        table.unknown.push_back((number, task));
        debug_assert!(table.unknown.len() <= UNKNOWN_MAX, "a place was made free");
    }

    /// Closes the oldest connection without the token.
    pub(crate) fn close_oldest(&self) {
        close_oldest(&mut self.table());
    }
}

fn close_oldest(table: &mut PlaceTable) {
    if let Some((_, task)) = table.unknown.pop_front() {
        task.abort();
    }
}

/// The place of one connection, which is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    number: u64,
    is_known: bool,
    places: Arc<ConnectionPlaces>,
}

impl ConnectionPlace {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Moves the connection to the places of clients that have shown the token; returns false if they are taken.
    pub(crate) fn move_to_known(&mut self) -> bool {
        let mut table = self.places.table();
        if !self.is_known && table.known < KNOWN_MAX {
            table.unknown.retain(|(number, _)| *number != self.number);
            table.known += 1;
            self.is_known = true;
        }
        debug_assert!(table.known <= KNOWN_MAX);
        self.is_known
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut table = self.places.table();
        if self.is_known {
            debug_assert!(table.known > 0, "a place that is left was taken");
            table.known -= 1;
        } else {
            table.unknown.retain(|(number, _)| *number != self.number);
        }
    }
}
