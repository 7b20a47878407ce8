//! The log of `annals` on a PostgreSQL server: several machines share the same threads.
//!
//! [`open`] returns a [`Store`] like `Store::open` does, and everything above it is the same. A commit is one round
//! trip: it locks the row of its thread and compares its number of changes; what a batch compares with the log was read
//! at that number, or follows from the last commit of this process. Batches of different threads that wait are written
//! in one transaction.
//!
//! Invariants: isolation is `READ COMMITTED`, and whatever decides about a commit stands in the one row that it locks;
//! a call sees one snapshot. *Absent:* transactions on tables of an application, and the calls
//! about files.
//!
//! # Example
//! ```no_run
//! use annals::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = annals_postgres::open("postgres://app@localhost/annals")?;
//! store.thread("trip")?.append("messages", [Message::human("A hotel in Bern")])?;
//! # Ok(())
//! # }
//! ```

mod backend;
mod check;
mod checksum;
mod claim;
mod client;
mod commit;
mod erase;
mod error;
mod follow;
mod limits;
mod pack;
mod prune;
mod read;
mod rows;
mod schema;
mod search;
mod session;
mod side_tables;
mod sql;
mod tls;
mod url;

use std::sync::Arc;

use annals::store::{OpenOptions, Store, StoreError};

use crate::schema::NewTables;

pub use backend::PostgresBackend;

/// The guide, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/postgres.md")]
struct PostgresGuide;

/// Opens the store in the database of a URL, and makes its tables if there are none. They stand in the first schema of
/// the search path of the connection.
///
/// # Errors
/// [`StoreError::Open`] if the URL is not one, the server is not reached or refuses, the database is not encoded in
/// UTF-8, or the tables are those of another version.
pub fn open(url: &str) -> Result<Store, StoreError> {
    open_with(url, OpenOptions::new())
}

/// Opens the store in the database of a URL with options. Of those about a file, `create` and `read_only` decide
/// whether missing tables are made; the others have no effect.
///
/// # Errors
/// As [`open`]; [`StoreError::NotAStore`] of a database without tables, if the options do not allow to make them.
pub fn open_with(url: &str, options: OpenOptions) -> Result<Store, StoreError> {
    let backend = PostgresBackend::connect_with(url, options.may_create())?;
    Ok(Store::with_backend(Arc::new(backend), options))
}

/// Makes the tables of a store in an empty database, those that grow with the log divided into partitions by hashes of
/// the thread: each partition has indexes of its own, which are smaller, and is vacuumed for itself. Opened without
/// this, a database has one table of each kind.
///
/// # Errors
/// [`StoreError::Invalid`] if there are no partitions or more than 1,024; [`StoreError::Open`] if the database has the
/// tables, and as [`open`].
///
/// # Example: tables of sixteen partitions
/// ```no_run
/// # fn main() -> Result<(), annals::store::StoreError> {
/// annals_postgres::create_partitioned("postgres://app@localhost/annals", 16)?;
/// let store = annals_postgres::open("postgres://app@localhost/annals")?;
/// # Ok(())
/// # }
/// ```
pub fn create_partitioned(url: &str, partitions: u32) -> Result<(), StoreError> {
    if !(1..=limits::PARTITIONS_MAX).contains(&partitions) {
        let reason = format!("{partitions} is not from 1 to {}", limits::PARTITIONS_MAX);
        return Err(StoreError::Invalid { field: "partitions", reason });
    }
    PostgresBackend::connect_and(url, NewTables::Divided(partitions)).map(|_| ())
}
